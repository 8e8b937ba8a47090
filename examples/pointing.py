"""Actions that point at entities: train on CherryPick, then look at what the policy points at.

python examples/pointing.py
python examples/pointing.py --env Entity/Triage-v0 --steps 200_000
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import torch

from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.spaces import SelectEntity


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, show the choices of one state in two orders of slots; return the mean score."""
    parser = argparse.ArgumentParser(description="Train a policy that points at entities.")
    parser.add_argument("--env", default="Entity/CherryPick-v0", help="with SelectEntity actions")
    parser.add_argument("--steps", type=int, default=50_000)
    args = parser.parse_args(arguments)

    agent = PPO(args.env, PPOConfig(total_steps=args.steps)).learn()
    print(result := agent.evaluate(100))

    env: Any = gymnasium.make_vec(args.env, 1, output="torch")
    observation, _ = env.reset(seed=0)
    space = env.single_action_space
    assert isinstance(space, SelectEntity)
    while observation[f"{space.group}_mask"].all():  # until some slots are empty
        observation, *_ = env.step(agent.policy.act(observation, deterministic=True).env_action)

    order = torch.randperm(space.slots, generator=torch.Generator().manual_seed(0))
    keys = (space.group, f"{space.group}_mask")
    shuffled = {**observation, **{key: observation[key][:, order] for key in keys}}
    with torch.no_grad():
        first = agent.policy(observation).distribution.probs[0]  # (slots,)
        second = agent.policy(shuffled).distribution.probs[0]
    torch.testing.assert_close(second, first[order], atol=1e-5, rtol=0)  # they move along

    print(f"\nslot  probability  {space.group}")
    rows, there = observation[space.group][0], observation[f"{space.group}_mask"][0]
    for slot in first.argsort(descending=True).tolist()[:8]:
        print(f"{slot:4}  {first[slot]:11.4f}  {[round(x, 2) for x in rows[slot].tolist()]}")
    print(f"{int((~there).sum())} empty slots have probability {float(first[~there].sum())}")
    assert result.score is not None
    return result.score.mean


if __name__ == "__main__":
    main()
