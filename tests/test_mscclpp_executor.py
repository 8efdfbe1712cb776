"""What `benchmarks/mscclpp_executor` does without a GPU: its files, its reference, its judgement and its errors."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mscclpp_executor import cases, ranks, reference
from mscclpp_executor import rank as own_rank

from collopt.errors import ColloptError
from collopt.runtime.mscclpp.code import layout_of
from collopt.runtime.mscclpp.interpret import _Machine, interpret_mscclpp
from collopt.runtime.mscclpp.reader import read_mscclpp

SLICES = cases.UNIT // 4
"""Of the interpreter, so that each of its numbers stands for the four bytes of an int32."""


@pytest.mark.parametrize("placement", ["out-of-place", "in-place"])
@pytest.mark.parametrize("collective", cases.COLLECTIVES)
def test_the_reference_is_what_the_interpreter_computes(tmp_path: Path, collective: str, placement: str) -> None:
    """Of the same data, by a file for rings of four."""
    if (collective, placement) == ("all_to_all", "in-place"):
        return
    found, _ = cases.write_cases(tmp_path, f"ring4-{collective}-{placement}-auto")
    case = replace(found[0], dtype="int32")
    plan = read_mscclpp(case.plan)
    assert (case.ranks, case.placement == "in-place") == (plan.num_ranks, plan.in_place)
    machine = _Machine(plan, layout_of(plan), SLICES, seed=0)
    inputs = reference.inputs_of(case, 3)
    for rank, memory in enumerate(machine.memory):
        memory.arrays["input"][:] = inputs[rank].view(np.int32)
        machine.inputs[rank] = memory.arrays["input"].copy()
    machine.run()
    wanted = [reference.expected_output(case, inputs, rank) for rank in range(case.ranks)]
    assert [rank for rank, data in enumerate(wanted) if data is None] == ([0, 1, 3] if collective == "reduce" else [])
    for memory, data in zip(machine.memory, wanted, strict=True):
        if data is not None:
            assert memory.arrays["output"].astype(np.int32).tobytes() == data.tobytes()


@pytest.mark.parametrize("dtype", reference.TYPES)
def test_sums_are_exact_in_every_type(dtype: str, tmp_path: Path) -> None:
    """Of eight ranks: as numbers, the sum is that of the numbers."""
    found, _ = cases.write_cases(tmp_path, "ring2-allreduce-out-of-place")
    case = replace(found[1], dtype=dtype, ranks=8)
    inputs = reference.inputs_of(case, 0)
    assert [data.nbytes for data in inputs] == [case.send_bytes] * 8
    numbers = np.array([reference.numbers_of(data, dtype) for data in inputs])
    assert (numbers.min() < 0) is np.bool_(not dtype.startswith("uint"))
    assert np.array_equal(reference.numbers_of(reference.expected_output(case, inputs, 0), dtype), numbers.sum(axis=0))


def test_files_and_sizes_of_cases(tmp_path: Path) -> None:
    """Each file runs in the interpreter, and is called with sizes that it is for."""
    found, refused = cases.write_cases(tmp_path, "ring2-")
    assert refused == []
    assert len({case.name for case in found}) == len(found) == 22
    assert {case.dtype for case in found} == set(reference.TYPES)
    assert {path.stem for path in tmp_path.iterdir()} == {Path(case.plan).stem for case in found}
    for case in found:
        plan = read_mscclpp(case.plan)
        message = case.receive_bytes if case.collective == "allgather" else case.send_bytes
        assert plan.min_bytes <= message <= plan.max_bytes
        assert case.send_bytes % plan.gpus[0].input_chunks == case.receive_bytes % plan.gpus[0].output_chunks == 0
        assert interpret_mscclpp(case.plan, interleavings=1).puts > 0


def test_controls_are_wrong(tmp_path: Path) -> None:
    """The interpreter finds it too, except where the file is right for another root."""
    found, _ = cases.write_cases(tmp_path, "control")
    assert [case.expected for case in found] == ["wrong", "wrong", "timeout"]
    interpret_mscclpp(found[0].plan, interleavings=1)
    for case in found[1:]:
        with pytest.raises(ColloptError):
            interpret_mscclpp(case.plan, interleavings=1)


def judged(tmp_path: Path, *sent: list[tuple[str, object]]) -> list[tuple[str, str]]:
    """Outcomes and details of two cases whose ranks send this and end."""
    found, _ = cases.write_cases(tmp_path, "ring2-allgather-out-of-place")
    pipes = [multiprocessing.Pipe(duplex=False) for _ in sent]
    for (_, end), messages in zip(pipes, sent, strict=True):
        for message in messages:
            end.send(message)
        end.close()
    return [outcome[1:] for outcome in ranks.collect(found, [pipe for pipe, _ in pipes], 1.0)]


def test_a_case_is_right_where_no_rank_has_a_problem(tmp_path: Path) -> None:
    """And only then."""
    right, wrong = ("result", []), ("result", ["rank 1 call 0: bad"])
    assert judged(tmp_path, [right, right], [right, wrong]) == [("right", ""), ("wrong", "rank 1 call 0: bad")]


class Memory:
    """Stands in for a tensor of bytes on a GPU."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.data = data

    def __getitem__(self, part: slice) -> Memory:
        return Memory(self.data[part])

    def copy_(self, other: Memory, non_blocking: bool) -> None:
        """Copy at once."""
        assert non_blocking
        self.data[:] = other.data

    def data_ptr(self) -> int:
        """Return the address."""
        return int(self.data.ctypes.data)

    def cpu(self) -> Memory:
        """Return itself, as `cuda` does."""
        return self

    cuda = cpu

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the bytes."""
        return self.data


def stand_ins(case: reference.Case, shift: int) -> tuple[Any, Any]:
    """MSCCL++ whose executor writes what rank 0 has to receive, `shift` bytes too far, and torch without a GPU."""
    calls = iter([None, *range(case.calls)])  # The first is captured

    def execute(rank: int, send: int, receive: int, *sizes: Any) -> None:
        number = next(calls)
        assert (rank, *sizes[:2]) == (0, case.send_bytes, case.receive_bytes)
        if number is not None:
            inputs = reference.inputs_of(case, number)
            assert ctypes.string_at(send, case.send_bytes) == inputs[0].tobytes()
            output = reference.expected_output(case, inputs, 0)
            assert output is not None
            ctypes.memmove(receive + shift, output.tobytes(), case.receive_bytes)

    stream = SimpleNamespace(query=lambda: True, cuda_stream=0)
    cuda = SimpleNamespace(
        device_count=lambda: 1, set_device=lambda _: None, Stream=lambda: stream, synchronize=lambda: None,
        stream=lambda _: contextlib.nullcontext(), CUDAGraph=object, graph=lambda *_, **__: contextlib.nullcontext(),
    )  # fmt: skip
    mscclpp = SimpleNamespace(
        CommGroup=lambda **_: SimpleNamespace(communicator=None, barrier=lambda: None),
        Executor=lambda _: SimpleNamespace(execute=execute),
        ExecutionPlan=lambda path, rank: (path, rank),
        DataType=SimpleNamespace(**dict.fromkeys(reference.TYPES)),
    )
    return mscclpp, SimpleNamespace(cuda=cuda, from_numpy=Memory)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("placement", ["out-of-place", "in-place"])
def test_a_rank_notices_what_is_not_right(
    placement: str, shift: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs, inputs and the bytes around buffers are compared, with stand-ins for MSCCL++ and torch."""
    found, _ = cases.write_cases(tmp_path, f"ring2-allgather-{placement}")
    monkeypatch.setattr(own_rank, "load_packages", lambda: stand_ins(found[0], shift))
    executor = own_rank.Executor(0, 2, "lo:127.0.0.1:1")
    buffers = own_rank.Buffers(executor, found[0], 0)
    executor.set_up(found[0], buffers.send, buffers.receive)
    for number in range(found[0].calls):
        buffers.call(number)
    problems = buffers.problems(0)
    assert bool(problems) is bool(shift)
    assert any("bytes differ" in problem for problem in problems) is bool(shift)
    assert any("outside a buffer" in problem for problem in problems) is bool(shift)


def test_packages_that_are_not_there_are_named() -> None:
    """With the link that says how to install them."""
    with pytest.raises(own_rank.ExecutorError, match=r"https://microsoft\.github\.io/mscclpp/"):
        own_rank.load_packages()
