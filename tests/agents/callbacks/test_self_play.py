import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.callbacks import SelfPlay
from entity_encoder.agents.opponents import FrozenOpponent
from entity_encoder.agents.ratings import fit_ratings

SMALL: dict[str, Any] = {
    "num_envs": 6,
    "rollout_steps": 10,
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 1,
    "epochs": 1,
}
QUICK: dict[str, Any] = {"max_units": 2, "min_units": 2, "max_episode_steps": 20}


def train(run_dir: Path | None, self_play: SelfPlay, updates: int = 5) -> PPO:
    agent = PPO(
        "Entity/Skirmish-v0",
        PPOConfig(total_steps=60 * updates, **SMALL),
        run_dir=run_dir,
        env_kwargs=QUICK,
        callbacks=[self_play],
        progress=False,
    )
    return agent.learn()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[PPO, SelfPlay]:
    """A run of five updates in which a version is frozen at 120 and at 240 steps."""
    self_play = SelfPlay(every=120, episodes=6, mixture=4)
    agent = train(tmp_path_factory.mktemp("runs") / "self-play", self_play)
    return agent, self_play


def test_versions_are_frozen_and_rated_in_time(played: tuple[PPO, SelfPlay]) -> None:
    agent, self_play = played
    assert [version.name for version in self_play.versions] == ["nearest", "120", "240"]
    assert self_play.wins.shape == (3, 3)
    assert (self_play.wins + self_play.wins.T <= 12).all()
    assert self_play.wins[0, 1] > self_play.wins[1, 0]  # a beginner loses against the script
    np.testing.assert_array_equal(self_play.ratings, fit_ratings(self_play.wins))
    lines = [line.split() for line in self_play.table().splitlines()]
    assert [name for name, _ in lines] == ["nearest", "120", "240"]
    assert lines[0][1] == "1000"
    assert agent.run_dir is not None
    log = EventAccumulator(str(agent.run_dir))
    log.Reload()
    events = log.Scalars("self_play/rating")
    assert [event.step for event in events] == [120, 240]
    assert events[-1].value == pytest.approx(self_play.ratings[-1], rel=1e-6)


def test_half_of_the_environments_play_against_the_newest(played: tuple[PPO, SelfPlay]) -> None:
    agent, self_play = played
    task: Any = agent.envs.env.unwrapped
    newest = self_play.versions[-1].opponent
    assert len(task.opponents) == 4
    assert [opponent is newest for opponent in task.opponents] == [True, True, False, False]
    earlier = [version.opponent for version in self_play.versions[:-1]]
    assert all(any(opponent is one for one in earlier) for opponent in task.opponents[2:])


def test_matches_leave_training_alone(tmp_path: Path) -> None:
    # A match draws from other streams and plays in a copy: before the first version is put in
    # command, the run is bit for bit the same.
    with_matches = train(None, SelfPlay(every=120, episodes=6), updates=2)
    without = train(None, SelfPlay(every=0), updates=2)
    pairs = zip(
        with_matches.policy.state_dict().values(), without.policy.state_dict().values(), strict=True
    )
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_resumed_run_goes_on_with_its_versions(played: tuple[PPO, SelfPlay]) -> None:
    agent, self_play = played
    assert agent.run_dir is not None
    again = SelfPlay(every=120, episodes=6, mixture=4)
    path = agent.run_dir / "checkpoint"
    resumed = PPO.load(path, callbacks=[again], progress=False, total_steps=420)
    table = agent.run_dir / "versions" / "ratings.json"
    content = json.loads(table.read_text())
    later = {"names": [*content["names"], "900"], "wins": np.ones((4, 4)).tolist()}
    later["wins"][1][2] = 5.0  # of these the first three rows and columns count
    table.write_text(json.dumps(later))
    again.begin(resumed)
    assert [version.name for version in again.versions] == ["nearest", "120", "240"]
    assert again.wins.tolist() == [[1, 1, 1], [1, 1, 5], [1, 1, 1]]
    frozen = again.versions[2].opponent
    expected = self_play.versions[2].opponent
    assert isinstance(frozen, FrozenOpponent)
    assert isinstance(expected, FrozenOpponent)
    for key, value in expected.policy.state_dict().items():
        assert torch.equal(frozen.policy.state_dict()[key], value)
    table.write_text(json.dumps(content))
    resumed.learn()
    assert [version.name for version in again.versions][3:] == ["360"]


def test_it_needs_somebody_to_command() -> None:
    config = PPOConfig(total_steps=60, **SMALL)
    agent = PPO("Entity/Xor-v0", config, callbacks=[SelfPlay()], progress=False)
    with pytest.raises(ValueError, match=r"needs an environment with set_opponent, .* got Xor"):
        agent.learn()
