"""What `benchmarks/mscclpp_executor` does without a GPU: its files, its reference, its judgement and its errors."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mscclpp_executor import cases, ranks, reference

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
