"""`run_local`: programs on random tensors, one process per rank, beside torch's own collectives, and its report."""

from __future__ import annotations

import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import runtime_tasks
from runtime_forests import random_forest, random_schedule, ring_forest, with_step

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import RunReport, lower, run_local
from collopt.runtime.execution.local_ranks import run_ranks

RING = lower(ring_forest(4), "allgather")
PRELOAD = ("torch", "torch.distributed")


def test_results_are_compared_with_torch() -> None:
    """Shards are uneven; the report has the verdict of each rank, the time and the size of all shards."""
    program = lower(random_schedule("allgather", 4, 3, seed=1), "allgather")
    report = run_local(program, elements=1000003, repeats=2, slices=3, timeout_s=100)
    assert report.correct == (True,) * 4
    assert report.all_correct
    assert str(report.collective) == "allgather"
    assert report.seconds > 0
    assert report.total_bytes == 4 * 4 * 1000003


def test_reports_have_the_figures_of_nccl_tests() -> None:
    """algbw is the gathered size over time, busbw that times (n - 1) / n; small figures have three digits."""
    report = RunReport("gloo", 4, 250_000_000, "float32", 3, (True, True, False, True), 0.5)
    assert (report.algbw, report.busbw) == (pytest.approx(8.0), pytest.approx(6.0))
    assert not report.all_correct
    assert "WRONG on ranks [2]" in str(report)
    assert "500 ms, algbw 8.00 GB/s, busbw 6.00 GB/s" in str(report)
    small = RunReport("gloo", 2, 1, "uint8", 1, (True, True), 0.000703)
    assert str(small).endswith("correct on all ranks, 703 µs, algbw 2.84 kB/s, busbw 1.42 kB/s")


@pytest.mark.parametrize(
    ("collective", "total", "factor", "words"),
    [
        ("reduce_scatter", 4000, 0.75, "reduce_scatter of 250 float32 each"),
        ("allreduce", 1000, 1.5, "allreduce of 250 float32:"),
        ("broadcast", 1000, 1.0, "broadcast of 250 float32:"),
        ("reduce", 1000, 1.0, "reduce of 250 float32:"),
        ("all_to_all", 4000, 0.75, "all_to_all of 250 float32 from each to each:"),
    ],
)
def test_every_collective_has_its_own_figures(collective: str, total: int, factor: float, words: str) -> None:
    """The size is that of all shards, of a rank's parts, or of the buffer, and busbw follows nccl-tests."""
    report = RunReport("gloo", 4, 250, "float32", 3, (True,) * 4, 0.5, collective)
    assert report.total_bytes == total
    assert report.busbw == pytest.approx(report.algbw * factor)
    assert words in str(report)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backend", "mpi"),
        ("dtype", "complex64"),
        ("elements", 0),
        ("repeats", -1),
        ("slices", True),
        ("timeout_s", 0),
        ("op", "xor"),
    ],
)
def test_invalid_options_are_refused(name: str, value: object) -> None:
    """The message names option and value, before any process is started."""
    with pytest.raises(UnsupportedError, match=f"{name} is {value!r}"):
        run_local(RING, **{name: value})


def test_wrong_programs_are_refused() -> None:
    """Both a race and data that end in the wrong place are found before the ranks run."""
    with pytest.raises(ProgramError, match="of the input, which has 1 chunks"):
        run_local(with_step(RING, 0, 2, 0, lambda step: type(step)(step.kind, step.source, step.target, 2)))
    swapped = lower(random_forest(2, 2, seed=0), "allgather")
    first, second = (swapped.ranks[0].thread_blocks[0].instructions[number].target for number in range(2))
    for step, target in ((0, second), (1, first)):
        swapped = with_step(
            swapped, 0, 0, step, lambda old, target=target: type(old)(old.kind, old.source, target, old.count)
        )
    with pytest.raises(ProgramError, match="rank 0 ends with chunk"):
        run_local(swapped)


def test_too_little_time_is_an_error() -> None:
    """A twentieth of a second is not enough for the ranks to meet."""
    with pytest.raises(ProgramError, match=r"0\.05 s"):
        run_local(RING, timeout_s=0.05)


def test_a_backend_that_cannot_run_here_is_refused() -> None:
    """The rank that finds out names the available ones."""
    import torch

    if torch.cuda.is_available() and torch.cuda.device_count() >= RING.num_ranks:
        pytest.skip("nccl runs here")
    with pytest.raises(UnsupportedError, match=r"nccl is not available.*try gloo"):
        run_local(RING, backend="nccl")


def test_a_launched_process_is_one_of_the_ranks() -> None:
    """With torchrun's environment no processes are started and every rank gets the same report."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    task = partial(runtime_tasks.as_if_by_torchrun, port=port, ranks=4)
    reports = run_ranks(task, 4, timeout_s=100, preload=PRELOAD)
    assert all(report.correct == (True,) * 4 for report in reports)
    assert len({report.seconds for report in reports}) == 1
    task = partial(runtime_tasks.as_if_by_torchrun, port=1, ranks=2)
    with pytest.raises(UnsupportedError, match="2 processes were started, the plan is for 4 ranks"):
        run_ranks(task, 2, timeout_s=100, preload=PRELOAD)


def test_a_group_that_exists_is_used_and_stays() -> None:
    """The ranks take a barrier on it afterwards."""
    reports = run_ranks(runtime_tasks.in_own_group, 4, timeout_s=100, preload=PRELOAD)
    assert all(report.all_correct for report in reports)


@pytest.mark.slow
def test_a_plain_script_can_call_it(tmp_path: Path) -> None:
    """The ranks do not run the caller's script again, so it needs no ``if __name__ == "__main__"``."""
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
