"""Processes that plan, so that the server stays responsive and what takes too long can be stopped."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from threading import Thread

from ...errors import ColloptError
from ...planners import on_stage
from ...schedules import ALL_TO_ALL, ALLGATHER, ALLREDUCE
from ...support.kernels import on_compiling
from ...topologies import dgx_a100
from .answers import Answer, Case, Scenario

INTERVAL = 0.1  # seconds between two reports of progress
MOST = 4  # questions at once, as of several tabs; others wait
IDLE = 2  # processes that wait for questions
COMPILING = "compiling numba kernels, which takes up to a minute, once"
Question = Callable[[Case], Iterable[Answer]]
"""A function of a module, or a partial of one, which another process can call."""
WARM_UP = (ALLGATHER, ALLREDUCE, ALL_TO_ALL)


class Workers:
    """Processes that answer a question each; one more is ready to take the place of one that is stopped."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST)
        self._idle, self._busy = [_Process()], set[_Process]()

    async def answers(self, question: Question, case: Case) -> AsyncGenerator[Answer, None]:
        """Yield the answers to a question about a case, the last perhaps an ``error``; closing this stops the work."""
        async with self._free:
            # The last one that was busy has the plans of the last question.
            current = self._idle.pop() if self._idle else _Process()
            self._busy.add(current)
            try:
                current.send((question, case))
                while (answer := await current.received()) is not None:
                    yield answer
            except BaseException:
                current.gone = True
                raise
            finally:
                self._busy.remove(current)
                if current.gone:
                    current.end()
                else:
                    self._idle.append(current)
            # Not earlier: the first answer needs all that this machine has.
            if len(self._idle) < IDLE:
                self._idle.insert(0, _Process())
            while len(self._idle) > IDLE:
                self._idle.pop(0).end()

    def close(self) -> None:
        """End the processes."""
        for process in (*self._idle, *self._busy):
            process.end()


class _Process:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        # Not forked: threads of the server and of solvers would not be there.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.gone = False

    def send(self, question: tuple[Question, Case]) -> None:
        """Ask something."""
        with suppress(OSError):  # it has gone, which `received` says
            self._pipe.send(question)

    async def received(self) -> Answer | None:
        """Return the next answer, or None after the last."""
        if self.gone:
            return None
        try:
            answer: Answer | None = await asyncio.get_running_loop().run_in_executor(None, self._pipe.recv)
        except (EOFError, OSError):
            self.gone = True
            return {"error": "the process that plans has ended, which happens where memory is short; try a smaller one"}
        return answer

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection) -> None:
    """Answer questions until nobody is there to ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this process
    Thread(target=_end_with_server, daemon=True).start()
    with on_compiling(partial(pipe.send, {"progress": COMPILING})):
        network = dgx_a100(boxes=2)  # loads what most plans need
        for collective in WARM_UP:
            list(Case(Scenario((), collective.name), network).answers())
    with suppress(EOFError, BrokenPipeError):
        while True:
            _answer(pipe, *pipe.recv())


def _end_with_server() -> None:
    """End this process once the server is killed, even within a long plan."""
    if server := multiprocessing.parent_process():
        server.join()
        os._exit(1)


def _answer(pipe: Connection, question: Question, case: Case) -> None:
    say = _Progress(pipe)
    try:
        with on_stage(say.stage, say.count, say.text), on_compiling(partial(say.stage, COMPILING)):
            for answer in question(case):
                pipe.send(answer)
    except ColloptError as error:
        pipe.send({"error": str(error)})
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the page must say so and go on
        pipe.send({"error": f"this is a bug of collopt, please report it: {type(error).__name__}: {error}"})
    pipe.send(None)


class _Progress:
    """Reports what is done, not too often."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._stage, self._last = pipe, "", time.monotonic()

    def stage(self, name: str) -> None:
        """Name what has begun."""
        self._stage = name
        self._say()

    def count(self, done: int, total: int) -> None:
        """Say how much of it is done."""
        self._say(share=done / total)

    def text(self, text: str) -> None:
        """Say how far it is in words."""
        self._say(text)

    def _say(self, text: str = "", **figures: float) -> None:
        if time.monotonic() - self._last >= INTERVAL:
            self._last = time.monotonic()
            with suppress(OSError):
                self._pipe.send({"progress": ", ".join(filter(None, (self._stage, text))), **figures})
