"""How a direct-connect topology is put together, step by step, and with it its schedule.

A recipe is a small tree of names and numbers: the finder compares many thousands and builds only the few that it
returns.  `Recipe.graph` and `Recipe.schedule` carry it out.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..schedules import StepSchedule
    from ..topologies import DirectGraph

__all__ = [
    "Base",
    "CartesianPower",
    "CartesianProduct",
    "DegreeExpansion",
    "LineGraph",
    "Parallel",
    "Recipe",
    "TwoWay",
]


class Recipe(ABC):
    """A topology as a base or as an expansion of other recipes."""

    @cached_property
    @abstractmethod
    def name(self) -> str:
        """In the direct-connect paper's notation."""

    @abstractmethod
    def _graph(self) -> DirectGraph:
        """Build the graph, under any name."""

    @abstractmethod
    def schedule(self) -> StepSchedule:
        """Make an allgather on `graph` by the theorem that belongs to the recipe; nothing is checked here.

        Returns
        -------
        StepSchedule
        """

    def graph(self) -> DirectGraph:
        """Build the graph.

        Returns
        -------
        DirectGraph
            Called `name`.
        """
        return self._graph().renamed(self.name)

    def __str__(self) -> str:
        """Return the name."""
        return self.name


@dataclass(frozen=True)
class Base(Recipe):
    """A family of `collopt.topologies` that needs no other graph.

    Attributes
    ----------
    family : str
        The function's name.
    arguments : tuple
        What it is given.
    title : str
        What the paper calls it.
    """

    family: str
    arguments: tuple[object, ...]
    title: str

    @cached_property
    def name(self) -> str:
        """As in Table 9."""
        return self.title

    def _graph(self) -> DirectGraph:
        from ..topologies import DirectGraph

        room = import_module("..topologies", __package__)
        return DirectGraph.of(getattr(room, self.family)(*self.arguments))

    def schedule(self) -> StepSchedule:
        """Take the schedule that comes with the graph, for those without a good breadth-first one; else plan that."""
        from ..schedules import base_schedule
        from ..topologies import base_schedule_names

        return base_schedule(self.name) if self.name in base_schedule_names() else _breadth_first(self.graph())


@dataclass(frozen=True)
class LineGraph(Recipe):
    """L(G), with the schedule of Definition 1."""

    base: Recipe

    @cached_property
    def name(self) -> str:
        """L(G), or L^n(G) if it is one of a line graph."""
        times, base = 1, self.base
        while isinstance(base, LineGraph):
            times, base = times + 1, base.base
        return f"L({base.name})" if times == 1 else f"L^{times}({base.name})"

    def _graph(self) -> DirectGraph:
        from ..topologies.expansions import line_graph

        return line_graph(self.base.graph())

    def schedule(self) -> StepSchedule:
        """Expand the base's schedule by Definition 1."""
        from ..schedules.expansions import line_graph_schedule

        return line_graph_schedule(self.base.graph(), self.base.schedule())


@dataclass(frozen=True)
class DegreeExpansion(Recipe):
    """G * n, with the schedule of Definition 2."""

    base: Recipe
    copies: int

    @cached_property
    def name(self) -> str:
        """G*n."""
        return f"{_operand(self.base)}*{self.copies}"

    def _graph(self) -> DirectGraph:
        from ..topologies.expansions import degree_expansion

        return degree_expansion(self.base.graph(), self.copies)

    def schedule(self) -> StepSchedule:
        """Expand the base's schedule by Definition 2."""
        from ..schedules.expansions import degree_expansion_schedule

        return degree_expansion_schedule(self.base.graph(), self.copies, self.base.schedule())


@dataclass(frozen=True)
class CartesianPower(Recipe):
    """G^□n, with the schedule of Definition 14."""

    base: Recipe
    times: int

    @cached_property
    def name(self) -> str:
        """G^□n."""
        return f"{_operand(self.base)}^□{self.times}"

    def _graph(self) -> DirectGraph:
        from ..topologies.expansions import cartesian_power

        return cartesian_power(self.base.graph(), self.times)

    def schedule(self) -> StepSchedule:
        """Expand the base's schedule by Definition 14."""
        from ..schedules.expansions import cartesian_power_schedule

        return cartesian_power_schedule(self.base.graph(), self.times, self.base.schedule())


@dataclass(frozen=True)
class CartesianProduct(Recipe):
    """A product of graphs that each have a bandwidth-optimal breadth-first schedule, and so has one (Theorem 13).

    Attributes
    ----------
    factors : tuple of Recipe
        Those that are equal next to each other.
    """

    factors: tuple[Recipe, ...]

    @cached_property
    def name(self) -> str:
        """Factors joined by □, equal ones as a power."""
        counts = Counter(map(_operand, self.factors))
        return " □ ".join(name if times == 1 else f"{name}^□{times}" for name, times in counts.items())

    def _graph(self) -> DirectGraph:
        from ..topologies.expansions import cartesian_product

        return cartesian_product(*(factor.graph() for factor in self.factors))

    def schedule(self) -> StepSchedule:
        """Plan breadth-first broadcast on the product."""
        return _breadth_first(self.graph())


@dataclass(frozen=True)
class Parallel(Recipe):
    """k links in place of each: the same schedule takes as long, for each port has 1/k of the bandwidth."""

    base: Recipe
    times: int

    @cached_property
    def name(self) -> str:
        """k·G."""
        return f"{self.times}·{_operand(self.base)}"

    def _graph(self) -> DirectGraph:
        from ..topologies.expansions import parallel

        return parallel(self.base.graph(), self.times)

    def schedule(self) -> StepSchedule:
        """Return the base's own: links between the same two ranks are one link."""
        return self.base.schedule()


@dataclass(frozen=True)
class TwoWay(Recipe):
    """G ∪ G^T of a graph that is its own transpose up to the order of the nodes (appendix A.6)."""

    base: Recipe

    @cached_property
    def name(self) -> str:
        """G ∪ G^T."""
        return f"{_operand(self.base)} ∪ {_operand(self.base)}^T"

    def _graph(self) -> DirectGraph:
        from ..topologies.expansions import bidirectional

        return bidirectional(self.base.graph())

    def schedule(self) -> StepSchedule:
        """Let half of each shard take the base's schedule and half the same in the opposite direction."""
        from ..schedules.expansions import bidirectional_schedule

        return bidirectional_schedule(self.base.graph(), self.base.schedule())


def _operand(recipe: Recipe) -> str:
    """Name a recipe so that an operator can follow."""
    bare = isinstance(recipe, (Base, LineGraph)) and not re.search(r"[□∪*·]", re.sub(r"\(.*\)", "", recipe.name))
    return recipe.name if bare else f"({recipe.name})"


def _breadth_first(graph: DirectGraph) -> StepSchedule:
    from .bfb import bfb_schedule

    return bfb_schedule(graph)
