"""Several kinds of entities, an action for each of one kind, and who looks at which kind.

python examples/many_kinds.py                               # a battle, a few minutes
python examples/many_kinds.py --env Entity/MultiSnake-v0 --env-arg num_snakes=2 --steps 1_000_000
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor

from entity_encoder import EntityEncoder
from entity_encoder.agents import PPO, PPOConfig
from entity_encoder.agents.cli.options import key_values


@torch.no_grad()
def attention_by_kind(encoder: EntityEncoder, observation: dict[str, Tensor]) -> Tensor:
    """Share of attention that each kind pays to each, (layers, kinds, kinds); rows sum to 1."""
    encoding = encoder(observation, return_attention=True)
    weights = encoding.attention.mean(2)  # (B, layers, slots, slots), over heads
    kinds = torch.block_diag(*(torch.ones(1, g.slots) for g in encoder.schema.groups)).to(weights)
    paid = weights @ kinds.T  # (B, layers, slots, kinds): absent rows pay nothing
    present = encoding.mask.to(weights)[:, None, :, None] * kinds.T  # (B, 1, slots, kinds)
    total = torch.einsum("blsk,bosj->ljk", paid, present)  # j looks at k
    return total / present.sum((0, 1, 2)).clamp(min=1)[:, None]


def main(arguments: Sequence[str] | None = None) -> Tensor:
    """Train, evaluate, and print which kind looks at which; return these shares."""
    parser = argparse.ArgumentParser(description="Train on a task of several kinds.")
    parser.add_argument("--env", default="Entity/Skirmish-v0")
    parser.add_argument("--env-arg", action="append", default=[], help="such as max_units=8")
    parser.add_argument("--steps", type=int, default=200_000)
    args = parser.parse_args(arguments)

    config = PPOConfig(total_steps=args.steps)
    agent = PPO(args.env, config, env_kwargs=key_values(args.env_arg)).learn()
    print(agent.evaluate(100))

    encoder, names = agent.policy.encoders[0], [g.name for g in agent.policy.schema.groups]
    shares = attention_by_kind(encoder, agent.envs.observation)
    for layer, table in enumerate(shares):
        print(f"\nlayer {layer}: looks at " + "".join(f"{name:>12}" for name in names))
        for name, row in zip(names, table.tolist(), strict=True):
            print(f"{name:>17} " + "".join(f"{share:12.2f}" for share in row))
    return shares


if __name__ == "__main__":
    main()
