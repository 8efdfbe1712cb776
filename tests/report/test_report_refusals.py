"""The door of report: what has no table, figure, layout or page is refused by an error that names the argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("jinja2", reason="reports need jinja2")

import collopt
from collopt import Plan, bound, report
from collopt.errors import CertificateError, ColloptError, UnsupportedError
from collopt.report import curve_table, link_table, save_figure, step_table, tree_figure, tree_table
from collopt.report.pages.page import report_page
from collopt.topologies import ring, torus

TORUS = torus(3, 3, bandwidth=25)
FRONT = pd.DataFrame({"name": ["a", "b"], "steps": [1, 2], "bandwidth_factor": [1.5, 1.0]})


@cache
def trees() -> Plan:
    """A plan of trees."""
    return collopt.plan(TORUS, "allgather", planner="forestcoll")


@cache
def steps() -> Plan:
    """A plan in steps."""
    return collopt.plan(TORUS, "allgather", planner="bfb")


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: link_table("plan"), "plan is 'plan'"),  # type: ignore[arg-type]
    (lambda: tree_table(None), "plan is None"),  # type: ignore[arg-type]
    (lambda: tree_table(steps()), "'bfb' consists of steps"),
    (lambda: report.bound_links(3), "bound is 3"),  # type: ignore[arg-type]
    (lambda: step_table(steps(), "9M", 4), "slices is 4"),
    (lambda: curve_table([], ["1M"]), "plans is empty"),
    (lambda: curve_table([trees()], []), "sizes is empty"),
    (lambda: curve_table([trees()], ["1M"], model="guess"), "model is 'guess'"),  # type: ignore[arg-type]
    (lambda: curve_table(["ring"], ["1M"]), "plan is 'ring'"),  # type: ignore[list-item]
    (lambda: tree_figure(steps()), "'bfb' consists of steps"),
    (lambda: tree_figure(trees(), root=9), "root is 9"),
    (lambda: tree_figure(trees(), root=True), "root is True"),
    (lambda: tree_figure(trees(), root="gpu0"), "root is 'gpu0'"),
    (lambda: tree_figure(trees(), tree=99), "tree is 99"),
    (lambda: tree_figure(trees(), tree=0), "tree is 0"),
    (lambda: tree_figure(trees(), tree="0"), "tree is '0'"),  # type: ignore[arg-type]
    (lambda: report.utilization_figure("plan"), "plan is 'plan'"),  # type: ignore[arg-type]
    (lambda: report.gantt_figure(steps(), "many"), "size 'many'"),
    (lambda: report.bandwidth_figure([1]), "table is"),  # type: ignore[arg-type]
    (lambda: report.topology_figure("torus"), "topology is 'torus'"),  # type: ignore[arg-type]
    (lambda: report.topology_figure(TORUS, 4), "bound is 4"),  # type: ignore[arg-type]
    (lambda: report.topology_figure(TORUS, bound(ring(4), "allgather")), "ring-4"),
    (lambda: report.node_layout("torus"), "topology is 'torus'"),  # type: ignore[arg-type]
    (lambda: report.link_curves("torus"), "topology is 'torus'"),  # type: ignore[arg-type]
    (lambda: report.pareto_figure([1, 2]), "DataFrame"),  # type: ignore[arg-type]
    (lambda: report.pareto_figure(pd.DataFrame({"steps": [1]})), "no columns '"),
    (lambda: report.pareto_figure(FRONT.head(0)), "no rows"),
    (lambda: report.pareto_figure(pd.concat([FRONT, FRONT[["steps"]]], axis=1)), "2 columns 'steps'"),
    (lambda: trees().plot("tree"), "'tree'"),
    (lambda: TORUS.plot("cut"), "'cut'"),
    (lambda: trees().plot("steps", sise="1M"), "'sise'"),
    (lambda: trees().to_frame("tree"), "'tree'"),
    (lambda: trees().to_frame(size="1M"), "'size'"),
    (lambda: report_page([]), "0 plans"),
    (lambda: report_page(3), "plans are 3"),
    (lambda: report_page(["plan.json"]), "plan is 'plan.json'"),
    (lambda: report_page([trees(), collopt.plan(ring(4), "allgather")]), "report for each"),
    (lambda: report_page([trees(), collopt.plan(TORUS, "reduce_scatter")]), "report for each"),
    (lambda: report_page(trees(), sizes="64M"), "sizes is '64M'"),
    (lambda: report_page(trees(), sizes=[]), "sizes is empty"),
    (lambda: report_page(trees(), sizes=["64 apples"]), "'64 apples'"),
    (lambda: report_page(trees(), sizes=[0]), "size"),
    (lambda: report_page(trees(), diagnosis="log.txt"), "diagnosis is 'log.txt'"),  # type: ignore[arg-type]
    (lambda: report.write_report(trees(), "page.html", failures="yes"), "failures is 'yes'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("call", "named"), CALLS, ids=[f"{number}: {named}" for number, (_, named) in enumerate(CALLS)]
)
def test_bad_arguments_are_refused(call: Callable[[], object], named: str) -> None:
    """The error names the argument and its value."""
    with pytest.raises(ColloptError) as caught:
        call()
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", 3),
        ("name", None),
        ("bandwidth_factor", "none"),
        ("bandwidth_factor", float("inf")),
        ("bandwidth_factor", Fraction(10**400)),
        ("steps", [1]),
        ("steps", True),
    ],
)
def test_entries_that_cannot_be_drawn_are_refused(column: str, value: object) -> None:
    """The error names row and column, where pandas would raise or a point would be nowhere."""
    table = FRONT.assign(**{column: pd.Series([FRONT[column][0], value], dtype=object)})
    with pytest.raises(UnsupportedError, match=rf"^row 1 of column '{column}' is .*; expected "):
        report.pareto_figure(table)


@pytest.mark.parametrize(
    ("figure", "name", "dots", "named"),
    [
        *((figure, "a.png", 100, "the figure is ") for figure in (None, "figure", FRONT)),
        *((True, "a.png", dots, "dots_per_inch is ") for dots in (0, float("nan"), "x", True, None, 10**5, 10**400)),
        (True, "a.docx", 100, "a.docx"),
    ],
)
def test_files_of_figures_are_refused_and_not_begun(
    figure: Any, name: str, dots: Any, named: str, tmp_path: Path
) -> None:
    """Other objects, resolutions beyond memory and unknown formats leave no file."""
    drawn = report.pareto_figure(FRONT) if figure is True else figure
    with pytest.raises(UnsupportedError) as caught:
        save_figure(drawn, tmp_path / name, dots_per_inch=dots)
    assert named in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_a_false_plan_is_not_written(tmp_path: Path) -> None:
    """No page states what is false, and no file is left behind."""
    false = replace(trees(), inverse_rate=Fraction(1, 65))
    for plans in (false, [trees(), false]):
        with pytest.raises(CertificateError, match="claims 1/x"):
            report.write_report(plans, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
