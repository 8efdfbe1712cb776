"""``collopt show``: which figure comes of what is typed, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cli_calls import Cli, refusal

pytest.importorskip("matplotlib", reason="figures need matplotlib")

import collopt
from collopt import topologies


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def plan_file(here: Path) -> Path:
    """A plan of trees."""
    collopt.plan(topologies.torus(3, 3, bandwidth=25, latency=1), "allgather").save(here / "trees.json")
    return here / "trees.json"


@pytest.fixture
def step_file(here: Path) -> Path:
    """A plan in steps."""
    network = topologies.torus(3, 3, bandwidth=25, latency=1)
    collopt.plan(network, "allgather", planner="bfb").save(here / "steps.json")
    return here / "steps.json"


def words(path: Path) -> str:
    """What a picture says, as text that can be searched."""
    texts = ET.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return "\n".join("".join(text.itertext()) for text in texts)


def test_a_network_is_drawn_to_a_file_of_its_name(here: Path, cli: Cli) -> None:
    """The figure is written to one file, which is named on standard error."""
    answer = cli("show", "dgx-a100", "--boxes", 2)
    assert (answer.status, answer.out, answer.err) == (0, "", "wrote dgx-a100-2boxes-topology.svg\n")
    assert [path.name for path in here.iterdir()] == ["dgx-a100-2boxes-topology.svg"]
    assert "16 ranks, 19 switches, 96 links" in words(here / "dgx-a100-2boxes-topology.svg")


def test_a_collective_shows_its_cut(here: Path, cli: Cli) -> None:
    """The figure of a collective is its cut, with the bound in the title."""
    answer = cli("show", "torus", "allgather", "--shape", "3x3")
    assert answer.err.endswith("wrote torus-3x3-allgather-cut.svg\n")
    text = words(here / "torus-3x3-allgather-cut.svg")
    assert "allgather on torus-3x3: at most 4.50 GB/s" in text
    assert "link out of the cut (4, 4.00 GB/s together)" in text


def test_a_plan_of_trees_shows_its_trees(plan_file: Path, cli: Cli) -> None:
    """`--tree` selects a rank by number or name, and one of its trees."""
    assert cli("show", plan_file).err.endswith("wrote trees-trees.svg\n")
    assert "trees of gpu0.0" in words(plan_file.with_name("trees-trees.svg"))
    for rank in ("5", "gpu1.2", "gpu1.2:1"):
        cli("show", plan_file, "--tree", rank, "-o", "five.svg")
        assert "trees of gpu1.2" in words(plan_file.with_name("five.svg"))
    message = "tree is 70; expected a whole number from 1 to"
    assert message in refusal(cli("show", plan_file, "--tree", "5:70"))


def test_a_plan_in_steps_shows_its_steps(step_file: Path, cli: Cli) -> None:
    """A plan in steps is drawn for 64M bytes, or for the size of the options."""
    assert cli("show", step_file).err.endswith("wrote steps-steps.svg\n")
    assert "allgather of 64M bytes" in words(step_file.with_name("steps-steps.svg"))
    cli("show", step_file, "--size", "1M", "-o", "small.svg")
    assert "allgather of 1M bytes" in words(step_file.with_name("small.svg"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("topology", "torus-3x3: 9 ranks, 36 links"),
        ("cut", "allgather on torus-3x3: at most 112.50 GB/s"),
        ("trees", "trees of gpu0.0"),
        ("utilization", "utilization in %"),
        ("steps", "time in µs"),
        ("curves", "algbw in GB/s"),
    ],
)
def test_each_figure_of_a_plan(kind: str, text: str, plan_file: Path, cli: Cli) -> None:
    """Every figure of a plan is drawn from one file."""
    assert cli("show", plan_file, "--figure", kind).status == 0
    assert text in words(plan_file.with_name(f"trees-{kind}.svg"))


def test_curves_compare_planners_and_models(here: Path, cli: Cli) -> None:
    """Each planner has a curve over the sizes of the options."""
    network = ("show", "torus", "allgather", "--shape", "3x3", "--figure", "curves")
    assert cli(*network, "--planner", "ring", "--planner", "bfb", "-o", "two.svg").status == 0
    assert {"ring", "bfb", "1K", "1G"} <= set(words(here / "two.svg").splitlines())
    cli(*network, "--size", "1M", "--size", "4M", "--model", "simulate", "-o", "few.svg")
    assert {"1M", "4M", "forestcoll"} <= set(words(here / "few.svg").splitlines())
    assert "1G" not in words(here / "few.svg").splitlines()


def test_a_plan_that_does_not_prove_its_claims_is_not_drawn(plan_file: Path, cli: Cli) -> None:
    """A false plan ends in status 1 without a figure."""
    plan_file.write_text(
        re.sub(r'"inverse_rate": "[^"]*"', '"inverse_rate": "1/99999"', plan_file.read_text(), count=1)
    )
    assert cli("show", plan_file).status == 1
    assert not plan_file.with_name("trees-trees.svg").exists()
