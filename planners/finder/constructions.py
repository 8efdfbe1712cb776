"""How a direct-connect topology is put together, step by step, and with it its schedules.

A recipe is a small tree of names and numbers: the finder compares many thousands and builds only the few that it
returns.  `Recipe.graph`, `Recipe.schedule` and `Recipe.reduce_scatter` carry it out.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from .base_construction import Base, Recipe, breadth_first

if TYPE_CHECKING:
    from ...schedules import StepSchedule
    from ...schedules.traffic.collective import Direction
    from ...topologies import DirectGraph

__all__ = [
    "Base",
    "CartesianPower",
    "CartesianProduct",
    "DegreeExpansion",
    "Expansion",
    "LineGraph",
    "Parallel",
    "Recipe",
    "Transpose",
    "TwoWay",
    "transposed",
]


@dataclass(frozen=True)
class Expansion(Recipe):
    """What is made of one other recipe."""

    base: Recipe

    @property
    def reverse_symmetric(self) -> bool:
        """If the base is."""
        return self.base.reverse_symmetric

    def prototypes(self, degree: int) -> int | None:
        """Those of the base."""
        return self.base.prototypes(degree)

    def _old(self, direction: Direction) -> StepSchedule:
        return self.base.schedule() if direction == "broadcast" else self.base.reduce_scatter()


@dataclass(frozen=True)
class Transpose(Expansion):
    """G^T, all links reversed, with the base's schedules run backwards."""

    @cached_property
    def name(self) -> str:
        """G^T."""
        return f"{_operand(self.base)}^T"

    def _graph(self) -> DirectGraph:
        return self.base.graph().transpose()

    def _planned(self, direction: Direction) -> StepSchedule:
        from ...schedules import reversed_schedule

        return reversed_schedule(self._old("reduce" if direction == "broadcast" else "broadcast"))


@dataclass(frozen=True)
class LineGraph(Expansion):
    """L(G), with the schedule of Definition 1."""

    @cached_property
    def name(self) -> str:
        """L(G), or L^n(G) if it is one of a line graph."""
        times, base = 1, self.base
        while isinstance(base, LineGraph):
            times, base = times + 1, base.base
        return f"L({base.name})" if times == 1 else f"L^{times}({base.name})"

    def prototypes(self, degree: int) -> int | None:
        """All arcs out of the base's, which are the first arcs."""
        count = self.base.prototypes(degree)
        return count and count * degree

    def _graph(self) -> DirectGraph:
        from ...topologies.graphs.expansions import line_graph

        return line_graph(self.base.graph())

    def _planned(self, direction: Direction) -> StepSchedule:
        from ...schedules.expansions.expansions import line_graph_schedule

        return line_graph_schedule(self.base.graph(), self._old(direction))


@dataclass(frozen=True)
class DegreeExpansion(Expansion):
    """G * n, with the schedule of Definition 2."""

    copies: int

    @cached_property
    def name(self) -> str:
        """G*n."""
        return f"{_operand(self.base)}*{self.copies}"

    def prototypes(self, degree: int) -> int | None:
        """Up to the first copy of the last of the base's: copies of a node can change places."""
        count = self.base.prototypes(degree // self.copies)
        return count and (count - 1) * self.copies + 1

    def _graph(self) -> DirectGraph:
        from ...topologies.graphs.expansions import degree_expansion

        return degree_expansion(self.base.graph(), self.copies)

    def _planned(self, direction: Direction) -> StepSchedule:
        from ...schedules.expansions.expansions import degree_expansion_schedule

        return degree_expansion_schedule(self.base.graph(), self.copies, self._old(direction))


@dataclass(frozen=True)
class CartesianPower(Expansion):
    """G^□n, with the schedule of Definition 14."""

    times: int

    @cached_property
    def name(self) -> str:
        """G^□n."""
        return f"{_operand(self.base)}^□{self.times}"

    def prototypes(self, degree: int) -> int | None:
        """One if all nodes of the base are alike."""
        return 1 if self.base.prototypes(degree // self.times) == 1 else None

    def _graph(self) -> DirectGraph:
        from ...topologies.graphs.expansions import cartesian_power

        return cartesian_power(self.base.graph(), self.times)

    def _planned(self, direction: Direction) -> StepSchedule:
        from ...schedules.expansions.expansions import cartesian_power_schedule

        return cartesian_power_schedule(self.base.graph(), self.times, self._old(direction))


@dataclass(frozen=True)
class CartesianProduct(Recipe):
    """A product of graphs that each have a bandwidth-optimal breadth-first schedule, and so has one (Theorem 13).

    `factors`: Those that are equal next to each other.
    """

    factors: tuple[Recipe, ...]

    @cached_property
    def name(self) -> str:
        """Factors joined by □, equal ones as a power."""
        counts = Counter(map(_operand, self.factors))
        return " □ ".join(name if times == 1 else f"{name}^□{times}" for name, times in counts.items())

    @property
    def reverse_symmetric(self) -> bool:
        """If all factors are."""
        return all(factor.reverse_symmetric for factor in self.factors)

    def prototypes(self, degree: int) -> int | None:
        """One if all nodes of each factor are alike; where they are, they are so in any degree."""
        return 1 if all(factor.prototypes(degree) == 1 for factor in self.factors) else None

    def _graph(self) -> DirectGraph:
        from ...topologies.graphs.expansions import cartesian_product

        return cartesian_product(*(factor.graph() for factor in self.factors))

    def _planned(self, direction: Direction) -> StepSchedule:
        return breadth_first(self.graph(), direction)


@dataclass(frozen=True)
class Parallel(Expansion):
    """k links in place of each: the same schedule takes as long, for each port has 1/k of the bandwidth."""

    times: int

    @cached_property
    def name(self) -> str:
        """k·G."""
        return f"{self.times}·{_operand(self.base)}"

    def prototypes(self, degree: int) -> int | None:
        """Those of the base."""
        return self.base.prototypes(degree // self.times)

    def _graph(self) -> DirectGraph:
        from ...topologies.graphs.expansions import parallel

        return parallel(self.base.graph(), self.times)

    def _planned(self, direction: Direction) -> StepSchedule:
        """Take the base's own: links between the same two ranks are one link."""
        return self._old(direction)


@dataclass(frozen=True)
class TwoWay(Expansion):
    """G ∪ G^T of a graph that is its own transpose up to the order of the nodes (appendix A.6).

    Half of each shard takes the base's schedule, and half the same in the opposite direction.
    """

    @cached_property
    def name(self) -> str:
        """G ∪ G^T."""
        return f"{_operand(self.base)} ∪ {_operand(self.base)}^T"

    @property
    def reverse_symmetric(self) -> bool:
        """Yes: each link has an opposite one."""
        return True

    def prototypes(self, degree: int) -> int | None:
        """Those of the base, for what maps it to itself does so with its transpose."""
        return self.base.prototypes(degree // 2)

    def _graph(self) -> DirectGraph:
        from ...topologies.graphs.expansions import bidirectional

        return bidirectional(self.base.graph())

    def _planned(self, direction: Direction) -> StepSchedule:
        from ...schedules.expansions.expansions import bidirectional_schedule

        return bidirectional_schedule(self.base.graph(), self._old(direction))


def transposed(recipe: Recipe) -> Recipe:
    """Make the recipe of the transposed graph, up to the order of the nodes.

    >>> print(transposed(CartesianPower(LineGraph(Base("diamond", (), "Diamond")), 2)))
    L(Diamond^T)^□2
    """
    if recipe.reverse_symmetric:
        return recipe
    if isinstance(recipe, Transpose):
        return recipe.base
    if isinstance(recipe, CartesianProduct):
        return CartesianProduct(tuple(map(transposed, recipe.factors)))
    if isinstance(recipe, Expansion):
        return replace(recipe, base=transposed(recipe.base))
    return Transpose(recipe)


def _operand(recipe: Recipe) -> str:
    """Name a recipe so that an operator can follow."""
    bare = isinstance(recipe, (Base, LineGraph)) and not re.search(r"[□∪*·]", re.sub(r"\(.*\)", "", recipe.name))
    return recipe.name if bare else f"({recipe.name})"
