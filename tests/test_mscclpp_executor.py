"""What `benchmarks/mscclpp_executor` does without a GPU: its files, its reference, its judgement and its errors."""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mscclpp_executor import __main__ as program
from mscclpp_executor import build, cases, ranks, reference
from mscclpp_executor.rank import ExecutorError

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


def test_a_rank_that_ends_early_or_fails_is_an_error(tmp_path: Path) -> None:
    """The cases before are judged, those after are not."""
    right, stage = ("result", []), ("stage", "setting up")
    lost = judged(tmp_path, [stage, right, right], [stage, right])
    assert lost == [("right", ""), ("error", "rank 1: the process ended while setting up")]
    assert judged(tmp_path, [("error", "open: no")], [stage]) == [("error", "rank 0: open: no")]


def test_silence_is_a_timeout() -> None:
    """With what each rank was doing."""
    case = reference.Case("a", "a.json", "allgather", 2, "in-place", 0, 16, 32, "int32", 5, 0, "right")
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(2)]
    for _, end in pipes:
        end.send(("stage", "in the first call"))
    [(_, outcome, detail)] = ranks.collect([case], [pipe for pipe, _ in pipes], 0.01)
    assert (outcome, detail) == ("timeout", "ranks are in the first call, in the first call")


def test_a_timeout_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself and with more time, unless it was expected."""
    hangs = reference.Case("a", "a.json", "allgather", 2, "in-place", 0, 16, 32, "int32", 5, 0, "timeout")
    calls = []

    def run_batch(library: str, some: list[reference.Case], seconds: float) -> list[ranks.Outcome]:
        calls.append((library, len(some), seconds))
        return [ranks.Outcome(some[0], "timeout" if seconds == 1 else "right", "")]

    monkeypatch.setattr(program, "run_batch", run_batch)
    works = replace(hangs, expected="right")
    found = program.run_cases(Path("x"), [works, works, hangs], 1)
    assert [outcome for _, outcome, _ in found] == ["right", "right", "timeout"]
    assert calls == [("x", 2, 1), ("x", 1, 3), ("x", 1, 1), ("x", 1, 3), ("x", 1, 1)]


def checkout(folder: Path, version: str) -> Path:
    """What is looked at before anything is compiled."""
    (folder / "src" / "core" / "executor").mkdir(parents=True)
    (folder / "VERSION").write_text(f"{version}\n")
    return folder


def test_what_the_build_needs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout, its version, nlohmann's header, and a compiler."""
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    json = tmp_path / "json"
    with pytest.raises(build.BuildError, match=r"is not a checkout of MSCCL\+\+"):
        build.build(tmp_path, None, tmp_path)
    with pytest.raises(build.BuildError, match=r"has version 0\.8\.0; expected 0\.9\.0: git checkout v0\.9\.0"):
        build.build(checkout(tmp_path / "old", "0.8.0"), None, tmp_path)
    new = checkout(tmp_path / "new", "0.9.0")
    with pytest.raises(build.BuildError, match=r"no nlohmann/json\.hpp in .*/json: name its folder with --json"):
        build.build(new, json, tmp_path)
    (json / "nlohmann").mkdir(parents=True)
    (json / "nlohmann" / "json.hpp").touch()
    with pytest.raises(build.BuildError, match="there is no nvcc: install the CUDA toolkit, or set CUDA_HOME"):
        build.build(new, json, tmp_path)


def test_the_build_compiles_what_is_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the GPU's compiler and the host's, and not the sources that need other libraries."""
    compiler = tmp_path / "bin" / "nvcc"
    compiler.parent.mkdir()
    compiler.write_text('#!/bin/sh\necho "$@" >> "$LOG"\nwhile [ "$1" != -o ]; do shift; done\necho > "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("LOG", str(log := tmp_path / "log"))
    mscclpp = checkout(tmp_path / "mscclpp", "0.9.0")
    for name in ("env.cpp", "numa.cc", "executor/kernel.cu", "CMakeLists.txt"):
        (mscclpp / "src" / "core" / name).touch()
    for name, text in (("nlohmann/json.hpp", ""), ("mscclpp/version.hpp.in", "@MSCCLPP_MINOR@ @GIT_HASH@")):
        (mscclpp / "include" / name).parent.mkdir(parents=True, exist_ok=True)
        (mscclpp / "include" / name).write_text(text)
    out = tmp_path / "out"
    library = build.build(mscclpp, mscclpp / "include", out)
    assert library.exists()
    assert (out / "include" / "mscclpp" / "version.hpp").read_text() == "9 v0.9.0"
    assert {path.name for path in out.glob("*.o")} == {"shim.cc.o", "env.cpp.o", "kernel.cu.o"}
    assert len(log.read_text().splitlines()) == 4
    assert [("-arch" in call, "kernel.cu " in call) for call in log.read_text().splitlines()].count((True, True)) == 1
    assert build.build(mscclpp, mscclpp / "include", out) == library
    assert len(log.read_text().splitlines()) == 4
    compiler.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    library.unlink()
    with pytest.raises(build.BuildError, match=r"(?s)this command failed:.*no such thing"):
        build.build(mscclpp, mscclpp / "include", out)


@pytest.mark.parametrize("driver", [True, False])
def test_the_program_says_what_is_missing(driver: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line."""

    def load_driver() -> None:
        if not driver:
            raise ExecutorError("there is no CUDA driver: libcuda.so.1")

    monkeypatch.setattr(program, "load_driver", load_driver)
    monkeypatch.setattr(sys, "argv", ["mscclpp_executor", "--mscclpp", str(tmp_path)])
    with pytest.raises(SystemExit, match="is not a checkout" if driver else "there is no CUDA driver"):
        program.main()
