"""T_B of breadth-first broadcast on generalized Kautz graphs, over its optimum: Figure 18 of the paper.

The paper observes that it never takes more than twice the optimum.  This prints the most that it takes, compared as
fractions, over every size up to the one given.  Run it with ``--up-to 2000 --output figures`` for the paper's range.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pandas as pd
from evaluation_figures import relative_bandwidth_figure

from collopt import report
from collopt.solvers.steps.graph_costs import kautz_figures
from collopt.topologies import bandwidth_optimum, moore_steps

DEGREES = (2, 4, 8, 16)


def table(largest: int) -> pd.DataFrame:
    """One row per degree and number of nodes, with exact ratios."""
    rows = []
    for degree in DEGREES:
        for nodes in range(degree + 1, largest + 1):
            figures = kautz_figures(degree, nodes)
            ratio = figures.bandwidth_factor / bandwidth_optimum(nodes)
            rows.append((nodes, degree, ratio, figures.steps - moore_steps(nodes, degree)))
    return pd.DataFrame(rows, columns=["nodes", "degree", "relative_bandwidth_factor", "steps_above_bound"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the worst size of each degree, and draw all of them."""
    parser = argparse.ArgumentParser(description="Bandwidth factors of generalized Kautz graphs.")
    parser.add_argument("--up-to", type=int, default=100, metavar="N", help="largest number of nodes (default: 100)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to leave the figure and its table")
    options = parser.parse_args(arguments)
    if options.up_to <= max(DEGREES):
        parser.error(f"expected more than {max(DEGREES)} nodes")

    ratios = table(options.up_to)
    for degree, rows in ratios.groupby("degree"):
        worst: Fraction = rows["relative_bandwidth_factor"].max()
        first = rows.loc[rows["relative_bandwidth_factor"] == worst, "nodes"].iloc[0]
        above = rows["steps_above_bound"].max()
        print(f"degree {degree:2}: T_B at most {float(worst):.4f} T_B* (at N = {first}), T_L at most T_L* + {above}")
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        ratios.to_csv(options.output / "kautz_bandwidth.csv", index=False)
        report.save_figure(relative_bandwidth_figure(ratios), options.output / "kautz_bandwidth.svg")


if __name__ == "__main__":
    main()
