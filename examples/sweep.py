"""Search for settings with Optuna: poor trials are stopped early, the best is printed.

    pip install "entity-encoder[sweep]"
    python examples/sweep.py                                    # 20 short trainings
    python examples/sweep.py --env Entity/Triage-v0 --trials 50 --steps 100_000
    python examples/sweep.py --storage sqlite:///sweep.db       # several of these work together

A trial is judged by evaluation episodes of the finished policy, the median rule that stops one
early by its training returns. Two trials with the same settings and seed give the same result.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from entity_encoder.agents import PPO, PPOConfig

if TYPE_CHECKING:
    import optuna


def choose_settings(trial: optuna.Trial) -> dict[str, Any]:
    """Draw what is searched; every field of `PPOConfig` can stand here."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 3e-4, 1e-2, log=True),
        "entropy_coefficient": trial.suggest_float("entropy_coefficient", 1e-3, 0.1, log=True),
        "gamma": 1 - trial.suggest_float("1 - gamma", 1e-3, 0.2, log=True),
        "d_model": trial.suggest_categorical("d_model", [16, 32, 64]),
        "pooling": trial.suggest_categorical("pooling", ["mean", "max", "attention"]),
    }


def train(trial: optuna.Trial, env: str, steps: int, seeds: int, episodes: int) -> float:
    """Train once for each seed and return the mean return of the policies."""
    import optuna

    settings, means = choose_settings(trial), []
    for seed in range(1, seeds + 1):

        def report(agent: PPO, _: Mapping[str, float], first: bool = seed == 1) -> None:
            if first and agent.episodes.recent:
                trial.report(agent.episodes.mean("total"), agent.steps)
                if trial.should_prune():
                    raise optuna.TrialPruned

        config = PPOConfig(total_steps=steps, seed=seed, **settings)
        agent = PPO(env, config, callbacks=[report], progress=False).learn()
        means.append(agent.evaluate(episodes).returns.mean)
    return sum(means) / seeds


def main(arguments: Sequence[str] | None = None) -> optuna.Study:
    """Search, and print the best settings."""
    parser = argparse.ArgumentParser(description="Search for settings with Optuna.")
    parser.add_argument("--env", default="Entity/FloorIsLava-v0")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20_000, help="of each training")
    parser.add_argument("--seeds", type=int, default=1, help="trainings for each trial")
    parser.add_argument("--episodes", type=int, default=100, help="of each evaluation")
    parser.add_argument("--storage", help="database that several processes share")
    args = parser.parse_args(arguments)
    try:
        import optuna
    except ImportError as error:
        raise ImportError('sweep needs optuna: pip install "entity-encoder[sweep]"') from error

    study = optuna.create_study(
        study_name=args.env,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=args.steps // 4),
        storage=args.storage,
        load_if_exists=True,
    )
    study.optimize(
        lambda trial: train(trial, args.env, args.steps, args.seeds, args.episodes),
        n_trials=args.trials,
    )
    print(f"best of {len(study.trials)} trials: return {study.best_value:.3f}")
    for name, value in study.best_params.items():
        print(f"  {name:20} {value:.4g}" if isinstance(value, float) else f"  {name:20} {value}")
    return study


if __name__ == "__main__":
    main()
