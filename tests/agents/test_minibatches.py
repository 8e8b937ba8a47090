import torch
from hypothesis import given
from hypothesis import strategies as st

from entity_encoder.agents.minibatches import chunks_by_size, minibatch_count, shuffled


@given(n=st.integers(0, 50), size=st.integers(1, 60), seed=st.integers(0, 99))
def test_every_index_once_and_sizes_alike(n: int, size: int, seed: int) -> None:
    index = torch.arange(n) * 3
    generator = torch.Generator().manual_seed(seed)
    parts = list(shuffled(index, minibatch_count(n, size), generator))
    assert sorted(torch.cat(parts).tolist()) == index.tolist()
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= size


def test_order_depends_on_the_generator_alone() -> None:
    index = torch.arange(20)
    first, again, other = (
        torch.cat(list(shuffled(index, 3, torch.Generator().manual_seed(seed)))).tolist()
        for seed in (1, 1, 2)
    )
    assert first == again != other


@given(counts=st.lists(st.integers(0, 16), max_size=40), limit=st.integers(1, 50))
def test_chunks_cover_a_minibatch_and_hold_similar_sets(counts: list[int], limit: int) -> None:
    count = torch.tensor(counts, dtype=torch.int64)
    chunks = chunks_by_size(count, limit)
    places = torch.cat(chunks).tolist() if chunks else []
    assert sorted(places) == list(range(len(counts)))
    ordered = [counts[place] for place in places]
    assert ordered == sorted(ordered)
    for chunk in chunks:
        # one sample may reach over the bound at either end
        assert int(count[chunk].clamp(min=1).sum()) <= limit + 2 * 16
