"""Make bridged environments known to gymnasium, in the namespace `Bridge`."""

from __future__ import annotations

import gymnasium

__all__ = ["HIGHWAY_IDS", "PARALLEL_IDS", "register_bridges"]

BRIDGES = "entity_encoder.envs.bridges"

#: Environments of highway-env that observe vehicles by default, each as `Bridge/<id>`.
HIGHWAY_IDS = (
    *("exit-v0", "exit-v1"),
    *("highway-v0", "highway-fast-v0"),
    *("intersection-v0", "intersection-v1", "intersection-v2"),
    *("merge-v0", "merge-v1"),
    *("roundabout-v0", "roundabout-v1"),
)
#: Environments of several agents, each of which is a row: for `gymnasium.make_vec` alone.
PARALLEL_IDS = {
    "knights_archers_zombies-v11": f"{BRIDGES}.kaz:make_kaz",
    "simple_spread-v3": f"{BRIDGES}.mpe:make_spread",
    "simple_tag-v3": f"{BRIDGES}.mpe:make_tag",
}


def register_bridges() -> None:
    """Register `Bridge/<id>` for every bridged id, once; the packages behind are not imported."""
    for env_id in HIGHWAY_IDS:
        if f"Bridge/{env_id}" not in gymnasium.registry:
            gymnasium.register(
                f"Bridge/{env_id}",
                entry_point=f"{BRIDGES}.highway:make_highway",
                kwargs={"env_id": env_id},
                # A crash terminates and the end of `duration` truncates: both come from inside.
                max_episode_steps=None,
            )
    for env_id, entry_point in PARALLEL_IDS.items():
        if f"Bridge/{env_id}" not in gymnasium.registry:
            gymnasium.register(f"Bridge/{env_id}", vector_entry_point=entry_point)
