"""What a command does in a process that torchrun has started as one of the ranks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..exit_status import CHECK_FAILED
from ..terminal.output import note

GRACE_S = 5.0
"""Torch's own errors, which say more, get this long after the deadline."""


@contextmanager
def as_one_of_the_ranks(what: str, timeout: float) -> Iterator[None]:
    """Keep torch's libraries from talking in between, and end in time; elsewhere do nothing.

    Torch can wait for ever if something else than a rank answers where the ranks are to meet.

    Units: `timeout` in seconds.
    """
    from ...runtime.distributed.processes.torchrun import launch_of_environment

    launch = launch_of_environment()
    if launch is None:
        yield
        return
    # Their errors come as exceptions too, without stack traces; the libraries look at this when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    message = (
        f"rank {launch.rank} of {launch.size} did not finish {what} within {timeout:g} s; check that all ranks "
        f"are started and can reach {launch.meeting_point}, or give a longer --timeout"
    )
    late = threading.Timer(timeout + GRACE_S, _give_up, (message,))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def _give_up(message: str) -> None:
    note(f"collopt: error: {message}")
    os._exit(CHECK_FAILED)
