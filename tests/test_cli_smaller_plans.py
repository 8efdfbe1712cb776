"""Files for runtimes of a smaller plan, where that is the best that they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import collopt
from cli_calls import Cli
from collopt.cli.terminal.output_files import write_fitting
from collopt.errors import TooLargeError
from collopt.planners import Plan
from collopt.runtime import interpret_file
from collopt.topologies import mi250, ring

BOXES = ("mi250", "--boxes", 2, "allgather")
"""83 trees per root are best, which is 332 different trees."""
FEW_BLOCKS = ("--runtime", "rccl", "--max-thread-blocks", 16)


def limited(most: int) -> tuple[Callable[[Plan], None], list[Plan]]:
    """A runtime that takes so many trees or chunks, and a list of what it took."""
    taken: list[Plan] = []

    def write(plan: Plan) -> None:
        size = plan.schedule.num_trees or plan.schedule.chunks_per_unit  # type: ignore[union-attr]
        if size > most:
            raise TooLargeError(f"there are {size} of {most}; plan with fewer")
        taken.append(plan)

    return write, taken


@pytest.mark.parametrize(
    ("most", "trees_per_root"), [(10**6, 83), pytest.param(165, 5, marks=pytest.mark.slow), (33, 1)]
)
def test_the_fastest_that_fits_is_taken(most: int, trees_per_root: int) -> None:
    """The fastest plan within the limit is that of ForestColl, Table 1."""
    network = mi250(boxes=2)
    made = collopt.plan(network, "allgather")
    write, taken = limited(most)
    found = write_fitting(made, write, "auto", {})
    assert taken == [found]
    assert found.trees.forests[-1].trees_per_root == trees_per_root
    same = {} if trees_per_root == 83 else {"trees_per_root": trees_per_root}
    assert found.algbw == collopt.plan(network, "allgather", **same).algbw


def test_an_all_to_all_has_fewer_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    """The largest number of chunks within the limit is taken."""
    made = collopt.plan(mi250(), "all_to_all")
    assert isinstance(made.schedule, collopt.schedules.FlowSchedule)
    assert made.schedule.chunks_per_unit > 2
    write, taken = limited(2)
    found = write_fitting(made, write, "auto", {})
    assert [plan.schedule.chunks_per_unit for plan in taken] == [2]  # type: ignore[union-attr]
    assert taken == [found]
    assert "using --chunks 2 instead: 2 chunks, 72.73 GB/s instead of 75.00 GB/s" in capsys.readouterr().err


def test_where_nothing_fits_the_best_plan_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is that of the best plan."""
    for planner in ("forestcoll", "ring"):
        made = collopt.plan(ring(4), "allgather", planner=planner)
        write, taken = limited(0)
        with pytest.raises(TooLargeError, match=f"there are {made.trees.num_trees} of 0; plan with fewer"):
            write_fitting(made, write, planner, {})
        assert taken == []
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_files_and_the_plan_are_those_of_the_smaller_one(cli: Cli, tmp_path: Path) -> None:
    """All files are of the smaller plan, and a note has its cost."""
    plan, xml = tmp_path / "plan.json", tmp_path / "plan.xml"
    answer = cli("plan", *BOXES, "-o", plan, "--xml", xml, *FEW_BLOCKS)
    assert answer.status == 0
    note, *_ = answer.err.splitlines()
    assert note.startswith("collopt: note: the best plan (332 trees) does not fit: ")
    assert note.endswith("using --trees-per-root 5 instead: 160 trees, 347.83 GB/s instead of 354.13 GB/s")
    assert answer.err.count("wrote ") == 2
    assert "trees per root  5" in answer.out
    saved = collopt.load_plan(plan)
    assert saved.options == {"trees_per_root": 5}
    interpret_file(xml)
    assert cli("plan", *BOXES, "--trees-per-root", 5, "--xml", tmp_path / "same.xml",
                *FEW_BLOCKS).status == 0  # fmt: skip
    assert (tmp_path / "same.xml").read_bytes() == xml.read_bytes()
