import pytest

from entity_encoder.agents.schedules import scheduled


@pytest.mark.parametrize(
    ("kind", "progress", "expected"),
    [
        ("constant", 0.7, 2.0),
        ("linear", 0.0, 2.0),
        ("linear", 0.25, 1.5),
        ("linear", 1.5, 0.0),
        ("cosine", 0.0, 2.0),
        ("cosine", 0.5, 1.0),
        ("cosine", 1.0, 0.0),
    ],
)
def test_values_by_hand(kind: str, progress: float, expected: float) -> None:
    assert scheduled(kind, 2.0, progress) == pytest.approx(expected)


def test_something_may_be_left_at_the_end() -> None:
    assert scheduled("linear", 2.0, 1.0, final=0.1) == pytest.approx(0.2)


def test_unknown_schedules_are_refused() -> None:
    with pytest.raises(ValueError, match=r"schedule must be one of .* did you mean 'linear'"):
        scheduled("liner", 1.0, 0.0)
