"""Run the benchmarks, print a table, and leave the figures in a JSON file: ``make bench``.

Every claim of speed is a ratio to a named peer in the same run; seconds alone say more about the machine.
"""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import version
from pathlib import Path

import optimality_test
import planning_cpu
from rich.console import Console
from rich.table import Table

BENCHMARKS = {"planning": planning_cpu.measure, "optimality-test": optimality_test.measure}
PACKAGES = ("collopt", "numba", "numpy", "networkx", "ortools")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--output", type=Path, default=Path("out/bench/results.json"))
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {min(unknown)!r}")
    rows = [row for name in arguments.names or BENCHMARKS for row in BENCHMARKS[name]()]
    table = Table("benchmark", "case", "engine", "CPU s", "ratio")
    for row in rows:
        ratio = f"{row['ratio']:.1f}" if "ratio" in row else ""
        table.add_row(str(row["benchmark"]), str(row["case"]), str(row["engine"]), f"{row['cpu_s']:.4f}", ratio)
    Console().print(table)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    machine = {"machine": platform.platform(), "python": platform.python_version()}
    packages = {name: version(name) for name in PACKAGES}
    arguments.output.write_text(json.dumps({**machine, "packages": packages, "rows": rows}, indent=1) + "\n")
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
