import pytest

from examples.self_play import main


def test_self_play_rates_versions_and_measures_the_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--steps", "4096", "--every", "4096", "--units", "2", "--episodes", "8"]
    self_play = main(arguments)
    assert [version.name for version in self_play.versions] == ["nearest", "4096"]
    out = capsys.readouterr().out
    for line in self_play.table().splitlines():
        assert f"{line}\n" in out
    for script in ("nearest", "focus fire"):
        assert f"wins against {script!r}: " in out
