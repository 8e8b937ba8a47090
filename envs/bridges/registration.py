"""Make bridged environments known to gymnasium, beside our own tasks in the namespace `Entity`."""

from __future__ import annotations

import gymnasium

from entity_encoder.envs.bridges.highway import HIGHWAY_IDS

__all__ = ["register_bridges"]


def register_bridges() -> None:
    """Register `Entity/<id>` for every bridged id, once; the package behind it is not imported."""
    for env_id in HIGHWAY_IDS:
        name = f"Entity/{env_id}"
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point="entity_encoder.envs.bridges.highway:make_highway",
                kwargs={"env_id": env_id},
                # A crash terminates and the end of `duration` truncates: both come from inside.
                max_episode_steps=None,
            )
