"""Our tasks, one file each; `entity_encoder.envs.find_task` imports them by name."""
