import pytest
import torch

from entity_encoder.envs.tasks.floor_is_lava import FloorIsLava
from tests.envs.tasks.play import agrees, first_returns, place, random, reference


def test_actions_go_clockwise_from_north() -> None:
    env = FloorIsLava(8)
    place(env, player=[[100.0, -7.0]] * 8)
    env.step(list(range(8)))
    moves = (env.state["player"] - torch.tensor([100.0, -7.0])).tolist()
    north, east, south, west = [0, 1], [1, 0], [0, -1], [-1, 0]
    assert moves == [north, [1, 1], east, [1, -1], south, [-1, -1], west, [-1, 1]]


def test_only_the_step_onto_high_ground_pays() -> None:
    env = FloorIsLava(8)
    env.reset(seed=5)
    content = env.get_state()
    for value in content["state"].values():
        value[:] = value[3].clone()
    env.set_state(content)
    observation = env.observation()
    ground = observation["high_ground"][0, 0] - observation["player"][0, 0]
    _, reward, terminated, _, _ = env.step(list(range(8)))
    arrived = env.state["player"] - torch.tensor(observation["player"][:, 0])
    assert reward.tolist() == [float((step == torch.tensor(ground)).all()) for step in arrived]
    assert reward.sum() == 1.0
    assert terminated.all()


@pytest.mark.parametrize("max_tiles", [1, 3, 8])
def test_tiles_are_different_neighbours_and_their_number_is_uniform(max_tiles: int) -> None:
    env = FloorIsLava(3000, max_tiles=max_tiles)
    observation, _ = env.reset(seed=0)
    player, ground, lava = (torch.tensor(observation[k]) for k in ("player", "high_ground", "lava"))
    assert player.abs().max() <= 1000
    assert player.eq(player.round()).all()
    tiles = torch.cat((ground, lava), 1) - player  # (E, 8, 2)
    present = torch.cat((torch.ones(3000, 1), torch.tensor(observation["lava_mask"])), 1).bool()
    assert tiles[present].abs().amax(1).eq(1).all()  # one of the eight neighbours
    code = tiles[..., 0] * 3 + tiles[..., 1]  # 9 different numbers
    for row in range(3):
        codes = code[row][present[row]].tolist()
        assert len(set(codes)) == len(codes)
    counts = torch.bincount(present.sum(1), minlength=max_tiles + 1)[1:]
    assert len(counts) == max_tiles
    p = 1 / max_tiles
    assert ((counts / 3000 - p).abs() <= 4 * (p * (1 - p) / 3000) ** 0.5).all()


def test_random_and_reference_return_what_is_stated() -> None:
    env = FloorIsLava(4000)
    assert agrees(first_returns(env, random), env.random_return)
    assert first_returns(env, reference).eq(env.optimum(env.state)).all()
    assert env.random_return == 1 / 8


def test_the_player_s_frame_is_named() -> None:
    frame = FloorIsLava(1).entity_schema.frame
    assert frame is not None
    assert (frame.group, frame.heading) == ("player", ())
