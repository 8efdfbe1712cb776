"""What a recipe for a direct-connect topology is, and the simplest one: a base, which needs no other graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...schedules import StepSchedule
    from ...schedules.traffic.collective import Direction
    from ...topologies import DirectGraph, Topology

REVERSE_SYMMETRIC = frozenset(
    {
        "bidirectional_ring",
        "circulant",
        "circulant_digraph",
        "complete",
        "complete_bipartite",
        "de_bruijn",
        "directed_circulant",
        "distance_regular",
        "unidirectional_ring",
    }
)
"""Families whose graphs all are isomorphic to their transposes; of others some may be."""


ALIKE_EVERYWHERE = REVERSE_SYMMETRIC - {"de_bruijn", "distance_regular"}
"""Families whose graphs look the same from every node."""


class Recipe(ABC):
    """A topology as a base or as an expansion of other recipes."""

    @cached_property
    @abstractmethod
    def name(self) -> str:
        """In the direct-connect paper's notation."""

    @property
    @abstractmethod
    def reverse_symmetric(self) -> bool:
        """Whether the graph is isomorphic to its transpose by the way it is made; if not, it still may be."""

    @abstractmethod
    def prototypes(self, degree: int) -> int | None:
        """Count the first nodes of which all others are images by automorphisms that the way it is made tells of."""

    @abstractmethod
    def _graph(self) -> DirectGraph:
        """Build the graph, under any name."""

    @abstractmethod
    def _planned(self, direction: Direction) -> StepSchedule:
        """Make an allgather, or a reduce-scatter, on the graph."""

    def graph(self) -> DirectGraph:
        """Build the graph."""
        return self._graph().renamed(self.name)

    def schedule(self) -> StepSchedule:
        """Make an allgather on `graph` by the theorem that belongs to the recipe; nothing is checked here."""
        return self._planned("broadcast")

    def reduce_scatter(self) -> StepSchedule:
        """Make a reduce-scatter on `graph` by the same theorem; nothing is checked here.

        Direct-connect paper, Corollaries 1.1 and 1.2: it is the reverse of an allgather on the transposed graph, and
        expanding a graph and transposing it can change places.
        """
        return self._planned("reduce")

    def __str__(self) -> str:
        """Return the name."""
        return self.name


@dataclass(frozen=True)
class Base(Recipe):
    """A family of `collopt.topologies` that needs no other graph.

    `family`: The function's name.
    `arguments`: What it is given.
    `title`: What the paper calls it.
    """

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

    def prototypes(self, degree: int) -> int | None:  # noqa: ARG002
        """One where all nodes are alike; half of a generalized Kautz graph, which x to n - 1 - x maps to itself."""
        if self.family == "generalized_kautz":
            _, nodes = self.arguments
            assert isinstance(nodes, int)
            return (nodes + 1) // 2
        return 1 if self.family in ALIKE_EVERYWHERE or (self.family == "de_bruijn" and self.arguments[1] == 1) else None

    def _graph(self) -> DirectGraph:
        return _built(self.family, self.arguments)

    def _planned(self, direction: Direction) -> StepSchedule:
        """Take the schedule that comes with the graph, for those without a good breadth-first one; else plan that."""
        from ...schedules import base_reduce_scatter, base_schedule
        from ...topologies import base_schedule_names

        if self.name not in base_schedule_names():
            return breadth_first(self.graph(), direction)
        return (base_schedule if direction == "broadcast" else base_reduce_scatter)(self.name)


@lru_cache(maxsize=32)
def _built(family: str, arguments: tuple[object, ...]) -> DirectGraph:
    """Build a base once for all recipes of a query that begin with it; nobody can write to its arcs."""
    room = import_module("...topologies", __package__)
    topology: Topology = getattr(room, family)(*arguments)
    return topology.direct_graph()


def breadth_first(graph: DirectGraph, direction: Direction) -> StepSchedule:
    """Plan an allgather or a reduce-scatter on a graph breadth-first."""
    from ..bfb.bfb import bfb_schedule

    return bfb_schedule(graph, direction=direction)
