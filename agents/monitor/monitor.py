"""Write what happens in training for TensorBoard, without touching the training.

Nothing here draws a random number, changes a parameter or stops a run. One run is one
directory, written by one process, with each chart's steps strictly rising, also over a resume.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from entity_encoder.agents.monitor.describe import describe_run, settings
from entity_encoder.agents.monitor.purge import purge_files
from entity_encoder.agents.monitor.tags import RESULTS, custom_layout
from entity_encoder.agents.video import encode_gif, to_frame

__all__ = ["Monitor"]

logger = logging.getLogger(__name__)


class Monitor:
    """A run's TensorBoard log.

    Args:
        run_dir: The directory of the run; made when missing.
        resume_step: The first step that will be logged again. Everything logged at this step
            or later belongs to a future that did not happen, and disappears from the charts.
            After a checkpoint written at step ``s``, that is ``s + 1``. None starts afresh:
            an earlier log in the same directory disappears whole.
        enabled: False makes every method do nothing. Of several processes only rank 0 writes,
            whatever this says.
        flush_seconds: At most this long until a number is on the disk.
    """

    def __init__(
        self,
        run_dir: str | Path,
        *,
        resume_step: int | None = None,
        enabled: bool = True,
        flush_seconds: int = 30,
    ) -> None:
        self.run_dir = Path(run_dir)
        self._first_step = resume_step or 0
        self._last_step: dict[str, int] = {}
        self._warned: set[str] = set()
        self._has_hparams = False
        self._writer: Any = None
        if enabled and _is_first_process():
            self._open(flush_seconds)

    @property
    def enabled(self) -> bool:
        """Whether anything is written."""
        return self._writer is not None

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Log one number; see :meth:`scalars`."""
        self.scalars({tag: value}, step)

    def scalars(self, values: Mapping[str, Any], step: int) -> None:
        """Log numbers that belong to one step.

        Args:
            values: ``{tag: number}``; tensors stay on their device until here and come over in
                one transfer. None is left out, NaN is kept and marked by TensorBoard.
            step: Environment steps learned from so far.
        """
        if self.enabled:
            from entity_encoder.agents.monitor.protos import scalar_value, to_floats

            self._write([scalar_value(k, v) for k, v in to_floats(values).items()], step)

    def histogram(self, tag: str, array: Any, step: int) -> None:
        """Log the distribution of an array or tensor of any shape.

        NaN and infinite values are left out of the picture and counted in the scalar
        ``non_finite/<tag>``; an array without a finite value gives an empty histogram.
        """
        if self.enabled:
            from entity_encoder.agents.monitor import protos

            finite, others = protos.split_non_finite(array)
            count = protos.scalar_value(f"non_finite/{tag}", others)
            self._write([protos.histogram_value(tag, finite), count], step)

    def image(self, tag: str, picture: Any, step: int) -> None:
        """Log one picture: a PIL image, or an array (H, W, 3) of bytes or floats in [0, 1]."""
        if self.enabled:
            from entity_encoder.agents.monitor.protos import image_value, png

            self._write([image_value(tag, *png(picture))], step)

    def video(self, tag: str, frames: Sequence[Any], step: int, *, fps: float = 15.0) -> None:
        """Log a moving picture, played in the images tab.

        Args:
            tag: The name of the picture.
            frames: Pictures of one size, in order; none at all logs nothing.
            step: Environment steps learned from so far.
            fps: Frames per second.
        """
        if self.enabled and len(frames):
            from entity_encoder.agents.monitor.protos import image_value

            height, width = to_frame(frames[0]).shape[:2]
            self._write([image_value(tag, encode_gif(frames, fps=fps), height, width)], step)

    def embedding(
        self, tag: str, vectors: Any, labels: Mapping[str, Sequence[Any]], step: int
    ) -> None:
        """Write vectors for the projector, in place of those that the tag had before.

        Args:
            tag: Name of the table.
            vectors: (K, D).
            labels: K texts in each column.
            step: Environment steps learned from so far.
        """
        if self.enabled:
            from entity_encoder.agents.monitor.projector import write_projector

            self._guard(write_projector, self.run_dir, tag, vectors, labels, step)

    def text(self, tag: str, markdown: str, step: int = 0) -> None:
        """Log a text; Markdown is rendered."""
        if self.enabled:
            from torch.utils.tensorboard.summary import text

            self._write(text(tag, markdown).value, step)

    def hparams(
        self, values: Mapping[str, Any], metrics: Sequence[str] = (), step: int = 0
    ) -> None:
        """Show the run's settings in the HPARAMS tab, without making another run of it.

        Args:
            values: Settings of any type; lists, dicts and the like are shown as text.
            metrics: Scalar tags whose last value stands beside them.
            step: The step at which these settings came into force.
        """
        if self.enabled:
            from entity_encoder.agents.monitor.protos import hparams_start

            self._write(hparams_start(values, metrics, self.run_dir.name), step)
            self._has_hparams = True

    def describe(self, config: Any, step: int = 0) -> None:
        """Log what the run is made of: a page in the text tab, and the HPARAMS tab.

        Args:
            config: A dataclass or mapping of settings.
            step: The step at which they came into force.
        """
        if self.enabled:
            self.text("run", describe_run(config), step)
            self.hparams(settings(config), RESULTS, step)

    def flush(self) -> None:
        """Put everything on the disk now, as at a checkpoint."""
        if self.enabled:
            self._guard(self._writer.flush)

    def close(self, *, success: bool = True) -> None:
        """Flush and close. Closing twice, and logging afterwards, does nothing.

        Args:
            success: What the HPARAMS tab says about how the run ended.
        """
        if not self.enabled:
            return
        if self._has_hparams:
            from entity_encoder.agents.monitor.protos import hparams_end

            self._write([hparams_end(success=success)], max(self._last_step.values()))
        if self.enabled:
            self._guard(self._writer.close)
        self._writer = None

    def __enter__(self) -> Monitor:
        """Use the monitor in a with block, which closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; an exception marks the run as failed."""
        self.close(success=error is None)

    def _open(self, flush_seconds: int) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import custom_scalars

        earlier = sorted(self.run_dir.glob("events.out.tfevents.*"))
        if self._first_step:
            self._guard(purge_files, earlier, self._first_step)
        _wait_until_names_sort_later(earlier)
        self._writer = SummaryWriter(
            str(self.run_dir),
            purge_step=self._first_step if earlier else None,
            flush_secs=flush_seconds,
            max_queue=100,
        )
        self._write(custom_scalars(custom_layout()).value, self._first_step)

    def _write(self, values: Sequence[Any], step: int) -> None:
        """Put values into one event: fewer bytes and less time than one event for each."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        fresh = [value for value in values if self._advances(value.tag, int(step))]
        if fresh:
            self._guard(self._writer.file_writer.add_summary, Summary(value=fresh), int(step))

    def _advances(self, tag: str, step: int) -> bool:
        """Note the step of a tag; refuse, and say so once, one that is not after the last."""
        if step > self._last_step.get(tag, self._first_step - 1):
            self._last_step[tag] = step
            return True
        if tag not in self._warned:
            self._warned.add(tag)
            logger.warning("%s at step %d is not after the last one; left out", tag, step)
        return False

    def _guard(self, call: Any, *arguments: Any) -> None:
        """Lose the log rather than the run when the disk fails."""
        try:
            call(*arguments)
        except OSError as error:
            logger.error("TensorBoard log in %s stops here: %s", self.run_dir, error)
            self._writer = None


def _is_first_process() -> bool:
    """Tell rank 0 by its process group, or by torchrun's variable before there is one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    return os.environ.get("RANK", "0") in ("", "0")


def _wait_until_names_sort_later(earlier: Sequence[Path]) -> None:
    """Let the second pass in which the newest event file was made.

    TensorBoard reads a run's files in the order of their names, which begin with that second;
    two in one second could be read the wrong way round, and the purge with them.
    """
    for path in earlier[-1:]:
        made = path.name.split(".")[3]
        while made.isdigit() and 0 <= int(made) - int(time.time()) <= 1:
            time.sleep(0.02)
