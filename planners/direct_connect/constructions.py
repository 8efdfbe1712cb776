"""Constructions of direct-connect topologies together with their schedules.

A construction is a small tree of names and numbers: the finder compares many thousands and builds only the few that it
returns.  `Construction.graph` and `Construction.schedule` carry it out.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar

from ... import topologies
from ...schedules import StepSchedule, base_reduce_scatter, base_schedule, reversed_schedule
from ...schedules.collective import Direction
from ...schedules.steps import expansions as schedule_expansions
from ...support.arrays import IntArray
from ...topologies import DirectGraph, Topology
from ...topologies.direct_connect import expansions as graph_expansions
from ...topologies.direct_connect.optimal_broadcasts import base_schedule_names
from ...topologies.symmetry.isomorphism import link_images
from ..all_to_all.flows import found_automorphisms
from .bfb import bfb_schedule

VERTEX_TRANSITIVE = {
    *("bidirectional_ring", "circulant", "circulant_digraph", "complete"),
    *("complete_bipartite", "directed_circulant", "metacirculant_digraph", "unidirectional_ring"),
}
REVERSE_SYMMETRIC = VERTEX_TRANSITIVE - {"metacirculant_digraph"} | {"de_bruijn", "distance_regular"}
"""Families whose graphs all are isomorphic to their transposes; of others some may be."""


class Construction(ABC):
    """A topology as a base or as an expansion of other constructions."""

    @cached_property
    @abstractmethod
    def name(self) -> str:
        """In the direct-connect paper's notation."""

    @property
    @abstractmethod
    def reverse_symmetric(self) -> bool:
        """Whether the construction implies that the graph is isomorphic to its transpose."""

    @abstractmethod
    def orbit_representatives(self, degree: int) -> int | None:
        """Number of first nodes that represent all orbits under the automorphisms implied by the construction."""

    def symmetries(self) -> IntArray:
        """Automorphisms of `graph`, int64 (found, nodes)."""
        return found_automorphisms(self.graph())

    @abstractmethod
    def _graph(self) -> DirectGraph:
        """Build the graph, under any name."""

    def schedule(self, direction: Direction = "broadcast") -> StepSchedule:
        """Build an allgather on `graph` by the construction's theorem, or a reduce-scatter; by default breadth-first.

        It is not verified here.  A reduce-scatter is a reversed allgather on the transpose (Corollaries 1.1 and 1.2).
        """
        return bfb_schedule(self.graph(), direction=direction)

    def graph(self) -> DirectGraph:
        """Build the graph."""
        return self._graph().renamed(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Base(Construction):
    """A family of `collopt.topologies`: function name, arguments, and the name in the paper (Table 9)."""

    family: str
    arguments: tuple[object, ...]
    title: str

    @cached_property
    def name(self) -> str:
        """As in Table 9."""
        return self.title

    @property
    def reverse_symmetric(self) -> bool:
        """Whether all graphs of the family are."""
        return self.family in REVERSE_SYMMETRIC

    def orbit_representatives(self, degree: int) -> int | None:  # noqa: ARG002
        """1 if vertex-transitive; half of a generalized Kautz graph, by the automorphism x to n - 1 - x."""
        if self.family == "generalized_kautz":
            _, nodes = self.arguments
            assert isinstance(nodes, int)
            return (nodes + 1) // 2
        is_complete = self.family == "de_bruijn" and self.arguments[1] == 1
        return 1 if is_complete or self.family in VERTEX_TRANSITIVE else None

    def _graph(self) -> DirectGraph:
        return _graph_of(self.family, self.arguments)

    def schedule(self, direction: Direction = "broadcast") -> StepSchedule:
        """Use the stored schedule of graphs without a good breadth-first one."""
        if self.name not in base_schedule_names():
            return super().schedule(direction)
        return (base_schedule if direction == "broadcast" else base_reduce_scatter)(self.name)


@lru_cache(maxsize=32)
def _graph_of(family: str, arguments: tuple[object, ...]) -> DirectGraph:
    """Build a base, cached for all constructions that use it; its arcs are read-only."""
    topology: Topology = getattr(topologies, family)(*arguments)
    return topology.direct_graph()


@dataclass(frozen=True)
class Expansion(Construction):
    """An expansion of one other construction, by the function `expansion` of `collopt.topologies`."""

    expansion: ClassVar[str]
    notation: ClassVar[str]
    """Of the name: `base` as an operand, and the number of times, where it has one, by position."""

    base: Construction
    times: int = 1

    @cached_property
    def name(self) -> str:
        """In the paper's notation."""
        return self.notation.format(self.times, base=_operand(self.base))

    @property
    def reverse_symmetric(self) -> bool:
        """If the base is."""
        return self.base.reverse_symmetric

    def orbit_representatives(self, degree: int) -> int | None:
        """Those of the base."""
        return self.base.orbit_representatives(degree)

    @property
    def _factor(self) -> tuple[int, ...]:
        """The number of times, which expansions take whose name has it."""
        return (self.times,) if "{}" in self.notation else ()

    def _graph(self) -> DirectGraph:
        graph: DirectGraph = getattr(graph_expansions, self.expansion)(self.base.graph(), *self._factor)
        return graph

    def schedule(self, direction: Direction = "broadcast") -> StepSchedule:
        """Expand that of the base."""
        expand = getattr(schedule_expansions, f"{self.expansion}_schedule")
        schedule: StepSchedule = expand(self.base.graph(), *self._factor, self.base.schedule(direction))
        return schedule


@dataclass(frozen=True)
class Transpose(Expansion):
    """G^T, all links reversed, with the base's schedules run backwards."""

    notation: ClassVar[str] = "{base}^T"

    def _graph(self) -> DirectGraph:
        return self.base.graph().transpose()

    def schedule(self, direction: Direction = "broadcast") -> StepSchedule:
        """Reverse the base's of the other direction."""
        return reversed_schedule(self.base.schedule("reduce" if direction == "broadcast" else "broadcast"))


@dataclass(frozen=True)
class LineGraph(Expansion):
    """L(G), with the schedule of Definition 1."""

    expansion: ClassVar[str] = "line_graph"
    notation: ClassVar[str] = "L({base})"

    @cached_property
    def name(self) -> str:
        """L(G), or L^n(G) if it is one of a line graph."""
        times, base = 1, self.base
        while isinstance(base, LineGraph):
            times, base = times + 1, base.base
        return f"L({base.name})" if times == 1 else f"L^{times}({base.name})"

    def symmetries(self) -> IntArray:
        """Those of the base, which permute its arcs."""
        base = self.base.graph()
        return link_images(*base.adjacency, self.base.symmetries()) if base.is_simple else super().symmetries()

    def orbit_representatives(self, degree: int) -> int | None:
        """All arcs out of the base's, which are the first arcs."""
        count = self.base.orbit_representatives(degree)
        return count and count * degree


@dataclass(frozen=True)
class DegreeExpansion(Expansion):
    """G * n, with the schedule of Definition 2."""

    expansion: ClassVar[str] = "degree_expansion"
    notation: ClassVar[str] = "{base}*{}"

    def orbit_representatives(self, degree: int) -> int | None:
        """Up to the first copy of the last of the base's: copies of a node can change places."""
        count = self.base.orbit_representatives(degree // self.times)
        return count and (count - 1) * self.times + 1


@dataclass(frozen=True)
class CartesianPower(Expansion):
    """G^□n, with the schedule of Definition 14."""

    expansion: ClassVar[str] = "cartesian_power"
    notation: ClassVar[str] = "{base}^□{}"

    def orbit_representatives(self, degree: int) -> int | None:
        """1 if the base is vertex-transitive."""
        return 1 if self.base.orbit_representatives(degree // self.times) == 1 else None


@dataclass(frozen=True)
class CartesianProduct(Construction):
    """A product of graphs with a bandwidth-optimal breadth-first schedule each (Theorem 13); equal ones adjacent."""

    factors: tuple[Construction, ...]

    @cached_property
    def name(self) -> str:
        """Factors joined by □, equal ones as a power."""
        counts = Counter(map(_operand, self.factors))
        return " □ ".join(name if times == 1 else f"{name}^□{times}" for name, times in counts.items())

    @property
    def reverse_symmetric(self) -> bool:
        """If all factors are."""
        return all(factor.reverse_symmetric for factor in self.factors)

    def orbit_representatives(self, degree: int) -> int | None:
        """1 if all factors are vertex-transitive, in any degree."""
        return 1 if all(factor.orbit_representatives(degree) == 1 for factor in self.factors) else None

    def _graph(self) -> DirectGraph:
        return graph_expansions.cartesian_product(*(factor.graph() for factor in self.factors))


@dataclass(frozen=True)
class Parallel(Expansion):
    """k·G, k links in place of each: the base's schedule takes as long, for each port has 1/k of the bandwidth."""

    expansion: ClassVar[str] = "parallel"
    notation: ClassVar[str] = "{}·{base}"

    def orbit_representatives(self, degree: int) -> int | None:
        """Those of the base."""
        return self.base.orbit_representatives(degree // self.times)

    def schedule(self, direction: Direction = "broadcast") -> StepSchedule:
        """Take the base's own: links between the same two ranks are one link."""
        return self.base.schedule(direction)


@dataclass(frozen=True)
class TwoWay(Expansion):
    """G ∪ G^T where G is isomorphic to G^T: half of each shard takes either direction (appendix A.6)."""

    expansion: ClassVar[str] = "bidirectional"
    notation: ClassVar[str] = "{base} ∪ {base}^T"

    @property
    def reverse_symmetric(self) -> bool:
        """Yes: each link has an opposite one."""
        return True

    def orbit_representatives(self, degree: int) -> int | None:
        """Those of the base, for what maps it to itself does so with its transpose."""
        return self.base.orbit_representatives(degree // 2)


def transposed(construction: Construction) -> Construction:
    """Construct the transposed graph, up to the order of the nodes."""
    if construction.reverse_symmetric:
        return construction
    if isinstance(construction, Transpose):
        return construction.base
    if isinstance(construction, CartesianProduct):
        return CartesianProduct(tuple(map(transposed, construction.factors)))
    if isinstance(construction, Expansion):
        return replace(construction, base=transposed(construction.base))
    return Transpose(construction)


def _operand(construction: Construction) -> str:
    """Name of a construction as an operand, in parentheses if needed."""
    bare = isinstance(construction, (Base, LineGraph)) and not re.search(
        r"[□∪*·]", re.sub(r"\(.*\)", "", construction.name)
    )
    return construction.name if bare else f"({construction.name})"
