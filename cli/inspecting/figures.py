"""The figures that ``collopt show`` draws, from what was typed for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import FileFormatError
from ..arguments.parameters import size_option

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...planners import Plan
    from ...schedules import Collective
    from ...topologies import Topology

DEFAULT_SIZE = "64M"
SIZES = tuple(2**power for power in range(10, 31))
LARGEST_TABLE = 2**26


class Asked(NamedTuple):
    """What was typed besides the network."""

    collective: Collective | None
    planners: list[str]
    sizes: list[str]
    tree: str | None
    model: str | None
    shards: dict[str, Any]


def file_name(text: str) -> str:
    """Leave out of a name what file systems or shells might take amiss."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-.")[:100] or "network"


def figure_of_bound(network: Topology, asked: Asked) -> Figure:
    """Draw what limits a collective on a network."""
    from ...planners import bound
    from ...report import topology_figure

    assert asked.collective is not None  # Without one, there is no cut to draw.
    found = bound(network, asked.collective, **asked.shards)
    found.verify()
    return topology_figure(network, found)


def plans_of(network: Topology, kind: str, asked: Asked) -> list[Plan]:
    """Plan the collective with each of the planners."""
    from ...planners import plan
    from ...planners.registry import as_planner

    assert asked.collective is not None  # As of `figure_of_bound`.
    collective = asked.collective
    planned_for = (asked.sizes or [DEFAULT_SIZE])[0] if kind == "steps" else None
    return [
        plan(
            network, collective, planner=as_planner(name), **size_option(name, collective, planned_for), **asked.shards
        )
        for name in asked.planners or ["auto"]
    ]


def figure_of_plan(kind: str, plans: Sequence[Plan], asked: Asked) -> Figure:
    """Draw a plan, or curves of several."""
    from ... import report

    plan, size = plans[0], (asked.sizes or [DEFAULT_SIZE])[0]
    draw: Mapping[str, Callable[[], Figure]] = {
        "topology": lambda: report.topology_figure(plan.topology),
        "cut": lambda: report.topology_figure(plan.topology, plan.bound),
        "trees": lambda: report.tree_figure(plan, *_tree(asked.tree)),
        "utilisation": lambda: report.utilisation_figure(plan),
        "steps": lambda: report.gantt_figure(plan, size),
        "curves": lambda: report.bandwidth_figure(
            report.curve_table(plans, asked.sizes or SIZES, model=asked.model or "estimate")  # type: ignore[arg-type] # which it checks
        ),
    }
    return draw[kind]()


def _tree(text: str | None) -> tuple[int | str | None, int | None]:
    """Read RANK or RANK:N, where RANK is a number or a name."""
    if text is None:
        return None, None
    match = re.fullmatch(r"(.*?)(?::([0-9]{1,9}))?", text, re.DOTALL)
    assert match  # Both parts may be empty.
    rank = int(match[1]) if re.fullmatch("[0-9]{1,9}", match[1]) else match[1]
    return rank, None if match[2] is None else int(match[2])


def figure_of_table(file: Path) -> Figure:
    """Draw the table in a file."""
    import pandas as pd

    from ...report import pareto_figure

    try:
        if file.stat().st_size > LARGEST_TABLE:
            raise FileFormatError(f"{file} is larger than 64 MiB; expected a table printed by `collopt find --csv`")
        table = pd.read_csv(file)
    except OSError as error:
        raise FileFormatError(f"{file} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        reason = str(error).strip().partition("\n")[0]
        raise FileFormatError(f"{file} is not a CSV table with a header: {reason}") from None
    return pareto_figure(table)
