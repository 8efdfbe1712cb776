"""Programs on real tensors, one process per rank."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import runtime_tasks
from runtime_forests import COLLECTIVES, exchange, random_forest, random_schedule, ring_forest, with_step

import collopt
from collopt.errors import MissingDependencyError, ProgramError, UnsupportedError
from collopt.runtime import RunReport, lower, run_local
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import dgx_a100

RING = lower(ring_forest(4), "allgather")


@pytest.mark.parametrize(
    ("elements", "dtype", "slices"), [pytest.param(1, "uint8", 1, marks=pytest.mark.slow), (1000003, "float32", 3)]
)
def test_agrees_with_torch_bit_for_bit(elements: int, dtype: str, slices: int) -> None:
    """Uneven shards."""
    program = lower(random_forest(4, 3, seed=2), "allgather")
    report = run_local(program, elements=elements, dtype=dtype, repeats=2, slices=slices, timeout_s=100)
    assert report.correct == (True,) * 4
    assert report.all_correct
    assert report.seconds > 0
    assert report.total_bytes == 4 * elements * (1 if dtype == "uint8" else 4)


@pytest.mark.parametrize(
    "collective",
    [pytest.param(each, marks=[] if each == "reduce_scatter" else pytest.mark.slow) for each in COLLECTIVES],
)
def test_agrees_with_torch_on_every_collective(collective: str) -> None:
    """Floats in uneven chunks and slices; the report names the collective."""
    program = lower(random_schedule(collective, 4, 3, seed=1, root=3), collective)
    report = run_local(program, elements=1001, dtype="float32", repeats=1, slices=2, timeout_s=100)
    assert report.all_correct
    assert str(report.collective) == collective
    assert report.total_bytes == 1001 * 4 * (4 if collective in ("allgather", "reduce_scatter") else 1)


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "dtype"), [("allreduce", "float32"), ("reduce", "int32")])
def test_sixteen_ranks_run_plans(collective: str, dtype: str) -> None:
    """Two DGX A100 boxes, as planned; `test_sixteen_ranks.py` has every collective, in one set of processes."""
    options = {"root": 5} if collective in ("broadcast", "reduce") else {}
    plan = collopt.plan(dgx_a100(boxes=2), collective, **options)
    report = run_local(plan, elements=10007, dtype=dtype, repeats=1)
    assert report.all_correct


@pytest.mark.slow
def test_sixteen_ranks_on_one_machine() -> None:
    """The size of two DGX A100 boxes with k = 13."""
    report = run_local(lower(random_forest(16, 13, seed=0), "allgather"), elements=100003, repeats=1)
    assert report.all_correct


def test_the_report_has_the_figures_of_nccl_tests() -> None:
    """algbw is the gathered size over time, busbw that times (n - 1) / n."""
    report = RunReport("gloo", 4, 250_000_000, "float32", 3, (True, True, False, True), 0.5)
    assert report.algbw == pytest.approx(8.0)
    assert report.busbw == pytest.approx(6.0)
    assert not report.all_correct
    assert "WRONG on ranks [2]" in str(report)
    assert "500 ms, algbw 8.00 GB/s, busbw 6.00 GB/s" in str(report)


def test_small_figures_are_told_with_three_digits() -> None:
    """A tiny buffer is not moved with 0.000 GB/s."""
    report = RunReport("gloo", 2, 1, "uint8", 1, (True, True), 0.000703)
    assert str(report).endswith("correct on all ranks, 703 µs, algbw 2.84 kB/s, busbw 1.42 kB/s")


@pytest.mark.parametrize(
    ("collective", "total", "factor", "what"),
    [
        ("reduce_scatter", 4000, 0.75, "reduce_scatter of 250 float32 each"),
        ("allreduce", 1000, 1.5, "allreduce of 250 float32:"),
        ("broadcast", 1000, 1.0, "broadcast of 250 float32:"),
        ("reduce", 1000, 1.0, "reduce of 250 float32:"),
    ],
)
def test_every_collective_has_its_own_figures(collective: str, total: int, factor: float, what: str) -> None:
    """The size is that of all shards, or of the buffer, and busbw follows nccl-tests."""
    report = RunReport("gloo", 4, 250, "float32", 3, (True,) * 4, 0.5, collective)
    assert report.total_bytes == total
    assert report.busbw == pytest.approx(report.algbw * factor)
    assert what in str(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "mpi"}, "backend is 'mpi'; expected one of gloo, nccl"),
        ({"dtype": "complex64"}, "dtype is 'complex64'"),
        ({"elements": 0}, "elements is 0"),
        ({"repeats": -1}, "repeats is -1"),
        ({"slices": True}, "slices is True"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"op": "xor"}, "op is 'xor'; expected one of sum"),
    ],
)
def test_refuses_senseless_options(options: dict[str, object], message: str) -> None:
    """Before any process is started."""
    with pytest.raises(UnsupportedError, match=message):
        run_local(RING, **options)


def test_checks_the_program_first() -> None:
    """A race is refused before any process is started."""
    with pytest.raises(ProgramError, match="of the input, which has 1 chunks"):
        run_local(with_step(RING, 0, 2, 0, lambda step: type(step)(step.kind, step.source, step.target, 2)))


def test_data_that_a_program_leaves_wrong_is_no_surprise() -> None:
    """A program that is sound but gathers the wrong way round is refused by every rank, and the call says so."""
    swapped = lower(random_forest(2, 2, seed=0), "allgather")
    first, second = (swapped.ranks[0].thread_blocks[0].instructions[number].target for number in range(2))
    for step, target in ((0, second), (1, first)):
        swapped = with_step(
            swapped, 0, 0, step, lambda old, target=target: type(old)(old.kind, old.source, target, old.count)
        )
    with pytest.raises(ProgramError, match="rank 0 ends with chunk"):
        run_local(swapped)


def test_too_little_time_is_an_error_not_a_hang() -> None:
    """A twentieth of a second is not enough for the ranks to meet."""
    with pytest.raises(ProgramError, match=r"0\.05 s"):
        run_local(RING, timeout_s=0.05)


def test_says_what_there_is_instead_of_nccl() -> None:
    """One sentence, from the rank that found out."""
    import torch

    if torch.cuda.is_available() and torch.cuda.device_count() >= RING.num_ranks:
        pytest.skip("nccl runs here")
    with pytest.raises(UnsupportedError, match=r"nccl is not available.*try gloo"):
        run_local(RING, backend="nccl")


def test_needs_torch_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without importing it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        run_local(exchange())


def test_is_one_of_the_ranks_under_torchrun() -> None:
    """With torchrun's environment no processes are started and every rank gets the whole report."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    task = partial(runtime_tasks.as_if_by_torchrun, port=port, ranks=4)
    reports = run_ranks(task, 4, timeout_s=100, preload=("torch", "torch.distributed"))
    assert all(report.correct == (True,) * 4 for report in reports)
    assert len({report.seconds for report in reports}) == 1


def test_refuses_another_number_of_processes_than_ranks() -> None:
    """Two processes for a program of four ranks."""
    task = partial(runtime_tasks.as_if_by_torchrun, port=1, ranks=2)
    with pytest.raises(UnsupportedError, match="2 processes were started, the plan is for 4 ranks"):
        run_ranks(task, 2, timeout_s=100, preload=("torch", "torch.distributed"))


def test_uses_a_group_that_exists() -> None:
    """And leaves it in place."""
    reports = run_ranks(runtime_tasks.in_own_group, 4, timeout_s=100, preload=("torch", "torch.distributed"))
    assert all(report.all_correct for report in reports)


@pytest.mark.slow
def test_a_plain_script_can_call_it(tmp_path: Path) -> None:
    """No ``if __name__ == "__main__"`` is needed: the ranks do not run the caller's script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "from collopt.runtime import lower, run_local\n"
        "from collopt.schedules import Forest\n"
        "forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])\n"
        "print(run_local(lower(forest, 'allgather'), elements=7, repeats=1))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gloo, 2 ranks, 7 float32 each: correct on all ranks")
    assert done.stdout.count("\n") == 1
