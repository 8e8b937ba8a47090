from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.presets import PRESETS, config_for


def test_every_preset_is_a_valid_configuration() -> None:
    for env in PRESETS:
        assert isinstance(config_for(env), PPOConfig)


def test_overrides_win_over_a_preset_and_presets_over_defaults() -> None:
    env, preset = next(iter(PRESETS.items()))
    name = next(iter(preset))
    assert getattr(config_for(env), name) == preset[name]
    assert config_for(env, gamma=0.5).gamma == 0.5
    assert config_for("Nobody/Knows-v0") == PPOConfig()
