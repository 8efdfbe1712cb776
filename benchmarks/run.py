"""Run the benchmarks, print a table, and leave the figures in a JSON file: ``make bench``.

Every claim of speed is a ratio to a named peer in the same run; seconds alone say more about the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import all_to_all
import bfb
import broken_networks
import call_overhead
import demands
import fast
import file_writing
import finder
import models
import moe
import optimality_test
import planning_cpu
import plans_for_sizes
import portfolio
import scaling
import send_order
import step_patterns
from rich.console import Console
from rich.table import Table

from collopt.support.kernels import kernels_in

BENCHMARKS = {
    "planning": planning_cpu.measure,
    "send-order": send_order.measure,
    "file-writing": file_writing.measure,
    "sizes": plans_for_sizes.measure,
    "portfolio": portfolio.measure,
    "optimality-test": optimality_test.measure,
    "models": models.measure,
    "scaling": scaling.measure,
    "bfb": bfb.measure,
    "step-patterns": step_patterns.measure,
    "finder": finder.measure,
    "fast": fast.measure,
    "moe": moe.measure,
    "all-to-all": all_to_all.measure,
    "broken-networks": broken_networks.measure,
    "call-overhead": call_overhead.measure,
    "demands": demands.measure,
}
PLAIN_WIDTH = 140
COLUMNS = {
    "case": "case",
    "engine": "engine",
    "peer": "best planner",
    "columns": "columns",
    "build_cpu_s": "building, CPU s",
    "plan_cpu_s": "plan, CPU s",
    "cpu_s": "CPU s",
    "before_cpu_s": "before, CPU s",
    "before_mib": "before, MiB",
    "intact_cpu_s": "intact, CPU s",
    "by_hand_cpu_s": "by hand, CPU s",
    "ratio": "ratio",
    "bound_cpu_s": "bound alone, CPU s",
    "peak_mib": "peak MiB",
    "trees_per_root": "k",
    "trees": "trees",
    "mean_height": "mean height",
    "max_height": "max height",
    "exponent": "exponent",
    "printed_rate": "printed",
    "lower_rate": "rate, at least",
    "upper_rate": "at most",
    "gap": "gap",
    "symmetries_cpu_s": "symmetries, CPU s",
    "flow_cpu_s": "flow, CPU s",
    "steps": "steps",
    "bandwidth_factor": "T_B",
    "peer_factor": "by receiver, time / bound",
    "factor": "time / bound",
    "predicted_us": "predicted, µs",
    "gain": "peer / this",
    "loss": "loss",
    "schedule_cpu_s": "schedule, CPU s",
    "verify_cpu_s": "check, CPU s",
    "sends": "sends",
    "program_ranks": "ranks in the LP",
    "programs_cpu_s": "LP, CPU s",
    "found": "found",
    "sample_cpu_s": "sample, CPU s",
    "general_cpu_s": "general, CPU s",
    "call_us": "a call, µs",
    "gloo_us": "Gloo's own, µs",
    "p50_us": "p50, µs",
    "p90_us": "p90, µs",
    "p99_us": "p99, µs",
    "fast_factor": "FAST / optimum",
    "by_stage_factor": "by stage / optimum",
    "spread_out_factor": "SpreadOut / optimum",
    "scratch_percent": "scratch, %",
    "copies_mb": "all-to-allv, MB",
    "dispatch_mb": "dispatch, MB",
    "combine_mb": "combine, MB",
    "copies_factor": "all-to-allv / bound",
    "fast_copies_factor": "by FAST / bound",
    "dispatch_factor": "dispatch / bound",
    "predicted_factor": "predicted / optimum",
    "optimum_s": "optimum, s",
    "rate_gbps": "GB/s",
    "copies_ratio": "rate / copies one by one",
    "wall_s": "wall s",
}
PACKAGES = ("collopt", "numba", "numpy", "networkx", "ortools", "highspy", "pyomo")


def _table(title: str, rows: list[dict[str, object]]) -> Table:
    columns = [column for column in COLUMNS if any(column in row for row in rows)]
    table = Table(*(COLUMNS[column] for column in columns), title=title)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--output", type=Path, default=Path("out/bench/results.json"))
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {min(unknown)!r}")
    # Also in the processes that benchmarks start: algorithms are compared, and how they scale.
    os.environ["COLLOPT_KERNELS"] = "compiled"
    with kernels_in("compiled"):
        rows = [row for name in arguments.names or BENCHMARKS for row in BENCHMARKS[name]()]
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    for benchmark in dict.fromkeys(str(row["benchmark"]) for row in rows):
        console.print(_table(benchmark, [row for row in rows if row["benchmark"] == benchmark]))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    machine = {"machine": platform.platform(), "python": platform.python_version()}
    packages = {name: version(name) for name in PACKAGES}
    arguments.output.write_text(json.dumps({**machine, "packages": packages, "rows": rows}, indent=1) + "\n")
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
