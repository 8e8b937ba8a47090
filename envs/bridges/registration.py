"""Make bridged environments known to gymnasium, in the namespace `Bridge`."""

from __future__ import annotations

import gymnasium

__all__ = ["HIGHWAY_IDS", "PARALLEL_IDS", "SMACLITE_MAPS", "SMAX_SCENARIOS", "register_bridges"]

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
#: Maps that come with smaclite, each as `Bridge/smaclite-<map>-v0`.
SMACLITE_MAPS = (
    *("10m_vs_11m", "27m_vs_30m", "2c_vs_64zg", "2s3z", "2s_vs_1sc", "3s5z", "3s5z_vs_3s6z"),
    *("3s_vs_5z", "MMM", "MMM2", "bane_vs_bane", "corridor"),
)
#: Scenarios of JaxMARL's SMAX, each as `Bridge/smax-<scenario>-v0`.
SMAX_SCENARIOS = (
    *("3m", "8m", "25m", "5m_vs_6m", "10m_vs_11m", "27m_vs_30m", "2s3z", "3s5z", "3s5z_vs_3s6z"),
    *("3s_vs_5z", "6h_vs_8z", "smacv2_5_units", "smacv2_10_units", "smacv2_20_units"),
)


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
    for name in SMACLITE_MAPS:
        if f"Bridge/smaclite-{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"Bridge/smaclite-{name}-v0",
                vector_entry_point=f"{BRIDGES}.smaclite:make_smaclite",
                kwargs={"map_name": name},
            )
    for name in SMAX_SCENARIOS:
        if f"Bridge/smax-{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"Bridge/smax-{name}-v0",
                vector_entry_point=f"{BRIDGES}.smax:make_smax",
                kwargs={"scenario": name},
            )
