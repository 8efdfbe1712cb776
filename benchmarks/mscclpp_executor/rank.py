"""One rank: makes the calls of its cases through the library that `build` made, and checks every byte."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from multiprocessing.connection import Connection

import numpy as np

from .reference import TYPES, Bytes, Case, expected_output, inputs_of

GUARD = 4096
"""Bytes before and after every buffer that nobody may write to."""
GUARD_VALUE, BLANK_VALUE = 0xC3, 0xA5
CONNECT_SECONDS = 40


class ExecutorError(Exception):
    """CUDA or MSCCL++ refused something."""


def load_driver() -> None:
    """Load CUDA's driver, to which the library is not linked."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ExecutorError(f"there is no CUDA driver: {error}") from error


class Executor:
    """MSCCL++'s executor for one rank, by the functions of `shim.cc`; each raises `ExecutorError` on failure."""

    def __init__(self, path: str, rank: int, ranks: int, address: str) -> None:
        load_driver()
        self.functions = ctypes.CDLL(path)
        self.functions.judge_error.restype = c_char_p
        self.functions.judge_open.restype = self.functions.judge_allocate.restype = c_void_p
        self.handle = c_void_p(self.functions.judge_open(rank, ranks, c_char_p(address.encode()), CONNECT_SECONDS))
        self._check(bool(self.handle), "open")

    def _check(self, good: bool, what: str) -> None:
        if not good:
            raise ExecutorError(f"{what}: {self.functions.judge_error().decode(errors='replace')}")

    def allocate(self, size: int) -> int:
        """Allocate memory on the GPU, for as long as the process lives."""
        memory = self.functions.judge_allocate(c_size_t(size))
        self._check(bool(memory), "allocate")
        return int(memory)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy on the stream."""
        self._check(
            self.functions.judge_copy(self.handle, *map(c_void_p, (target, source)), c_size_t(size)) == 0, "copy"
        )

    def execute(self, case: Case, send: int, receive: int) -> None:
        """Call MSCCL++'s executor on the stream."""
        buffers = c_void_p(send), c_void_p(receive), c_size_t(case.send_bytes), c_size_t(case.receive_bytes)
        path, number = c_char_p(case.plan.encode()), c_int(TYPES[case.dtype][0])
        self._check(self.functions.judge_execute(self.handle, path, *buffers, number) == 0, "execute")

    def do(self, what: str) -> None:
        """Call "barrier", "wait", "begin_capture" or "drop_capture"."""
        self._check(getattr(self.functions, f"judge_{what}")(self.handle) == 0, what)

    def write(self, target: int, data: Bytes) -> None:
        """Copy from the host, and wait."""
        self.copy(target, data.ctypes.data, data.nbytes)
        self.do("wait")

    def read(self, source: int, size: int) -> Bytes:
        """Copy to the host, and wait."""
        data = np.empty(size, np.uint8)
        self.copy(data.ctypes.data, source, size)
        self.do("wait")
        return data


class Buffers:
    """The memory of a case: its buffers with guards, the data of all calls, and room for all outputs."""

    def __init__(self, executor: Executor, case: Case, rank: int) -> None:
        self.executor, self.case = executor, case
        self.guarded: list[tuple[int, int]] = []
        if case.placement == "in-place":
            self.send = self.receive = self._guarded(max(case.send_bytes, case.receive_bytes))
            self.send += rank * case.send_bytes if case.collective == "allgather" else 0
            self.receive += rank * case.receive_bytes if case.collective == "reduce_scatter" else 0
        else:
            self.send, self.receive = self._guarded(case.send_bytes), self._guarded(case.receive_bytes)
        self.staged = executor.allocate(case.calls * case.send_bytes)
        self.kept = executor.allocate(case.calls * case.receive_bytes)
        self.blank = executor.allocate(case.receive_bytes)
        executor.write(self.blank, np.full(case.receive_bytes, BLANK_VALUE, np.uint8))
        executor.write(self.staged, np.concatenate([inputs_of(case, call)[rank] for call in range(case.calls)]))

    def _guarded(self, size: int) -> int:
        memory = self.executor.allocate(size + 2 * GUARD)
        self.executor.write(memory, np.full(size + 2 * GUARD, GUARD_VALUE, np.uint8))
        self.guarded.append((memory, size))
        return memory + GUARD

    def call(self, number: int) -> None:
        """Blank the output, copy the input into place, execute, and keep the output: all on the stream."""
        case, copy = self.case, self.executor.copy
        if case.placement == "out-of-place":
            copy(self.receive, self.blank, case.receive_bytes)
        copy(self.send, self.staged + number * case.send_bytes, case.send_bytes)
        self.executor.execute(case, self.send, self.receive)
        copy(self.kept + number * case.receive_bytes, self.receive, case.receive_bytes)

    def problems(self, rank: int) -> list[str]:
        """Say what is wrong after all calls."""
        case, found = self.case, []
        for number in range(case.calls):
            inputs = inputs_of(case, number)
            got = self.executor.read(self.kept + number * case.receive_bytes, case.receive_bytes)
            wanted = expected_output(case, inputs, rank)
            if wanted is not None and (bad := np.flatnonzero(got != wanted)).size:
                found.append(f"rank {rank} call {number}: {bad.size} of {got.size} bytes differ, the first at {bad[0]}")
        if case.placement == "out-of-place":
            kept = self.executor.read(self.send, case.send_bytes)
            if not np.array_equal(kept, inputs_of(case, case.calls - 1)[rank]):
                found.append(f"rank {rank}: an out-of-place call changed its input")
        for memory, size in self.guarded:
            around = np.delete(self.executor.read(memory, size + 2 * GUARD), slice(GUARD, GUARD + size))
            if np.any(around != GUARD_VALUE):
                found.append(f"rank {rank}: bytes outside a buffer were changed")
        return found


def run_rank(rank: int, path: str, address: str, cases: list[Case], pipe: Connection) -> None:
    """Run cases in a process of its own, and send stages, results and errors through the pipe."""
    try:
        executor = Executor(path, rank, cases[0].ranks, address)
        for case in cases:
            pipe.send(("stage", "setting up"))
            buffers = Buffers(executor, case, rank)
            executor.do("begin_capture")
            executor.execute(case, buffers.send, buffers.receive)
            executor.do("drop_capture")
            executor.do("barrier")
            for stage, numbers in (("the first call", range(1)), ("calls back to back", range(1, case.calls))):
                pipe.send(("stage", f"in {stage}"))
                for number in numbers:
                    buffers.call(number)
                executor.do("wait")
                executor.do("barrier")
            pipe.send(("result", buffers.problems(rank)))
        executor.do("barrier")  # nobody leaves before all have sent all results
    except ExecutorError as error:
        pipe.send(("error", str(error)))
    os._exit(0)  # MSCCL++ 0.9.0 aborts in a destructor of static data otherwise
