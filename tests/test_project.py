"""The project's own promises: what is packaged, which version it is, and how light its import is."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import collopt

ROOT = Path(__file__).parents[1]
HEAVY = {"cvxpy", "jax", "jinja2", "matplotlib", "networkx", "numba", "pandas", "pyomo", "scipy", "torch"}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_listed_and_nothing_else(pyproject: dict[str, Any]) -> None:
    """A wheel would silently miss a package that pyproject's list forgets."""
    patterns = ("*", "*/*", "*/*/*")  # three folders deep below the root
    folders = [path.parent.relative_to(ROOT) for depth in patterns for path in ROOT.glob(f"{depth}/__init__.py")]
    elsewhere = ("out", "build", "tests", "docs", "examples", "benchmarks", ".venv")
    packages = {".".join(("collopt", *folder.parts)) for folder in folders if folder.parts[0] not in elsewhere}
    assert packages
    assert sorted(pyproject["tool"]["setuptools"]["packages"]) == sorted({"collopt"} | packages)


def test_the_tests_run_on_this_checkout() -> None:
    """A copy of collopt installed from elsewhere would make the whole run say nothing about this tree."""
    assert Path(collopt.__file__).resolve().parent == ROOT.resolve()


def test_there_is_one_version(pyproject: dict[str, Any]) -> None:
    """The package, its metadata and pyproject.toml agree on the version."""
    declared = pyproject["project"]["version"]
    assert collopt.__version__ == importlib.metadata.version("collopt") == declared


def test_the_changelog_has_a_section_for_this_version() -> None:
    """A release without its entry cannot happen."""
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line.startswith("## ")
    ]
    assert any(collopt.__version__ in heading for heading in headings)


@pytest.mark.parametrize("module", ["collopt", "collopt.cli"])
def test_importing_loads_no_heavy_package(module: str, tmp_path: Path) -> None:
    """`import collopt` and `collopt --help` stay light: solvers, tables, plots and torch load on first use."""
    program = f"import json, sys, {module}; print(json.dumps([name for name in sys.modules if '.' not in name]))"
    listing = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert listing.returncode == 0, listing.stderr
    loaded = set(json.loads(listing.stdout))
    assert "collopt" in loaded
    assert sorted(loaded & HEAVY) == []
