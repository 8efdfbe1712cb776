"""Lookup of the collective and the planners that a command names, before any other work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...schedules import Collective


def check_planners(names: Iterable[str]) -> None:
    """Raise `UnsupportedError` for an unknown planner, before any other work."""
    from ...planners.registry import as_planner

    for name in names:
        as_planner(name)


def size_option(planner: str, collective: Collective, size: str | None) -> dict[str, Any]:
    """Return the size option for a planner that has one."""
    return {} if size is None or not takes_option(planner, collective, "size") else {"size": size}


def takes_option(planner: str, collective: Collective, name: str) -> bool:
    """Whether a planner has an option for a collective."""
    from ...planners import PLANNERS

    return planner in PLANNERS and PLANNERS[planner].takes(collective, name)
