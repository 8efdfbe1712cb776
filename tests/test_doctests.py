"""Runs the examples in the docstrings of every module of the installed package, and of models beside it.

Not with ``pytest --doctest-modules``: the repository root is the package, so in a checkout whose folder is not called
``collopt`` pytest would import every module a second time under the folder's name, and then no ``isinstance`` holds
between the two copies.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import collopt

# Importing `__main__` runs the program; the folders are in the checkout but not in the package.
BESIDE = [
    "all_to_allv_baselines", "allreduce_theorems", "analytic_baselines", "compute_trace", "evaluation_figures",
    "training_model",
]  # fmt: skip
NOT_WALKED = {"__main__", "benchmarks", "docs", "examples", "out", "tests", "tools"}


def module_names() -> list[str]:
    """Every importable module of the package, the package itself first."""
    found = (module.name for module in pkgutil.walk_packages(collopt.__path__, "collopt."))
    return ["collopt", *(name for name in found if NOT_WALKED.isdisjoint(name.split(".")))]


def test_the_walk_meets_every_room() -> None:
    """The walk sees root modules and modules inside rooms, so that an empty walk cannot pass for a green one."""
    assert {"collopt", "collopt.errors", "collopt.topologies.network.topology"} <= set(module_names())


@pytest.mark.parametrize("name", [*module_names(), *BESIDE])
def test_module_imports_and_its_examples_hold(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The module can be imported on its own, and each example in its docstrings prints what it says."""
    monkeypatch.chdir(tmp_path)  # an example may write files
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0, capsys.readouterr().out
