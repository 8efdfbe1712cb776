"""Run all that one CUDA device can show, in at most eight minutes and without a network: ``make gpu``.

Several ranks share the device, so results are compared, but no speed between GPUs is measured.  Each row of the table
has its outcome, or why it was skipped.  The status is 1 if anything failed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
LIMIT_S = 480.0
NO_DEVICE = "skipped: no CUDA device"
TESTS = {
    "every collective through NCCL, as NCCL's own": "results_are_those_of_nccl",
    "schedules of other planners through NCCL": "schedules_of_other_planners",
    "asynchronous calls: streams and events": "calls_overlap",
    "all-to-all with unequal splits": "unequal_splits",
    "the torch backend, as NCCL": "the_torch_backend",
    "training by DDP and FSDP": "models_train",
    "mixtures of experts": "mixtures_of_experts",
    "times by CUDA events beside NCCL": "measured_side_by_side",
}
"""Tests in ``tests/runtime/test_gpus.py``, of four ranks on one device."""
BEYOND = {
    "speed of plans between GPUs": "needs as many GPUs as ranks",
    "JAX on GPUs": "needs as many GPUs as ranks, which do not share one",
    "MSCCL XML": "needs a runtime that loads it, and a GPU for each rank",
    "NVLink SHARP": "needs GPUs on an NVSwitch",
}
"""What one device cannot show."""


class Row(NamedTuple):
    """A line of the table."""

    what: str
    outcome: str
    seconds: float


def device_name() -> str | None:
    """Name of the CUDA device that torch sees, or None."""
    try:
        import torch
    except ImportError:
        return None
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def run_command(command: Sequence[str], seconds: float) -> str:
    """Run a program in this checkout; its outcome is the last line that it prints."""
    try:
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"failed: not finished in {seconds:.0f} s"
    last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
    return f"{'failed: ' if done.returncode else ''}{last[0].strip('= ')}"


def run_test(name: str, seconds: float) -> str:
    """Run tests on GPUs by a part of their names."""
    return run_command(["-m", "pytest", "-q", "-n", "0", "tests/runtime/test_gpus.py", "-k", name], seconds)


def run_mscclpp(seconds: float) -> str:
    """Run plan files by MSCCL++'s executor, if its Python package is installed."""
    if find_spec("mscclpp") is None:
        return "skipped: no package mscclpp; see https://microsoft.github.io/mscclpp/quickstart.html"
    return run_command(["-m", "benchmarks.mscclpp_executor", "--only", "ring4"], seconds)


def bandwidths(seconds: float) -> str:
    """Measure what a round does on its own device, beside the plain calls: bytes read and written over time."""
    del seconds
    import torch

    from collopt.runtime.execution.arguments import combine

    one, other, target = torch.rand(3, 2**26, device="cuda")
    half = len(one) // 2
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "cudaMemcpy": (2, lambda: target.copy_(one)),
        "copy of a round": (2, lambda: (target[:half].copy_(one[:half]), target[half:].copy_(one[half:]))),
        "torch.add": (3, lambda: torch.add(one, other, out=target)),
        "sum of a round": (3, lambda: combine("sum", one, other, target)),
    }
    found = []
    for name, (accesses, call) in ways.items():
        call()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(20):
            call()
        end.record()
        end.synchronize()
        rate = 20 * accesses * one.numel() * one.element_size() / begin.elapsed_time(end) / 1e6
        found.append(f"{name} {rate:.0f} GB/s")
    return ", ".join(found)


JOBS: dict[str, Callable[[float], str]] = {
    "bandwidth of copies and sums": bandwidths,
    **{what: partial(run_test, name) for what, name in TESTS.items()},
    "plans by MSCCL++'s executor": run_mscclpp,
}


def measure(device: str | None, limit_s: float = LIMIT_S) -> list[Row]:
    """Run everything for which there is a device and time."""
    rows, end = [], monotonic() + limit_s
    for what, job in JOBS.items():
        begin = monotonic()
        if device is None:
            outcome = NO_DEVICE
        elif begin >= end:
            outcome = f"skipped: {limit_s:.0f} s are over"
        else:
            outcome = job(end - begin)
        rows.append(Row(what, outcome, monotonic() - begin))
    return rows + [Row(what, NO_DEVICE if device is None else f"skipped: {why}", 0) for what, why in BEYOND.items()]


def main() -> None:
    """Print the table."""
    device = device_name()
    print(f"on one {device}" if device else "no CUDA device that torch can see, so nothing was run")
    table = Table("what", "outcome", "seconds")
    rows = measure(device)
    for row in rows:
        table.add_row(row.what, row.outcome, f"{row.seconds:.0f}")
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    sys.exit(any(row.outcome.startswith("failed") for row in rows))


if __name__ == "__main__":
    main()
