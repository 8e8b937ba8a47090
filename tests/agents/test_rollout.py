import pytest
import torch

from tests.cases.adapter import rollout
from tests.cases.toys import counters


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_final_observations_and_last_ones_are_valued_in_one_batch(mode: str) -> None:
    done, _ = rollout(counters([3, 2], mode, truncates=True), 6)
    index, observation, state = done.finals()
    # The last observations of both (both have just begun), then final ones in order of time:
    # env 1 after steps 1, 3, 5 and env 0 after 2, 5; rows are t * 2 + env.
    assert index.tolist() == [10, 11, 3, 4, 7, 10, 11]
    assert observation["entities"][:, 0, 0].tolist() == [0, 0, 2, 3, 2, 3, 2]
    assert state is None


def test_where_an_episode_ends_the_final_value_wins_over_the_next_first_one() -> None:
    done, _ = rollout(counters([3, 2], "SAME_STEP", truncates=True), 6)
    index, _, _ = done.finals()
    done.bootstrap(index, torch.arange(100.0, 100 + len(index)))
    expected = done.value.roll(-1, 0)
    expected[5] = torch.tensor([105.0, 106.0])
    expected[1, 1], expected[2, 0], expected[3, 1] = 102, 103, 104
    assert torch.equal(done.next_value, expected)


def test_full_batches_of_final_observations_give_the_same_rows() -> None:
    # Where counting would wait for the device, all E final observations are kept.
    from entity_encoder.agents.environments import Final

    done, _ = rollout(counters([3, 2], "SAME_STEP", truncates=True), 6)
    index, observation, _ = done.finals()
    other, _ = rollout(counters([3, 2], "SAME_STEP", truncates=True), 6)
    kept = other._finals
    other._finals = []
    for t in range(6):
        full = {key: torch.zeros_like(value[0]) for key, value in done.observation.items()}
        for when, rows, final, _ in kept:
            if when == t:
                for key in full:
                    full[key][rows] = final[key]
        other._keep_final(t, Final(None, full), None, slice(None))
    index2, observation2, _ = other.finals()
    assert index2.tolist() == index.tolist()
    for key in observation:  # absent slots hold NaN
        assert torch.equal(observation[key].nan_to_num(), observation2[key].nan_to_num())


def test_a_rollout_becomes_samples_in_the_order_of_time() -> None:
    done, _ = rollout(counters([3, 2], "NEXT_STEP"), 5)
    count = torch.arange(10).view(5, 2)
    done.next_value.fill_(7.0)
    batch = done.batch(gamma=0.5, gae_lambda=0.0, reward_scale=10.0, count=count)
    assert batch.shape == (5, 2)
    assert not batch.recurrent
    assert batch.count.tolist() == list(range(10))
    t, env = 1, 0  # reward 2, not the last step: A = 10 * 2 + .5 * 7 - V
    assert float(batch.target[t * 2 + env]) == pytest.approx(23.5, abs=1e-5)
    t, env = 1, 1  # reward 2 and the end: R = 20
    assert float(batch.target[t * 2 + env]) == pytest.approx(20.0, abs=1e-5)
