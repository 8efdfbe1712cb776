"""One rank: makes the calls of its cases by MSCCL++'s Python package, and checks every byte."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .reference import Bytes, Case, expected_output, inputs_of

VERSION = "0.9.0"
HOW = "https://microsoft.github.io/mscclpp/quickstart.html#install-from-source-python-module"
GUARD = 4096
"""Bytes before and after every buffer that nobody may write to."""
GUARD_VALUE, BLANK_VALUE = 0xC3, 0xA5
POLL_S = 5e-5


class ExecutorError(Exception):
    """MSCCL++ or torch is not there, or of another version."""


def load_packages() -> tuple[Any, Any]:
    """Import MSCCL++ and torch, installed by their own instructions; `ExecutorError` without them or a CUDA device."""
    try:
        import mscclpp
        import torch
    except ImportError as error:
        raise ExecutorError(f"{error}; install mscclpp {VERSION} by {HOW}, and torch with CUDA") from error
    version = str(mscclpp.__version__)
    if version.split("+", maxsplit=1)[0] != VERSION:
        raise ExecutorError(f"mscclpp is {version}; install {VERSION} by {HOW}")
    if not torch.cuda.is_available():
        raise ExecutorError("there is no CUDA device that torch can see")
    return mscclpp, torch


class Executor:
    """MSCCL++'s executor for one rank; memory is torch's, of bytes."""

    def __init__(self, rank: int, ranks: int, address: str) -> None:
        self.mscclpp, self.torch = load_packages()
        self.rank, devices = rank, self.torch.cuda.device_count()
        self.torch.cuda.set_device(0 if devices < ranks else rank)
        self.group = self.mscclpp.CommGroup(interfaceIpPortTrio=address, rank=rank, size=ranks)
        self.executor = self.mscclpp.Executor(self.group.communicator)
        self.stream = self.torch.cuda.Stream()
        self.plans: dict[str, Any] = {}
        self.kept: list[Any] = []  # Memory that MSCCL++ has registered stays, for as long as the process lives

    def allocate(self, data: Bytes) -> Any:
        """Allocate memory on the GPU that holds this data."""
        memory = self.torch.from_numpy(data.copy()).cuda()
        self.kept.append(memory)
        self.torch.cuda.synchronize()
        return memory

    def copy(self, target: Any, source: Any) -> None:
        """Copy on the stream."""
        with self.torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)

    def read(self, source: Any) -> Bytes:
        """Copy to the host, and wait."""
        self.wait()
        data: Bytes = source.cpu().numpy()
        return data

    def execute(self, case: Case, send: Any, receive: Any) -> None:
        """Call MSCCL++'s executor on the stream."""
        if case.plan not in self.plans:
            self.plans[case.plan] = self.mscclpp.ExecutionPlan(case.plan, self.rank)
        self.executor.execute(
            self.rank, send.data_ptr(), receive.data_ptr(), case.send_bytes, case.receive_bytes,
            getattr(self.mscclpp.DataType, case.dtype), self.plans[case.plan], self.stream.cuda_stream,
        )  # fmt: skip

    def set_up(self, case: Case, send: Any, receive: Any) -> None:
        """Set up channels and memory, as every first call does, but launch nothing."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream, capture_error_mode="relaxed"):
            self.execute(case, send, receive)

    def wait(self) -> None:
        """Wait for the stream without keeping a processor busy."""
        while not self.stream.query():
            time.sleep(POLL_S)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.group.barrier()


class Buffers:
    """The memory of a case: its buffers with guards, the data of all calls, and room for all outputs."""

    def __init__(self, executor: Executor, case: Case, rank: int) -> None:
        self.executor, self.case = executor, case
        self.guarded: list[tuple[Any, int]] = []
        if case.placement == "in-place":
            memory = self._guarded(max(case.send_bytes, case.receive_bytes))
            first = rank * case.send_bytes if case.collective == "allgather" else 0
            self.send = memory[first : first + case.send_bytes]
            first = rank * case.receive_bytes if case.collective == "reduce_scatter" else 0
            self.receive = memory[first : first + case.receive_bytes]
        else:
            self.send, self.receive = self._guarded(case.send_bytes), self._guarded(case.receive_bytes)
        self.staged = [executor.allocate(inputs_of(case, call)[rank]) for call in range(case.calls)]
        self.blank = executor.allocate(np.full(case.receive_bytes, BLANK_VALUE, np.uint8))
        self.outputs = [executor.allocate(np.zeros(case.receive_bytes, np.uint8)) for _ in range(case.calls)]

    def _guarded(self, size: int) -> Any:
        memory = self.executor.allocate(np.full(size + 2 * GUARD, GUARD_VALUE, np.uint8))
        self.guarded.append((memory, size))
        return memory[GUARD : GUARD + size]

    def call(self, number: int) -> None:
        """Blank the output, copy the input into place, execute, and keep the output: all on the stream."""
        if self.case.placement == "out-of-place":
            self.executor.copy(self.receive, self.blank)
        self.executor.copy(self.send, self.staged[number])
        self.executor.execute(self.case, self.send, self.receive)
        self.executor.copy(self.outputs[number], self.receive)

    def problems(self, rank: int) -> list[str]:
        """Say what is wrong after all calls."""
        case, found = self.case, []
        for number in range(case.calls):
            got = self.executor.read(self.outputs[number])
            wanted = expected_output(case, inputs_of(case, number), rank)
            if wanted is not None and (bad := np.flatnonzero(got != wanted)).size:
                found.append(f"rank {rank} call {number}: {bad.size} of {got.size} bytes differ, the first at {bad[0]}")
        if case.placement == "out-of-place":
            kept = self.executor.read(self.send)
            if not np.array_equal(kept, inputs_of(case, case.calls - 1)[rank]):
                found.append(f"rank {rank}: an out-of-place call changed its input")
        for memory, size in self.guarded:
            around = np.delete(self.executor.read(memory), slice(GUARD, GUARD + size))
            if np.any(around != GUARD_VALUE):
                found.append(f"rank {rank}: bytes outside a buffer were changed")
        return found


def run_rank(rank: int, address: str, cases: list[Case], pipe: Connection) -> None:
    """Run cases in a process of its own, and send stages, results and errors through the pipe."""
    try:
        executor = Executor(rank, cases[0].ranks, address)
        for case in cases:
            pipe.send(("stage", "setting up"))
            buffers = Buffers(executor, case, rank)
            executor.set_up(case, buffers.send, buffers.receive)
            executor.barrier()
            for stage, numbers in (("the first call", range(1)), ("calls back to back", range(1, case.calls))):
                pipe.send(("stage", f"in {stage}"))
                for number in numbers:
                    buffers.call(number)
                executor.wait()
                executor.barrier()
            pipe.send(("result", buffers.problems(rank)))
        executor.barrier()  # nobody leaves before all have sent all results
    except (ExecutorError, RuntimeError, ValueError) as error:
        pipe.send(("error", str(error)))
    os._exit(0)  # MSCCL++ 0.9.0 aborts in a destructor of static data otherwise
