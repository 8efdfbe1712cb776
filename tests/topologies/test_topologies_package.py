"""The package as a whole: its exports, and the imports that it avoids."""

from __future__ import annotations

import subprocess
import sys

from collopt import topologies

HEAVY = ("cvxpy", "matplotlib", "networkx", "numba", "pandas", "pydantic", "pyomo", "scipy", "torch")


def test_everything_exported_exists() -> None:
    """And nothing twice."""
    assert len(set(topologies.__all__)) == len(topologies.__all__)
    for name in topologies.__all__:
        assert hasattr(topologies, name)


def test_importing_and_building_stays_light() -> None:
    """Heavy packages are imported only by the functions that need them."""
    program = (
        "import sys, collopt.topologies as t; t.dgx_a100(2); t.catalogue();"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    # -P: not the folder we happen to be in, which may hold the package under its own name.
    result = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
