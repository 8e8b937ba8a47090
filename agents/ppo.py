"""PPO: collect, learn, log, save; from the first step to the last, over any interruption."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from entity_encoder.agents import checkpoint
from entity_encoder.agents.accumulation import ChunkRunner
from entity_encoder.agents.announcing import choices, log, open_monitor
from entity_encoder.agents.calling import command
from entity_encoder.agents.collect import Collector
from entity_encoder.agents.config import PPOConfig
from entity_encoder.agents.distributed import Ranks
from entity_encoder.agents.episodes import EpisodeLog
from entity_encoder.agents.evaluate import EvaluationResult, evaluate
from entity_encoder.agents.interruption import interruptible
from entity_encoder.agents.iteration import iterate, update_statistics
from entity_encoder.agents.machine import (
    check_accelerator,
    choose_device,
    choose_threads,
    computing,
    using_threads,
)
from entity_encoder.agents.making import make_environments, make_training_environments
from entity_encoder.agents.monitor import Monitor
from entity_encoder.agents.objective import Coefficients
from entity_encoder.agents.optimiser import make_optimiser
from entity_encoder.agents.policy import EntityPolicy
from entity_encoder.agents.progress import Progress
from entity_encoder.agents.saved import check_same_schema, make_policy, show_to
from entity_encoder.agents.scaling import RewardScale
from entity_encoder.agents.schedules import scheduled
from entity_encoder.agents.snapshot import Snapshot, capture, restore
from entity_encoder.agents.update import Updater
from entity_encoder.schema import EntitySchema

__all__ = ["PPO", "Callback"]

#: Called after every iteration with the agent and its metrics; returning True ends training.
Callback = Callable[["PPO", Mapping[str, float]], bool | None]

Env = str | VectorEnv[Any, Any, Any] | Sequence[Any]


class PPO:
    """Proximal policy optimisation for observations of entities.

    Args:
        env: Environment id, a `gymnasium.vector.VectorEnv`, or one factory for each environment.
        config: Settings; `PPOConfig()` is good on every task of ours.
        run_dir: Where the log and the checkpoints go; None keeps everything in memory.
        env_kwargs: Options of the environment, for an id.
        schema: What observations contain, instead of what the environment declares.
        callbacks: Functions called after every iteration; one with a method `begin(agent)` or
            `finish(agent)` is also told when training begins, or has ended and is saved.
        progress: Whether to print what is chosen and how far training is.

    Attributes:
        policy: The policy that learns.
        steps: Environment steps learned from so far.
        monitor: The TensorBoard log, open while `learn` runs.
        notes: What could not be continued exactly after `load`, in words.

    Raises:
        ValueError: For settings, spaces and environments that do not fit together.

    Example:
        >>> agent = PPO("Entity/FloorIsLava-v0", PPOConfig(total_steps=8192), progress=False)
        >>> agent.learn().steps
        8192
    """

    def __init__(
        self,
        env: Env,
        config: PPOConfig | None = None,
        *,
        run_dir: str | Path | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        schema: EntitySchema | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> None:
        config = PPOConfig() if config is None else config
        self.device = choose_device(config.device)
        check_accelerator(config, self.device)
        self.ranks = Ranks.join(self.device)
        self.envs = make_training_environments(
            env, config, device=self.device, env_kwargs=env_kwargs, schema=schema
        )
        self.config = dataclasses.replace(config, num_envs=self.envs.num_envs)
        self.env_description = _describe_env(env, env_kwargs)
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.callbacks = list(callbacks)
        self.progress = progress and self.ranks.first
        self.policy: EntityPolicy = make_policy(
            self.envs.schema, self.envs.action_space, self.config
        ).to(self.device)
        self.policy.own_schema = schema is not None
        if self.config.compile:
            for encoder in self.policy.encoders:
                encoder.compile()
        captured = self.config.cuda_graphs
        self.optimiser = make_optimiser(
            self.policy.parameters(),
            learning_rate=self.config.learning_rate,
            epsilon=self.config.adam_epsilon,
            captured=captured,
        )
        seeds = np.random.SeedSequence([self.config.seed, self.ranks.rank]).generate_state(2)
        self.generators = {
            name: torch.Generator(self.device).manual_seed(int(seed))
            for name, seed in zip(("actions", "shuffling"), seeds, strict=True)
        }
        precision = computing(self.device, bfloat16=self.config.bfloat16)
        self.collector = Collector(
            self.policy,
            self.envs,
            self.config.rollout_steps,
            self.generators["actions"],
            captured=captured,
            precision=precision,
        )
        self.updater = Updater(
            self.policy,
            self.optimiser,
            self.config,
            self.generators["shuffling"],
            self.ranks,
            captured=captured,
            precision=precision,
        )
        self.reward_scale = RewardScale(self.envs.num_envs, self.config.gamma).to(self.device)
        self.episodes = EpisodeLog(self.envs.num_envs)
        self.started = False
        self.steps = 0
        self.iteration = 0
        self.seconds = 0.0
        self.best_return = float("-inf")
        self.notes: list[str] = []
        self.monitor = Monitor(".", enabled=False)

    # --- training -----------------------------------------------------------------------------

    def learn(self) -> PPO:
        """Train until `config.total_steps`, from wherever this agent is.

        On Ctrl-C, SIGTERM and errors the state before the running iteration is saved.

        Raises:
            FileExistsError: When `run_dir` holds the checkpoint of another run.
        """
        self._check_run_dir()
        threads, reason = choose_threads(
            self.config.threads,
            device=self.device,
            workers=self.config.workers,
            ranks=self.ranks.size,
        )
        self.updater.run_chunks = ChunkRunner(threads)
        self.collector.threads = threads
        snapshot = capture(self)
        show = Progress(self.config.total_steps, self.steps, enabled=self.progress)
        with open_monitor(self) as monitor, show as progress, using_threads(1):
            self.monitor = monitor
            for line in (*choices(self), f"threads: {threads} ({reason})"):
                progress.note(line)
            try:
                with interruptible():
                    self._start()
                    for callback in self.callbacks:
                        getattr(callback, "begin", lambda _: None)(self)
                    while self.steps < self.config.total_steps:
                        snapshot = capture(self)
                        done = iterate(self)
                        log(self, done, monitor, progress)
                        if self._is_due():
                            self.save()
                            monitor.flush()
                        if self._should_stop(done.metrics, progress):
                            break
            except BaseException as error:
                self._rescue(snapshot, error, progress)
                raise
            self.save()
            for callback in self.callbacks:
                getattr(callback, "finish", lambda _: None)(self)
        return self

    def _start(self) -> None:
        """Begin the first episodes, and let normalisation see where they begin."""
        if self.started:
            return
        seed = int(np.random.SeedSequence([self.config.seed, self.steps]).generate_state(1)[0] // 2)
        observation = self.envs.reset(seed=seed + self.ranks.rank * self.envs.num_envs)
        if self.steps == 0:
            update_statistics(self.policy, self.ranks, observation)
        self.started = True

    def coefficients(self) -> Coefficients:
        """Return what the schedules say now."""
        c, progress = self.config, self.steps / self.config.total_steps
        return Coefficients(
            learning_rate=scheduled(c.learning_rate_schedule, c.learning_rate, progress),
            clip_range=scheduled(c.clip_range_schedule, c.clip_range, progress),
            entropy=scheduled(c.entropy_schedule, c.entropy_coefficient, progress),
        )

    def _should_stop(self, metrics: Mapping[str, float], progress: Progress) -> bool:
        """Ask the callbacks and the targets; all callbacks are called."""
        answers = [callback(self, metrics) for callback in self.callbacks]
        stop = any(answer is True for answer in answers)
        for name, target in (
            ("total", self.config.target_return),
            ("score", self.config.target_score),
        ):
            mean = self.episodes.mean(name)
            if target is not None and len(self.episodes.recent) >= 100 and mean >= target:
                what = "return" if name == "total" else name
                progress.note(f"stopped: mean {what} {mean:.4g} reached the target {target:g}")
                stop = True
        return bool(self.ranks.largest(int(stop), self.device))

    # --- evaluation ---------------------------------------------------------------------------

    def evaluate(
        self,
        episodes: int = 100,
        *,
        deterministic: bool = True,
        env: Env | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> EvaluationResult:
        """Play whole episodes with the present policy; nothing is learned from them.

        Args:
            episodes: How many.
            deterministic: Take the most probable action instead of drawing one.
            env: Where; default new environments of the kind trained on.
            env_kwargs: Options on top of those trained with, such as more entities.

        Raises:
            ValueError: When the environment trained on cannot be made again.
        """
        if env is None:
            made = self.env_description
            if made is None:
                raise ValueError(
                    "env must be given to evaluate, got None: training had environment objects, "
                    "of which no new ones can be made"
                )
            env, env_kwargs = made["id"], {**made["kwargs"], **(env_kwargs or {})}
        vector = make_environments(
            env,
            num_envs=max(1, min(episodes, self.config.num_envs)),
            device=self.device,
            env_kwargs=env_kwargs,
        )
        envs = show_to(self.policy, vector, device=self.device)
        try:
            return evaluate(self.policy, envs, episodes, deterministic=deterministic)
        finally:
            if not isinstance(env, VectorEnv):
                envs.close()

    # --- checkpoints --------------------------------------------------------------------------

    def save(self, path: str | Path | None = None) -> Path | None:
        """Write a checkpoint; by default `<run_dir>/checkpoint`, and `best` when it is that."""
        snapshot = capture(self)
        snapshot.state["ranks"] = self.ranks.gather(snapshot.state["ranks"][0])
        if not self.ranks.first:
            return None
        if path is not None:
            return _write(snapshot, Path(path))
        if self.run_dir is None:
            return None
        recent = self.episodes.mean("total")
        if self.config.keep_best and recent > self.best_return:
            self.best_return = recent
            snapshot.state["best_return"] = recent
            _write(snapshot, self.run_dir / "best")
        return _write(snapshot, self.run_dir / "checkpoint")

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Env | None = None,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        **changes: Any,
    ) -> PPO:
        """Rebuild an agent from a checkpoint, ready to continue or to evaluate.

        Args:
            path: Folder of the checkpoint.
            env: Environments, when training had objects instead of an id.
            env_kwargs: Options on top of those trained with.
            run_dir: Where to go on writing; default the folder that holds `checkpoint`.
            callbacks: As for the constructor.
            progress: As for the constructor.
            **changes: Settings that shall differ, such as total_steps or device.

        Raises:
            FileNotFoundError: When there is no checkpoint.
            ValueError: When it is damaged, or the environment shows something else.
        """
        saved = checkpoint.load_checkpoint(path)
        made = saved.about["env"]
        if env is None:
            if made is None:
                raise ValueError(
                    f"env must be given to load {path}, got None: training had environment "
                    "objects, which a checkpoint does not hold"
                )
            env, env_kwargs = made["id"], {**made["kwargs"], **(env_kwargs or {})}
        config = PPOConfig.from_dict({**saved.about["config"], **changes})
        if run_dir is None and saved.path.name in ("checkpoint", "best"):
            run_dir = saved.path.parent
        schema = EntitySchema.from_dict(saved.about["schema"])
        agent = cls(
            env,
            config,
            run_dir=run_dir,
            env_kwargs=env_kwargs,
            schema=schema if saved.about.get("own_schema") else None,
            callbacks=callbacks,
            progress=progress,
        )
        check_same_schema(schema, agent.policy.schema, f"the checkpoint {path}")
        agent.notes = restore(agent, saved.weights, saved.state, rank=agent.ranks.rank)
        return agent

    def _rescue(self, snapshot: Snapshot, error: BaseException, progress: Progress) -> None:
        """Keep what was learned before the iteration that failed, on the disk and here."""
        kind = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped by an error"
        steps = snapshot.about["step"]
        if self.run_dir is not None and self.ranks.first and steps:
            path = _write(snapshot, self.run_dir / "checkpoint")
            progress.note(
                f"{kind} at {steps:,} steps; saved in {path}\n"
                f"resume: {command()} train --resume {self.run_dir}   "
                f'or   PPO.load("{path}").learn()'
            )
        else:
            progress.note(f"{kind} at {steps:,} steps; learn() continues from there")
        with contextlib.suppress(Exception):  # the environments may be beyond help
            self.notes = restore(self, snapshot.weights, snapshot.state, rank=0)

    def _is_due(self) -> bool:
        every = self.config.checkpoint_every
        return every > 0 and self.iteration % every == 0

    def _check_run_dir(self) -> None:
        if self.steps or self.run_dir is None or not checkpoint.exists(self.run_dir / "checkpoint"):
            return
        raise FileExistsError(
            f"run_dir must be new, got {self.run_dir} with a checkpoint in it; continue that run "
            f'with PPO.load("{self.run_dir / "checkpoint"}"), or choose another folder'
        )


def _describe_env(env: Env, env_kwargs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how to make the environment again, or None when it was given as objects."""
    if not isinstance(env, str):
        return None
    kwargs = dict(env_kwargs or {})
    try:
        json.dumps(kwargs)
    except TypeError:
        return None
    return {"id": env, "kwargs": kwargs}


def _write(snapshot: Snapshot, path: Path) -> Path:
    return checkpoint.save_checkpoint(
        path, weights=snapshot.weights, state=snapshot.state, about=snapshot.about
    )
