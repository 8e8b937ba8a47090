"""A headless Chromium, driven through its debugging pipe: look at a page as a person does.

The protocol is https://chromedevtools.github.io/devtools-protocol; over the pipe a message is JSON
with a zero byte behind it, read by Chromium from descriptor 3 and written to descriptor 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["Browser", "find_browser"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# All text of a page, also inside the shadow trees and frames that TensorBoard's tabs are made of.
TEXT = """(() => { const found = []; const walk = node => {
  if (node.nodeType === 3) found.push(node.data);
  if (node.shadowRoot) walk(node.shadowRoot);
  if (node.contentDocument && node.contentDocument.body) walk(node.contentDocument.body);
  for (const child of node.childNodes) if (child.nodeName !== "STYLE") walk(child); };
  if (document.body) walk(document.body); return found.join(" ").replace(/\\s+/g, " "); })()"""


def find_browser() -> str | None:
    """Return where a Chromium is installed, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page in a Chromium of its own, closed at the end of the with block.

    Args:
        size: (width, height) of the window in pixels.
        timeout: Seconds after which waiting is an error.

    Raises:
        FileNotFoundError: No Chromium is installed.
    """

    def __init__(self, size: tuple[int, int] = (1400, 900), *, timeout: float = 60.0) -> None:
        program = find_browser()
        if program is None:
            raise FileNotFoundError(
                "a browser must be installed, found none of "
                f"{', '.join(NAMES)}: apt-get install chromium"
            )
        self.timeout = timeout
        self._profile = tempfile.TemporaryDirectory()
        self._count, self._buffer, self._session = 0, b"", ""
        theirs_in, self._out = map(_above_ten, os.pipe())
        self._in, theirs_out = map(_above_ten, os.pipe())
        command = [
            program,
            "--headless=new",
            "--no-sandbox",  # root, in a container, has no other choice
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--window-size={size[0]},{size[1]}",
            f"--user-data-dir={self._profile.name}",
        ]
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs_in, 3),
            (os.POSIX_SPAWN_DUP2, theirs_out, 4),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        self._pid = os.posix_spawn(program, command, os.environ, file_actions=actions, setsid=True)
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result.

        Raises:
            RuntimeError: The browser refuses it, or ends.
            TimeoutError: It does not answer.
        """
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._count:
            pass  # events, which nobody asked for
        if "error" in answer:
            raise RuntimeError(f"{method} failed: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, url: str) -> None:
        """Go to a page from scratch, also when only the part behind # differs."""
        for address in ("about:blank", url):
            self.send("Page.navigate", url=address)

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression on the page; of a promise, what it keeps."""
        options = {"returnByValue": True, "awaitPromise": True}
        return self.send("Runtime.evaluate", expression=script, **options)["result"].get("value")

    def wait_for(self, *words: str) -> None:
        """Wait until the page holds all of some words.

        Raises:
            TimeoutError: It does not; says what is missing.
        """
        try:
            self.wait_until(TEXT, lambda shown: all(word in shown for word in words))
        except TimeoutError as error:
            missing = [word for word in words if word not in str(self.evaluate(TEXT))]
            raise TimeoutError(f"page must show {missing} within {self.timeout} s") from error

    def wait_until(self, script: str, enough: Callable[[Any], bool]) -> Any:
        """Evaluate an expression until its value is enough, and return it.

        Raises:
            TimeoutError: It never is.
        """
        deadline = time.monotonic() + self.timeout
        while not enough(value := self.evaluate(script)):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"page must change within {self.timeout} s, got {str(value)[-200:]!r}"
                )
            time.sleep(0.25)
        return value

    def screenshot(self) -> bytes:
        """Return what the window shows, as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """End the browser and everything it started."""
        os.close(self._out)
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._in)
        self._profile.cleanup()

    def __enter__(self) -> Browser:
        """Use it in a with block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it, whatever happened."""
        self.close()

    def _receive(self) -> dict[str, Any]:
        """Return the next message."""
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], self.timeout)[0]:
                raise TimeoutError(f"the browser must answer within {self.timeout} s")
            part = os.read(self._in, 1 << 16)
            if not part:
                raise RuntimeError("the browser ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


def _above_ten(descriptor: int) -> int:
    """Move a descriptor away from those that the browser expects."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved
