"""Real numbers as actions: drive to the middle of beacons, of which some are switched off.

python examples/continuous_control.py             # what leaves the bounds is clipped
python examples/continuous_control.py --squash    # actions are bent into the bounds by tanh

Both end at a mean return of -1.56; the script, which drives straight to the middle, has -1.44.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from entity_encoder import EgoFrame
from entity_encoder.agents import PPO, PPOConfig, evaluate
from entity_encoder.envs import EntityVectorEnv, Group, Rng, State, register_task

POINT = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}


class Centre(EntityVectorEnv):
    """Be near the middle of the beacons: each step costs the distance to it."""

    def __init__(self, num_envs: int = 1, *, max_beacons: int = 8, **options: Any) -> None:
        self.max_beacons = max_beacons
        groups = (
            Group("cart", 1, POINT, positions=("x", "y")),
            Group("beacon", max_beacons, POINT, positions=("x", "y"), state=("beacon", "lit")),
        )
        speed = spaces.Box(-0.2, 0.2, (2,))  # what is added to x and y
        options = {"max_episode_steps": 20, "frame": EgoFrame("cart"), **options}
        super().__init__(num_envs, groups=groups, action_space=speed, **options)

    def initial(self, rng: Rng) -> State:
        """Place the cart and from 1 to `max_beacons` lit beacons."""
        count = rng.integers(self.max_beacons + 1, 1, low=1)
        lit = torch.arange(self.max_beacons, device=rng.device) < count
        beacon = rng.uniform(self.max_beacons, 2, low=-1.0) * lit[:, :, None]
        return {"cart": rng.uniform(2, low=-1.0), "beacon": beacon, "lit": lit}

    def transition(
        self, state: State, action: Tensor, rng: Rng
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """Drive; only the time limit ends an episode."""
        cart = (state["cart"] + action).clamp(-1, 1)
        distance = (cart - middle(state)).norm(dim=1)
        return {**state, "cart": cart}, -distance, torch.zeros_like(distance).bool(), None

    def observe(self, state: State) -> dict[str, Tensor]:
        """Show cart and beacons; the middle is for the policy to find."""
        masks = {"beacon_mask": state["lit"]}
        return {"cart": state["cart"][:, None], "beacon": state["beacon"], **masks}

    def reference_policy(self, state: State) -> Tensor:
        """Drive straight to the middle."""
        return (middle(state) - state["cart"]).clamp(-0.2, 0.2)


def middle(state: State) -> Tensor:
    """Return the mean of the lit beacons, (E, 2)."""
    return state["beacon"].sum(1) / state["lit"].sum(1, keepdim=True)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, and return the mean return."""
    parser = argparse.ArgumentParser(description="Train with real numbers as actions.")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--squash", action="store_true")
    args = parser.parse_args(arguments)

    register_task("Centre-v0", Centre)
    # Few environments: more updates from the same steps, which this small task can afford.
    config = PPOConfig(total_steps=args.steps, num_envs=16, squash=args.squash, gamma=0.9)
    agent = PPO("Centre-v0", config).learn()
    found = agent.evaluate(200).returns
    env = Centre(64, output="torch", autoreset_mode="SameStep")
    best = evaluate(lambda _: env.reference_policy(env.state), env, 200).returns
    print(f"policy {found}\nscript {best}")
    return found.mean


if __name__ == "__main__":
    main()
