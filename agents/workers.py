"""Single environments made by factories as one vector environment, in one process or several."""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import os
import signal
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper, batch_space, iterate

from entity_encoder.agents.checkpoint import plain
from entity_encoder.agents.lanes import Buffers, Factory, Lane, make_distinct
from entity_encoder.schema import EntitySchema

__all__ = ["FactoryVectorEnv", "WorkerError"]


class WorkerError(RuntimeError):
    """A worker process died, or an environment in it raised an exception."""


class FactoryVectorEnv(VectorEnv[Any, Any, Any]):
    """Step environments that factories make, several of them in each worker process.

    A finished environment begins its next episode in the same step (`AutoresetMode.SAME_STEP`);
    `infos["final_obs"]` is then a dict of batched arrays, whose rows mean something where
    `infos["_final_obs"]` is True. With workers, observations come through shared memory.

    Args:
        factories: One for each environment; with workers they travel by cloudpickle, so lambdas
            and closures work.
        workers: Number of processes; 0 steps everything in this one.

    Raises:
        ValueError: For environments that are one object or whose spaces differ.
        WorkerError: When a worker dies or its environment raises, with traceback and exit code.
    """

    def __init__(self, factories: Sequence[Factory], *, workers: int = 0) -> None:
        self.num_envs = len(factories)
        if not 0 <= workers <= self.num_envs or not self.num_envs:
            raise ValueError(
                f"workers must be between 0 and the number of factories, got {workers} workers "
                f"and {self.num_envs} factories"
            )
        self._lane: Lane | None = None
        self._workers: list[_Worker] = []
        envs = make_distinct(factories if workers == 0 else factories[:1])
        space = self._describe(envs[0])
        layout = Buffers.describe(space, self.num_envs)
        if workers == 0:
            arrays = {name: np.zeros(shape, kind) for name, (shape, kind) in layout.items()}
            self._buffers = Buffers.from_arrays(arrays)
            self._lane = Lane(envs, 0, self._buffers)
            return
        envs[0].close()
        memory = Buffers.shared(layout)
        self._buffers = Buffers.view(memory, layout)
        # Not fork: a process that has computed holds threads and locks that a copy lacks.
        context = _context()
        bounds = np.linspace(0, self.num_envs, workers + 1).round().astype(int).tolist()
        for number, (first, last) in enumerate(itertools.pairwise(bounds)):
            made: Any = CloudpickleWrapper(list(factories[first:last]))  # type: ignore[arg-type]
            self._workers.append(_Worker(context, number, first, last, made, memory, layout))
        try:
            self._collect()
        except BaseException:
            self.close()
            raise

    def _describe(self, env: gymnasium.Env[Any, Any]) -> spaces.Dict:
        space = env.observation_space
        if not isinstance(space, spaces.Dict):
            raise ValueError(
                f"observation_space must be a Dict of entity tables and masks, got {space}"
            )
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = env.render_mode
        self.spec = env.spec
        self.single_observation_space = space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(space, self.num_envs)
        self.action_space = batch_space(env.action_space, self.num_envs)
        known = env.has_wrapper_attr("entity_schema")
        schema = env.get_wrapper_attr("entity_schema") if known else None
        self.entity_schema: EntitySchema | None = schema
        return space

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode everywhere; an int seeds environment i with seed + i."""
        if options:
            raise ValueError(f"options must be empty, got {options}")
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        self._call("reset", seeds)
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[dict[str, np.ndarray], Any, Any, Any, dict[str, Any]]:
        """Take one step everywhere."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Let the workers begin a step; without workers, take it."""
        self._send("step", list(iterate(self.action_space, actions)))

    def step_wait(self) -> tuple[dict[str, np.ndarray], Any, Any, Any, dict[str, Any]]:
        """Wait for the step that `step_async` began."""
        self._collect()
        b = self._buffers
        ended = b.terminated | b.truncated
        infos: dict[str, Any] = {}
        if ended.any():
            infos["final_obs"] = {key: value.copy() for key, value in b.final.items()}
            infos["_final_obs"] = ended
        for name, values in b.outcomes.items():
            known = ~np.isnan(values)
            if known.any():
                infos |= {name: np.where(known, values, 0.0), f"_{name}": known}
        return (
            self._observation(),
            b.reward.copy(),
            b.terminated.copy(),
            b.truncated.copy(),
            infos,
        )

    def get_state(self) -> list[Any] | None:
        """Return the state of every environment; None when one of them cannot tell."""
        parts = self._ask("get_state")
        return None if any(p is None for p in parts) else [state for p in parts for state in p]

    def set_state(self, content: Sequence[Any]) -> None:
        """Continue every environment where `get_state` was called."""
        self._call("set_state", content)

    def render(self) -> tuple[Any, ...]:
        """Return the frames of all environments."""
        return tuple(frame for part in self._ask("render") for frame in part)

    def close_extras(self, **_: Any) -> None:
        """Close the environments and end the workers."""
        if self._lane is not None:
            self._lane.close()
        for worker in self._workers:
            worker.end()

    def _observation(self) -> dict[str, np.ndarray]:
        return {key: value.copy() for key, value in self._buffers.observation.items()}

    def _call(self, what: str, items: Sequence[Any]) -> None:
        """Let every lane do something with its part of `items`."""
        self._send(what, items)
        self._collect()

    def _send(self, what: str, items: Sequence[Any]) -> None:
        if self._lane is not None:
            getattr(self._lane, what)(items)
            return
        self._forget_answers()
        for worker in self._workers:
            worker.send(what, items[worker.first : worker.last])

    def _ask(self, what: str) -> list[Any]:
        if self._lane is not None:
            return [getattr(self._lane, what)()]
        self._forget_answers()
        for worker in self._workers:
            worker.send(what, None)
        return self._collect()

    def _forget_answers(self) -> None:
        """Take in answers that nobody waited for, because training was interrupted."""
        late = [worker for worker in self._workers if worker.is_awaited]
        for worker in _as_they_come(late):
            worker.receive()

    def _collect(self) -> list[Any]:
        """Wait for all answers; the first failure ends all workers."""
        try:
            return [worker.receive() for worker in _as_they_come(self._workers)]
        except WorkerError:
            self.close()
            raise


def _context() -> Any:
    """Return how processes are started, with what every worker imports imported once."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", __name__])
    return context


class _Worker:
    """One process and the pipe to it."""

    def __init__(
        self,
        context: Any,
        number: int,
        first: int,
        last: int,
        factories: Any,
        memory: dict[str, Any],
        layout: dict[str, Any],
    ) -> None:
        self.number, self.first, self.last = number, first, last
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve,
            args=(theirs, factories, first, memory, layout),
            name=f"environments {first}-{last - 1}",
            daemon=True,
        )
        self.process.start()
        theirs.close()
        self.is_awaited = True  # it will say that its environments are made

    def send(self, what: str, content: Any) -> None:
        """Ask for something."""
        try:
            self.pipe.send((what, _pack(content) if what == "set_state" else content))
            self.is_awaited = True
        except (BrokenPipeError, OSError) as error:
            raise self._death() from error

    def receive(self) -> Any:
        """Return the answer, now that there is one or the process has ended."""
        try:
            if not self.pipe.poll():
                raise EOFError
            kind, content = self.pipe.recv()
            self.is_awaited = False
        except (EOFError, OSError) as error:
            raise self._death() from error
        if kind == "error":
            raise WorkerError(f"in worker {self.number}: {content}")
        return _unpack(content) if kind == "state" else content

    def _death(self) -> WorkerError:
        self.process.join(5)
        code = self.process.exitcode
        why = f" (signal {signal.Signals(-code).name})" if code is not None and code < 0 else ""
        return WorkerError(
            f"worker {self.number}, with environments {self.first} to {self.last - 1}, died with "
            f"exit code {code}{why}"
        )

    def end(self) -> None:
        """End the process, gently at first."""
        if self.process.is_alive():
            with contextlib.suppress(BrokenPipeError, OSError):
                self.pipe.send(("close", None))
            self.process.join(2)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _as_they_come(workers: Sequence[_Worker]) -> Any:
    """Yield workers in order, each when it has answered; a dead one at once."""
    ready: set[int] = set()
    for worker in workers:
        while worker.number not in ready:
            waiting = [w for w in workers if w.number not in ready]
            events = wait([x for w in waiting for x in (w.pipe, w.process.sentinel)])
            for w in waiting:
                if w.process.sentinel in events and not w.pipe.poll():
                    yield w  # raises when it is asked for its answer
                if w.pipe in events:
                    ready.add(w.number)
        yield worker


def _serve(
    pipe: Connection,
    factories: Any,
    first: int,
    memory: dict[str, Any],
    layout: dict[str, Any],
) -> None:
    """Run in a worker: do what is asked until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that trains decides what it means
    torch.set_num_threads(1)  # the workers share the cores
    lane = None
    try:
        lane = Lane(make_distinct(factories.fn), first, Buffers.view(memory, layout))
        pipe.send(("done", None))
        while True:
            what, content = pipe.recv()
            if what == "close":
                break
            if what == "get_state":
                pipe.send(("state", _pack(lane.get_state())))
            elif what == "render":
                pipe.send(("done", lane.render()))
            else:
                content = _unpack(content) if what == "set_state" else content
                getattr(lane, what)(content)
                pipe.send(("done", None))
    except EOFError:
        pass  # the process that trains is gone
    except BaseException as error:
        notes = ", ".join(getattr(error, "__notes__", []))
        summary = f"{type(error).__name__}: {error}" + (f" ({notes})" if notes else "")
        pipe.send(("error", f"{summary}\n{traceback.format_exc()}"))
        os._exit(1)
    finally:
        if lane is not None:
            lane.close()


def _pack(content: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(plain(content), stream)
    return stream.getvalue()


def _unpack(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)
