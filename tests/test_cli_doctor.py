"""`collopt doctor`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyomo.environ  # noqa: F401 - looks for matplotlib, which tests hide
import pytest

import collopt
import collopt.support.packages
from cli_calls import Cli, process
from collopt.planners.plans.stages import on_stage
from collopt.runtime.execution.rendezvous import TorchFacts
from collopt.topologies import ring


def test_a_healthy_installation(cli: Cli) -> None:
    """Status 0, with everything in JSON; a terminal would show what is being checked."""
    stages: list[str] = []
    with on_stage(stages.append):
        answer = cli("doctor", "--json")
    assert [stage for stage in stages if stage in ("linear programs", "plans", "torch", "features")] == [
        "linear programs",
        "plans",
        "torch",
        "features",
    ]
    data = answer.data
    assert (answer.status, data["ok"], data["versions"]["collopt"]) == (0, True, collopt.__version__)
    assert [check["name"] for check in data["core"]] == ["packages", "linear programs", "plans", "kernels"]
    assert all(check["works"] for check in data["core"])
    assert data["versions"]["highspy"]
    features = {feature["name"]: feature["works"] for feature in data["features"]}
    assert features["collopt run and bench on gloo"] == ("gloo" in data["torch"]["backends"])


def test_what_is_broken_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 1; the other checks go on."""

    def broken(*_: object, **__: Any) -> None:
        raise ZeroDivisionError("no\nplan")

    monkeypatch.setattr("collopt.planners.plan", broken)
    answer = cli("doctor")
    assert answer.status == 1
    assert "plans            FAILED: ZeroDivisionError: no plan" in answer.out
    assert "linear programs  ok: " in answer.out


@pytest.mark.slow
def test_doctor_compiles_for_images(cli: Cli) -> None:
    """And then says whether all works."""
    assert cli("doctor", "--compile", "--json").data["ok"]


def test_what_is_missing_is_no_failure(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said what to install."""
    monkeypatch.setattr("collopt.runtime.execution.rendezvous.torch_facts", lambda: TorchFacts(None))
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    answer = cli("doctor")
    assert answer.status == 0
    assert "collopt run and bench on gloo          no: pip install 'collopt[torch]'\n" in answer.out
    assert "figures                                no: pip install 'collopt[plot]'\n" in answer.out
    assert "  installed  no\n" in answer.out


@pytest.mark.parametrize(
    ("accelerator", "loads"), [("ROCm 7.12.5-ab", "yes"), ("ROCm 7.13.1", "no: RCCL has no MSCCL"), ("CUDA 13.0", None)]
)
def test_what_rccl_loads_is_told(
    accelerator: str, loads: str | None, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the release of ROCm that torch was built for, and only of such builds."""
    facts = TorchFacts("2.13.0", accelerator)
    monkeypatch.setattr("collopt.runtime.execution.rendezvous.torch_facts", lambda: facts)
    out = cli("doctor").out
    assert ("MSCCL XML in RCCL" in out) is (loads is not None)
    if loads:
        assert f"MSCCL XML in RCCL                      {loads}" in out


def test_what_is_broken_or_too_old_does_not_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Being installed is not enough."""
    version = collopt.support.packages.version
    monkeypatch.setattr(
        "collopt.support.packages.version", lambda name: "3.8.4" if name == "matplotlib" else version(name)
    )
    monkeypatch.setitem(collopt.support.packages.MODULES, "jinja2", "jinja2.sandbox")
    monkeypatch.setitem(sys.modules, "jinja2.sandbox", None)
    answer = cli("doctor")
    assert answer.status == 0
    assert (
        "figures                                no: matplotlib is of version 3.8.4; pip install --upgrade" in answer.out
    )
    assert "no: jinja2 cannot be imported here (ModuleNotFoundError: import of jinja2.sandbox halted" in answer.out


@pytest.mark.parametrize("module", ["numpy", "typer", "pydantic"])
def test_every_command_names_the_package_that_it_misses(tmp_path: Path, module: str) -> None:
    """In one sentence; files are read with pydantic."""
    collopt.write_topology(ring(3), tmp_path / "ring.json")
    answer = process("bound", str(tmp_path / "ring.json"), "allgather", PYTHONPATH=str(hiding(tmp_path, module)))
    assert answer.status == 2
    assert answer.err == (
        f"collopt: error: collopt needs {module}, which is not installed; install it with: pip install {module}\n"
    )


def hiding(folder: Path, module: str) -> Path:
    """Make a folder that lets processes whose path it is on find everything but one module."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Nowhere:\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {module!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Nowhere)\n",
        encoding="utf-8",
    )
    return folder
