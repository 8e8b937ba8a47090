"""Start TensorBoard on a run, on a port that is free, and say where it is."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from entity_encoder.agents.curves import find_runs

__all__ = ["TensorBoard", "free_port"]

USUAL_PORT = 6006
ADDRESS = re.compile(r"at (http://\S+)")


class TensorBoard:
    """TensorBoard as a process of its own, stopped at the end of the with block.

    Args:
        run_dir: A run, or a directory with runs in it.
        port: Where to listen; None takes 6006 or, when that is in use, any free one.
        host: The interface; "0.0.0.0" lets other machines in.

    Attributes:
        url: Its address.

    Raises:
        ValueError: Nothing was logged there, or the port is in use.
        OSError: TensorBoard did not start; its output is in the message.
    """

    def __init__(
        self, run_dir: str | Path, *, port: int | None = None, host: str = "localhost"
    ) -> None:
        find_runs([run_dir])
        port = free_port() if port is None else _checked(port)
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(run_dir)]
        command += ["--host", host, "--port", str(port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.url = self._wait_for_address()

    def wait(self) -> None:
        """Serve until TensorBoard ends, or Ctrl-C."""
        if self._process.stderr is not None:
            self._process.stderr.read()  # a full pipe would stop it
        self._process.wait()

    def close(self) -> None:
        """Stop it."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def __enter__(self) -> TensorBoard:
        """Use it in a with block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it, whatever happened."""
        self.close()

    def _wait_for_address(self) -> str:
        """Read what it prints until its address stands there."""
        said = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            said.append(line.strip())
            found = ADDRESS.search(line)
            if found:
                return found.group(1)
        self.close()
        raise OSError(f"TensorBoard did not start: {said[-1] if said else 'it said nothing'}")


def free_port(usual: int = USUAL_PORT) -> int:
    """Return the usual port, or any free one when something listens there."""
    return usual if _is_free(usual) else 0  # 0 lets the system choose


def _checked(port: int) -> int:
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be between 0 and 65535, got {port}")
    if port and not _is_free(port):
        raise ValueError(
            f"port must be free, got {port}, which is in use; leave it out to find one"
        )
    return port


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("localhost", port))
        except OSError:
            return False
    return True
