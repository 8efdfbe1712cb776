"""A release beside its code: metadata, recipes and workflows agree with pyproject.toml and the Makefile."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> Any:
    """A YAML file of the root."""
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_citation_and_recipe_have_the_version_and_licence_of_the_project() -> None:
    """A release changes them together."""
    citation, recipe = read("CITATION.cff"), read("conda/recipe.yaml")
    assert citation["version"] == recipe["context"]["version"] == PROJECT["version"]
    assert citation["license"] == recipe["about"]["license"] == PROJECT["license"]
    assert all(paper["authors"] and paper["year"] for paper in citation["references"])


def test_the_recipe_needs_what_the_wheel_needs() -> None:
    """Python, and every dependency with its lowest version."""
    needed = [line.replace(" ", "") for line in read("conda/recipe.yaml")["requirements"]["run"]]
    assert needed == [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]


def test_the_lowest_versions_are_those_of_the_project() -> None:
    """`make lowest` tests what is promised; torch is that of all other tests."""
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    torch = re.search(r"^torch==.+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert torch
    extras = PROJECT["optional-dependencies"]
    promised = PROJECT["dependencies"] + extras["jax"] + extras["plot"] + extras["report"] + extras["explore"]
    pinned = {line for line in lines if "==" in line}
    assert pinned == {torch[0], *(each.replace(">=", "==") for each in promised)}


def test_workflows_run_targets_that_exist_on_all_versions_of_python() -> None:
    """Those that the classifiers name."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    jobs = read(".github/workflows/ci.yml")["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    assert {command.removeprefix("make ") for command in commands} - {".ci/run"} <= targets
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert jobs["everything"]["strategy"]["matrix"]["python"] == named


def test_the_image_gets_every_layer() -> None:
    """The list of what an image is built from names the packages one by one."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    layers = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert layers <= {line.removeprefix("!") for line in lines if line.startswith("!")}
