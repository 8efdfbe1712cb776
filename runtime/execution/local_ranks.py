"""Local processes, one per rank: their results, or the first failure.

A supervisor imports the heavy modules once and forks a process per rank.  It never runs the caller's main module, so
scripts need no ``if __name__ == "__main__"``; as it lives in a session of its own, killing that leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ... import errors
from ...errors import ColloptError, ProgramError, UnsupportedError

Result = TypeVar("Result")

BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from collopt.runtime.execution.local_ranks import supervise; "
    "supervise(sys.argv[2], int(sys.argv[3]))"
)
GRACE_PERIOD_S = 5.0  # The supervisor gets this long after the deadline to report before it is killed
POLL_S = 0.1  # So often a caller that waits for updates looks whether the supervisor, which would end them, still runs
FAILURE_WAIT_S = 0.3
"""How long to wait for further failures after the first: a rank that died explains more than its peers' errors."""
IMPORTABLE = "; define functions such as the traffic of a collective in a module that they can import"
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

_calls_begun: list[Any] = []
_listener: ContextVar[Listener | None] = ContextVar("collopt_rank_listener", default=None)


class _Failure(NamedTuple):
    """A failure on one rank; a rank that died comes before one that raised."""

    raised: bool
    arrival: int
    kind: str
    message: str


def run_ranks(
    task: Callable[[int, str], Result],
    num_ranks: int,
    *,
    timeout_s: float,
    preload: Sequence[str] = (),
    on_update: Listener | None = None,
) -> list[Result]:
    """Run ``task(rank, folder)`` in one process per rank, within `timeout_s` seconds."""
    try:
        pickled = pickle.dumps(task)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise UnsupportedError(f"the local ranks cannot start: {_describe(error)}{IMPORTABLE}") from error
    with tempfile.TemporaryDirectory(prefix="collopt-", ignore_cleanup_errors=True) as folder:
        deadline = time.time() + timeout_s
        job = {"ranks": num_ranks, "deadline": deadline, "timeout_s": timeout_s, "preload": list(preload)}
        Path(folder, "job.json").write_text(json.dumps(job), encoding="utf-8")
        Path(folder, "task.pickle").write_bytes(pickled)
        Path(folder, "shared").mkdir()
        code = _run_supervisor(folder, timeout_s + GRACE_PERIOD_S, on_update or (lambda _: None))
        outcome = Path(folder, "outcome.pickle")
        if not outcome.exists():
            log = Path(folder, "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            reason = log[-1] if log else f"exit status {code}"
            raise ProgramError(f"the {num_ranks} local ranks gave no answer within {timeout_s:g} s ({reason})")
        state, content = pickle.loads(outcome.read_bytes())  # noqa: S301 - written by our own supervisor.
    if state == "done":
        return content  # type: ignore[no-any-return]
    kind, message = content
    raise (getattr(errors, kind) if kind in errors.__all__ else ProgramError)(message)


def _run_supervisor(folder: str, timeout_s: float, on_update: Listener) -> int | None:
    """Run the supervisor; kill it with all ranks at the timeout."""
    updates, there = multiprocessing.Pipe(duplex=False)
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES}
    environment["OMP_NUM_THREADS"] = "1"
    with Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOTSTRAP, json.dumps(sys.path), folder, str(there.fileno())],
            pass_fds=[there.fileno()],
            stdin=subprocess.PIPE,  # Held open: its end tells the supervisor that this process is gone.
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    there.close()
    try:
        return _wait_for(process, updates, timeout_s, on_update)
    finally:
        updates.close()
        if process.returncode != 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.stdin is not None  # It is a pipe.
        process.stdin.close()
        process.wait()


def _wait_for(
    process: subprocess.Popen[bytes], updates: Connection, timeout_s: float, on_update: Listener
) -> int | None:
    """Forward updates of the ranks until the supervisor ends; return its status, or None at the timeout."""
    deadline = time.monotonic() + timeout_s
    # A rank that outlives the supervisor would keep the pipe open.
    while process.poll() is None or updates.poll():
        if time.monotonic() > deadline:
            return None
        if updates.poll(POLL_S):
            try:
                update = updates.recv()
            except EOFError:
                break
            on_update(update)
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def supervise(folder: str, updates: int) -> None:
    """Start the ranks, wait for their results and write the outcome; the main function of the supervisor."""
    job = json.loads(Path(folder, "job.json").read_text(encoding="utf-8"))
    outcome: tuple[str, object]
    try:
        for module in job["preload"]:
            importlib.import_module(module)
        task = pickle.loads(Path(folder, "task.pickle").read_bytes())  # noqa: S301 - written by our own parent.
    except Exception as error:  # noqa: BLE001 - everything has to reach the caller.
        lacking = isinstance(error, (AttributeError, ImportError))
        kind = "UnsupportedError" if lacking else type(error).__name__
        outcome = ("failed", (kind, f"the local ranks could not start: {_describe(error)}{IMPORTABLE * lacking}"))
    else:
        try:
            outcome = _Ranks(task, job, str(Path(folder, "shared")), Connection(updates, readable=False)).outcome()
        except SystemExit:
            # The caller is gone, so nobody else will clean up.
            shutil.rmtree(folder, ignore_errors=True)
            raise
    temporary = Path(folder, "outcome.part")
    temporary.write_bytes(pickle.dumps(outcome))
    temporary.replace(Path(folder, "outcome.pickle"))


class _Ranks:
    """The rank processes, their results and failures."""

    def __init__(self, task: Callable[[int, str], Any], job: dict[str, Any], folder: str, updates: Connection) -> None:
        self.deadline: float = job["deadline"]
        self.timeout_s: float = job["timeout_s"]
        self.results: dict[int, Any] = {}
        self.failures: list[_Failure] = []
        self.processes = []
        self.pipes: list[Connection] = []
        context = multiprocessing.get_context("fork")
        self.calls = [context.RawValue("q", 0) for _ in range(job["ranks"])]
        for rank in range(job["ranks"]):
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=_run_task, args=(task, rank, folder, there, updates, self.calls[rank]), daemon=True
            )
            process.start()
            there.close()
            self.processes.append(process)
            self.pipes.append(here)

    def outcome(self) -> tuple[str, object]:
        """Wait for all ranks or a failure, then end all processes."""
        try:
            while self._unfinished() and not self.failures:
                self._wait_for_results(self.deadline)
            until = min(time.time() + FAILURE_WAIT_S, self.deadline)
            while self.failures and self._unfinished() and time.time() < until:
                self._wait_for_results(until)
        finally:
            for process in self.processes:
                process.kill()
            for process in self.processes:
                process.join()
        if self.failures:
            first = min(self.failures)
            return "failed", (first.kind, first.message)
        return "done", [self.results[rank] for rank in range(len(self.processes))]

    def _unfinished(self) -> list[int]:
        return [rank for rank in range(len(self.processes)) if rank not in self.results]

    def _wait_for_results(self, until: float) -> None:
        """Wait for the next results and failures."""
        waiting = self._unfinished()
        # Standard input ends when the process that wants the results ends.
        sources = [item for rank in waiting for item in (self.pipes[rank], self.processes[rank].sentinel)]
        ready = wait([*sources, sys.stdin.fileno()], max(0.0, until - time.time()))
        if sys.stdin.fileno() in ready:
            raise SystemExit(1)
        if not ready and not self.failures:
            message = f"ranks {waiting} did not finish within {self.timeout_s:g} s{self._stragglers(waiting)}"
            self.failures.append(_Failure(True, len(self.failures), "ProgramError", message))
        for rank in waiting:
            if self.pipes[rank] in ready or self.processes[rank].sentinel in ready:
                self._receive(rank)

    def _stragglers(self, waiting: list[int]) -> str:
        """Name the ranks that began fewer calls of plans than others, which wait for them."""
        begun = [self.calls[rank].value for rank in waiting]
        late = [rank for rank, calls in zip(waiting, begun, strict=True) if calls < max(begun)]
        return f"; ranks {late} are late: they began {min(begun)} calls, others {max(begun)}" if late else ""

    def _receive(self, rank: int) -> None:
        try:
            # Poll first: a rank that was killed has ended without a word.
            answer = self.pipes[rank].recv() if self.pipes[rank].poll() else None
        except EOFError:
            answer = None
        if answer is None:
            self.processes[rank].join()
            answer = ("died", "ProgramError", _exit_reason(self.processes[rank].exitcode))
        self.results[rank] = None
        if answer[0] == "done":
            self.results[rank] = answer[1]
        else:
            raised = answer[0] == "failed"
            self.failures.append(_Failure(raised, len(self.failures), answer[1], f"rank {rank}: {answer[2]}"))


def _exit_reason(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"the process was killed by {signal.Signals(-code).name}"
    return f"the process ended with exit status {code} before it was done"


def count_call() -> None:
    """Count a call of a plan that begins on this rank, so that the supervisor can tell who is late."""
    for counter in _calls_begun:
        counter.value += 1


def _run_task(
    task: Callable[[int, str], Any], rank: int, folder: str, pipe: Connection, updates: Connection, calls: Any
) -> None:
    """Run the task in the process of a rank."""
    _calls_begun[:] = [calls]
    try:
        with listening(updates.send):
            answer: tuple[Any, ...] = ("done", task(rank, folder))
    except Exception as error:  # noqa: BLE001 - everything has to reach the caller.
        answer = ("failed", type(error).__name__, _describe(error))
    pipe.send(answer)


def _describe(error: Exception) -> str:
    if isinstance(error, ColloptError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"


Listener = Callable[[Any], object]


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Send updates within the context to `listener`; None ignores them."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def notify(update: object) -> None:
    """Send a picklable update to the listener of this rank."""
    if listener := _listener.get():
        listener(update)


@contextmanager
def out_of_memory_as_error(what: str, remedy: str) -> Iterator[None]:
    """Raise `UnsupportedError` if tensors do not fit in memory, for which torch has no exception on CPUs."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("memory|overflow|size", str(error)):
            raise
        raise UnsupportedError(f"there is not enough memory for {what} on this rank; give {remedy}") from error
