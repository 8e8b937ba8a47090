"""Play tasks from states that a test lays out by hand."""

from collections.abc import Callable
from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from entity_encoder.envs.actions import legal_actions
from entity_encoder.envs.vector import EntityVectorEnv

Policy = Callable[[EntityVectorEnv], Tensor]


def place(env: EntityVectorEnv, **tensors: Any) -> None:
    """Reset, then replace tensors of the state."""
    env.reset(seed=0)
    content = env.get_state()
    for name, value in tensors.items():
        old = content["state"][name]
        new = torch.as_tensor(value, dtype=old.dtype)
        assert new.shape == old.shape, (name, new.shape, old.shape)
        content["state"][name] = new
    env.set_state(content)


def reference(env: EntityVectorEnv) -> Tensor:
    return env.reference_policy(env.state)


def random(env: EntityVectorEnv) -> Tensor:
    return torch.as_tensor(env.action_space.sample())


def first_returns(env: EntityVectorEnv, policy: Policy, seed: int = 0) -> Tensor:
    """Return what each environment's first episode earns, float64, (E,)."""
    env.reset(seed=seed)
    env.action_space.seed(seed)
    total = torch.zeros(env.num_envs, dtype=torch.float64)
    running = torch.ones(env.num_envs, dtype=torch.bool)
    while bool(running.any()):
        _, reward, terminated, truncated, _ = env.step(policy(env))
        total += torch.as_tensor(reward) * running
        running &= ~torch.as_tensor(terminated | truncated)
    return total


def agrees(sample: Tensor, expected: float, slack: float = 0.0) -> bool:
    """Whether the mean lies within four standard errors (and some slack) of what is expected."""
    error = float(sample.std()) / len(sample) ** 0.5
    return abs(float(sample.mean()) - expected) <= 4.0 * error + slack


def best_returns(env: EntityVectorEnv, depth: int) -> Tensor:
    """Try all sequences of legal actions; for small instances without chance after the start.

    Returns:
        The greatest return of each environment's episode, (E,).
    """
    state = env.state
    root = torch.arange(env.num_envs)
    gained = torch.zeros(env.num_envs)
    best = torch.full((env.num_envs,), -torch.inf)
    for _ in range(depth):
        legal, _ = legal_actions(env.single_action_space, env._observe(state))
        if legal is None:
            assert isinstance(env.single_action_space, Discrete)
            legal = torch.ones(len(root), int(env.single_action_space.n), dtype=torch.bool)
        row, action = legal.nonzero().unbind(1)
        elapsed = state["elapsed"][row] + 1
        state, reward, done, _ = env.transition(
            {key: value[row] for key, value in state.items()}, action, env._streams.rng(1)
        )
        root, gained = root[row], gained[row] + reward
        best = best.scatter_reduce(0, root[done], gained[done], "amax")
        root, gained = root[~done], gained[~done]
        state = {key: value[~done] for key, value in {**state, "elapsed": elapsed}.items()}
        if not len(root):
            return best
    raise AssertionError(f"no episode may take more than {depth} steps")
