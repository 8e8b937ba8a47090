import os
import signal
import threading

import pytest

from entity_encoder.agents.interruption import interruptible


def test_sigterm_interrupts_like_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), interruptible():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGTERM)
    inside: list[object] = []

    def work() -> None:
        with interruptible():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]
