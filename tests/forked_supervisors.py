"""Supervisors of local ranks, forked from one process that has imported torch, which takes two seconds each time.

`tests/runtime/test_local_ranks.py` and tests that start a Python of their own use the real ones.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import IO, Any

import pytest

PRELOAD = [
    "torch",
    "torch.distributed",
    "collopt.runtime.measuring.measure_plans",
    # What ranks and programs would otherwise import one by one, for half a second each: their tasks, and kernels.
    "pytest",
    "hypothesis",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "collopt.cli.app",
    "scipy.linalg",
    "collopt.runtime.all_to_allv.steps",
]


def forking_context() -> Any:
    """Where processes with torch come from: a server, or this process if it is one of them."""
    if multiprocessing.parent_process() is not None:
        return multiprocessing.get_context("fork")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def start(process: Any) -> None:
    """Start a process of `forking_context`; the first one starts the server, which imports torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        process.start()


class ForkedPopen:
    """What `run_ranks` needs of `subprocess.Popen`, for the arguments that it gives."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        pass_fds: Sequence[int],
        stdin: int,
        stdout: IO[bytes],
        stderr: IO[bytes],
        env: Mapping[str, str],
        start_new_session: bool,
    ) -> None:
        assert args[0] == sys.executable
        assert start_new_session
        assert stdin == subprocess.PIPE
        assert stdout is stderr
        source, sink = os.pipe()
        ends = [Connection(fd) for fd in (source, os.dup(stdout.fileno()), os.dup(pass_fds[0]))]
        code, *words = args[args.index("-c") + 1 :]
        context = forking_context()
        inherited = [sink] if context.get_start_method() == "fork" else []
        self.process = context.Process(target=run, args=(code, words[:-1], dict(env), *ends, inherited))
        try:
            start(self.process)
        finally:
            for end in ends:
                end.close()
        self.stdin = os.fdopen(sink, "wb")

    @property
    def pid(self) -> int:
        """Of the supervisor, and of its process group."""
        assert self.process.pid is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self.process.exitcode

    def poll(self) -> int | None:
        """As `returncode`."""
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("supervisor", timeout or 0)
        return self.process.exitcode


class ForkedSubprocess:
    """Stands for the module `subprocess`."""

    PIPE = subprocess.PIPE
    TimeoutExpired = subprocess.TimeoutExpired
    Popen = ForkedPopen


def run(
    code: str,
    words: list[str],
    environment: dict[str, str],
    stdin: Connection,
    log: Connection,
    news: Connection,
    inherited: Sequence[int] = (),
) -> None:
    """Become what ``python -c code words`` would be, with these ends of pipes and without the `inherited` one."""
    os.setsid()
    for fd in inherited:
        os.close(fd)  # The parent's end of standard input, whose end the supervisor waits for.
    os.dup2(stdin.fileno(), 0)
    for number in (1, 2):
        os.dup2(log.fileno(), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the rest of the process
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *words, str(news.fileno())]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(code, names)
