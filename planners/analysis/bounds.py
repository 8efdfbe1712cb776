"""Ways to bound the speed of a collective, by name, for putting them side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import UnsupportedError
from ...schedules import COLLECTIVES, PAIR_COLLECTIVES, Bound
from ...topologies import Topology
from ..registry import bound
from ..trees.problem import check_collective

__all__ = ["BOUNDS"]

LARGEST_PROGRAM = 10_000
"""Columns beyond which the linear program is not solved just for comparison."""
TIME_LIMIT = 30
"""Seconds that the linear program may take."""


def _forestcoll_bound(topology: Topology, collective: str, shards: dict[str, Any]) -> tuple[Bound, str]:
    check_collective(collective, COLLECTIVES, "cuts of shards are not about")
    return bound(topology, collective, **shards), ""


def _multicommodity_bound(topology: Topology, collective: str, shards: dict[str, Any]) -> tuple[Bound, str]:
    if collective not in PAIR_COLLECTIVES:
        raise UnsupportedError(f"flows between pairs are about {' and '.join(PAIR_COLLECTIVES)}, not {collective}")
    return bound(topology, collective, **shards), ""


def _strength_bound(topology: Topology, collective: str, shards: dict[str, Any]) -> tuple[Bound, str]:  # noqa: ARG001
    from ..trees.strength import strength_bound

    if collective != "allreduce":
        raise UnsupportedError(f"the strength is about allreduce, not {collective}")
    return strength_bound(topology), ""


def _linear_program_bound(topology: Topology, collective: str, shards: dict[str, Any]) -> tuple[Bound, str]:
    from ...schedules.bounds.cut_duals import Prices
    from ...solvers import HighsOptions
    from .lp_bounds import lp_bound

    check_collective(collective, COLLECTIVES, "the program of trees is not about")
    columns = topology.num_ranks * len(topology.links) * (2 if collective == "allreduce" else 1)
    if columns > LARGEST_PROGRAM:
        raise UnsupportedError(
            f"the linear program has about {columns} columns; expected up to {LARGEST_PROGRAM} for a comparison: "
            "call collopt.planners.lp_bound to solve it all the same"
        )
    found = lp_bound(topology, collective, **shards, options=HighsOptions(time_limit=TIME_LIMIT))
    scope = found.witness.scope(collective) if isinstance(found.witness, Prices) else ""
    return found, "" if collective != "allreduce" else f"about {scope}"


BOUNDS: dict[str, Callable[[Topology, str, dict[str, Any]], tuple[Bound, str]]] = {
    "forestcoll": _forestcoll_bound,
    "strength": _strength_bound,
    "linear-program": _linear_program_bound,
    "multicommodity": _multicommodity_bound,
}
"""Ways to bound the speed of a collective: each returns a bound, and what it is about if not all schedules."""
