"""The best topology for an allreduce against the number of nodes, by how it is built: Figure 15 of the paper.

Four links per node, 10 µs per step, 100 Gb/s per node.  With 1 MiB steps matter most, with 100 MiB bandwidth.  Run it
with ``--up-to 2000 --output figures`` for the range of the paper.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation_figures import best_runtime_figure

from collopt import report
from collopt.planners import sweep_topologies

if TYPE_CHECKING:
    import pandas as pd

DEGREE = 4
FAMILIES = {
    "C": "circulant",
    "DBJ": "de Bruijn",
    "DBJMod": "modified de Bruijn",
    "DirCirc": "directed circulant",
    "DistReg": "distance-regular",
    "K": "complete (bipartite)",
    "Π": "generalized Kautz",
}


def construction(name: str) -> str:
    """Say by its name how a topology is built: the paper's L, P and C for expansions, or the family."""
    kinds = {"L": bool(re.match(r"L[(^]", name)), "P": "^□" in name, "C": " □ " in name, "D": "*" in name}
    expanded = [kind for kind, used in kinds.items() if used]
    if expanded:
        return "expanded by " + "".join(expanded)
    return FAMILIES.get(re.match(r"\w*", name)[0], "other")  # type: ignore[index]


def best(sizes: Sequence[int], size: str) -> pd.DataFrame:
    """Find the fastest topology of each size."""
    swept = sweep_topologies(sizes, DEGREE, alpha=10, size=size, node_bandwidth="12.5")
    fastest = swept[swept["best"]]
    return fastest.assign(construction=fastest["name"].map(construction))


def main(arguments: Sequence[str] | None = None) -> None:
    """Count the constructions, and draw them."""
    parser = argparse.ArgumentParser(description="The best topologies for an allreduce against the number of nodes.")
    parser.add_argument("--up-to", type=int, default=100, metavar="N", help="largest number of nodes (default: 100)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to leave the figures and their tables")
    options = parser.parse_args(arguments)
    if options.up_to < 5:
        parser.error("expected at least 5 nodes")

    for size in ("1M", "100M"):
        found = best(range(5, options.up_to + 1), size)
        print(f"allreduce of {size}iB, 5 to {options.up_to} nodes")
        for kind, count in found["construction"].value_counts().sort_index().items():
            print(f"  {kind:20} {count:5}")
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            found.to_csv(options.output / f"best_by_size_{size}.csv", index=False)
            report.save_figure(best_runtime_figure(found), options.output / f"best_by_size_{size}.svg")


if __name__ == "__main__":
    main()
