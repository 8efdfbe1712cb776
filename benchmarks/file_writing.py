"""Writing of runtime files: CPU seconds to export a plan, beside those to plan it, or those of another checkout.

``python benchmarks/file_writing.py --before CHECKOUT`` measures a checkout of collopt, in a folder of that name, and
this one side by side, each case in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES: dict[str, tuple[str, int, str, dict[str, int], bool]] = {
    "allgather, 16 H100": ("dgx_h100", 2, "allgather", {}, True),
    "allreduce, 16 H100": ("dgx_h100", 2, "allreduce", {}, True),
    "allgather, 32 MI250, refused": ("mi250", 2, "allgather", {}, True),
    "allgather, 16 MI300X, refused": ("mi300x", 2, "allgather", {}, True),
    "allgather, 32 H100": ("dgx_h100", 4, "allgather", {}, True),
    "allgather, 128 A100, one tree per root": ("dgx_a100", 16, "allgather", {"trees_per_root": 1}, True),
    "allreduce, 128 A100, one tree per root": ("dgx_a100", 16, "allreduce", {"trees_per_root": 1}, True),
    "allreduce, 128 H100, one tree per root": ("dgx_h100", 16, "allreduce", {"trees_per_root": 1}, True),
    "allreduce, 1024 A100, lowered only": ("dgx_a100", 128, "allreduce", {}, False),
}
HERE = Path(__file__).resolve()


def measure(before: Path | None = None) -> list[dict[str, object]]:
    """One row for each case; the ratio is to the other checkout, or else to planning."""
    rows = []
    for case in CASES:
        found = _measured(case, HERE.parents[1])
        row: dict[str, object] = {"benchmark": "writing MSCCL++ files", "case": case, **found}
        peer = found["plan_cpu_s"]
        if before is not None:
            other = _measured(case, before)
            row |= {"before_cpu_s": (peer := other["cpu_s"]), "before_mib": other["peak_mib"]}
        rows.append(row | {"ratio": found["cpu_s"] / peer})
    return rows


def _measured(case: str, checkout: Path) -> dict[str, float]:
    """Measure a case in a process of its own, with the package of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve().parent)}
    command = [sys.executable, str(HERE), "--case", case]
    found: dict[str, float] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    )
    return found


def _case(case: str) -> dict[str, float]:
    """Measure the second time that a case is planned, after the kernels have been loaded."""
    from scaling import peak_mib

    import collopt.topologies
    from collopt.errors import TooLargeError
    from collopt.runtime import lower

    name, boxes, collective, options, writes = CASES[case]
    network = getattr(collopt.topologies, name)(boxes=boxes)
    small = collopt.plan(collopt.topologies.ring(3), collective)
    collopt.plan(network, collective, **options)
    begin = time.process_time()
    plan = collopt.plan(network, collective, **options)
    found = {"plan_cpu_s": time.process_time() - begin}
    with tempfile.TemporaryDirectory() as folder:
        for each in (small, plan):
            begin = time.process_time()
            try:
                if writes:
                    each.export("mscclpp-json", Path(folder) / "plan.json")
                else:
                    lower(each.schedule, collective, topology=each.topology)
            except TooLargeError:
                assert "refused" in case
            found["cpu_s"] = time.process_time() - begin
    return found | {"peak_mib": peak_mib()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="an older checkout")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(_case(arguments.case)))
    else:
        for row in measure(arguments.before):
            print(json.dumps(row))
