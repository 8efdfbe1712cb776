"""The room as a whole: what it exports and what importing it costs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

from collopt import report

HEAVY = ("jinja2", "matplotlib", "numba", "numpy", "pandas", "scipy")


def test_type_checkers_see_the_modules_that_names_come_from() -> None:
    """Imports for type checkers are those of the lookup."""
    tree = ast.parse(Path(report.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    seen = {alias.name: node.module for node in imports for alias in node.names}
    assert set(seen) == set(report.__all__)
    for name, module in seen.items():
        assert getattr(importlib.import_module(f"collopt.report.{module}"), name) is getattr(report, name)


def test_importing_loads_no_heavy_package() -> None:
    """Importing report loads no other layer and no heavy package."""
    program = (
        "import sys, collopt.report; collopt.report.__all__; dir(collopt.report);"
        f"print([name for name in sys.modules if name in {HEAVY!r} or name.startswith('collopt.')])"
    )
    # -P: not the folder we happen to be in, which may hold the package under its own name.
    result = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['collopt.report']"
