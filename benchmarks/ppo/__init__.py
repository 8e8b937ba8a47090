"""PPO trainers beside each other on one task and one network; see `benchmarks.ppo.__main__`."""
