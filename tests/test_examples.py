"""Runs every example and compares what it prints with what it is known to print.

``examples/demo.py`` is tested in ``test_demo.py``.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

DIRECT_CONNECT = [
    f"direct_connect/{name}.py"
    for name in ("best_by_size", "kautz_bandwidth", "runtimes_by_size", "training_iteration")
]
MODELS = [
    f"direct_connect/{name}.py"
    for name in ("analytic_baselines", "compute_trace", "evaluation_figures", "training_model")
]

# Per example, the numbers of the lines whose title is given.  Where one follows from a theorem it is said which.
PRINTED = {
    "objectives/reserved_bandwidth.py": {
        "alone": [346.67],  # 16 shards, x = 65/3
        # What gets through the 8 cards of box0 is 8 x 15 GB/s for 8 shards each way.
        "beside": [10, 240.00],
        "planned on what is left": [240.00, 0],
    },
    "objectives/shared_fabric.py": {
        "alone": [21.67, 200.00],
        "max-min": [20.31, 20.31],
        "proportional": [12.50, 100.00],
    },
    "objectives/link_failures.py": {
        "no failure": [90.00],
        "any single failure": [61.88],
        # A corner next to the weak cable keeps 25 + 25 + 5 GB/s for the 8 other shards: 9 x 55 / 8.
        "worst failure": [61.88],
        "reserved": [673.33, 860.00],
    },
    "objectives/link_costs.py": {
        " 25 %": [25, 28.12, 731.2, 26.000],
        " 50 %": [50, 56.25, 1462.5, 26.000],
        " 75 %": [75, 84.38, 2700.0, 32.000],
        " 90 %": [90, 101.25, 4050.0, 40.000],
        # All links are full: 18 inside racks at 1 and 18 between racks at 10, 25 GB/s each.
        "100 %": [100, 112.50, 4950.0, 44.000],
    },
    "objectives/link_upgrades.py": {
        # 8 shards have to enter box1 over 8 cards of 12.5 GB/s: only these count.
        "now": [200.00],
        "box0 network": [0, 0.00, 0.00],
        "box1 inside": [1, 0.00, 0.00],
        "box1 network": [1, 200.00, 200.00],
    },
    "allreduce_theorems.py": {
        # Eight ranks with 6 links of 25 GB/s each way: Theorem 17 with N = 8.
        "V100": [100, 150.00, 85.71, 85.71, 85.71],
        "MI250": [250, 300.00, 186.67, 171.43, 171.43],
    },
    "refuted_claims.py": {
        "FAST, Theorem 3": [3, 7, 3, 23, 9],
        "Conjecture 1": [1, 15, 1, 4, 5, 14, 15, 1],
        "Theorem 10": [10, 7, 1, 20, 21],
        "Table 9, DBJ": [9, 3, 1, 2, 3, 1],
        # All 4096 links over all distances.
        "Tables 4 and 7": [4, 7, 3, 16, 3, 4],
        "Torus 3x3x2, two": [3, 3, 2, 2, 17, 18, 1],
        "Torus 3x3x2, one": [3, 3, 2, 2, 17, 18, 17, 18],
    },
    "final_frontiers.py": {
        # Each link brings d + 1 of d^2 + d shards, at a d-th of the bandwidth.
        "degree 3": [3, 12, 6, 0, 4, 11],
        "degree 5": [5, 30, 10, 0, 6, 29],
    },
    "saturation.py": {
        # 1 + 3 / (10 s) and 1 + 1 / (5 s).
        "               1 ": [1, 1.3, 1.2],
        "             256 ": [256, 1.00117, 1.00078],
    },
    "objectives/hop_count.py": {
        # Half of the other ranks of a 3 x 3 torus are one hop away, half are two.
        " 25 %": [25, 22.50, 1.5],
        " 50 %": [50, 45.00, 1.5],
        " 75 %": [75, 67.50, 1.509],
        " 90 %": [90, 81.00, 1.512],
        "100 %": [100, 90.00, 1.514],
    },
}


@pytest.mark.parametrize("example", PRINTED)
def test_example_prints_what_it_is_known_to_print(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers agree to what is shown of them."""
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    for title, expected in PRINTED[example].items():
        (line,) = [line for line in lines if line.startswith(title)]
        shown = [float(number) for number in NUMBER.findall(line)]
        assert shown[: len(expected)] == pytest.approx(expected, rel=1e-3), line


def test_no_example_is_left_out() -> None:
    """Every example is in the table above, or has a test of its own."""
    found = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    own = {
        "demo.py": "test_demo.py",
        "allreduce_beyond_reduce_scatter.py": "planners/test_strength.py",
        "in_network_optimum.py": "planners/test_steiner_planner.py",
        "random_demands.py": "planners/test_demand_plans.py",
        **dict.fromkeys(("circulant_conjecture.py", "circulant_census.py"), "test_circulant_conjecture.py"),
        **dict.fromkeys(
            ("adding_switches.py", "allreduce_claims.py", "one_way_allreduce.py"), "test_allreduce_claims.py"
        ),
        "moe_all_to_allv.py": "test_moe_all_to_allv.py",
        **dict.fromkeys(("train.py", "train_moe.py", "train_with_jax.py", "rollout.py"), "test_train_examples.py"),
        **dict.fromkeys(DIRECT_CONNECT, "report/test_direct_connect_examples.py"),
        **dict.fromkeys(MODELS, "planners/test_training_iteration.py"),
    }
    assert found - set(own) == set(PRINTED)
    assert set(own) <= found
