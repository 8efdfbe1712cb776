"""What breadth-first broadcast costs on a network, exactly, without building the schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ...errors import UnsupportedError
from ...schedules import StepCost
from ...schedules.trees.forest import Direction
from ...support.validation import as_whole, shown
from ...topologies import DirectGraph, Topology
from .problem import BfbNetwork, as_chunks, as_graph, read_network

if TYPE_CHECKING:
    from ...solvers.bfb.load_balancing import BusiestSet

__all__ = ["SOLVERS", "BfbLoad", "best_chunks", "bfb_cost", "bfb_loads", "chunked_cost", "fastest_chunks"]

MOST_TRIED = 2**12
USUALLY_TRIED = 64


@dataclass(frozen=True)
class BfbLoad:
    """The busiest set of links at one distance, which says how long that step of any breadth-first broadcast takes.

    No link outside the set brings rank `rank` any of `shards` shards that are due in this step.

    Attributes
    ----------
    distance : int
        The paper's step t, counted from 1: hops from the sources to the rank.
    rank : int
        Into which the links lead.
    links : tuple of (int, int)
        Tail and head of each link of the set.
    shards : int
        What only these links can bring.
    bandwidth : Fraction
        Of the set: arcs of a graph, GB/s of a topology.
    """

    distance: int
    rank: int
    links: tuple[tuple[int, int], ...]
    shards: int
    bandwidth: Fraction

    @property
    def load(self) -> Fraction:
        """The largest U(u, t): shards per arc, or ns per byte of shard."""
        return self.shards / self.bandwidth


def bfb_loads(network: DirectGraph | Topology, *, direction: Direction = "broadcast") -> tuple[BfbLoad, ...]:
    """Find how long each step of the best breadth-first broadcast takes, and why.

    Parameters
    ----------
    network : DirectGraph or Topology
        Without switches; every rank reaches every other.  Links may differ in bandwidth.
    direction : {"broadcast", "reduce"}
        An allgather, or a reduce-scatter; see `bfb_schedule`.

    Returns
    -------
    tuple of BfbLoad
        Of distance 1 to the diameter.

    Raises
    ------
    UnsupportedError
        If there are switches, or too many ranks.
    BoundError
        If some rank cannot reach another.
    CapacityOverflowError
        If exact arithmetic would leave int64.

    Examples
    --------
    Two links bring the shard from the other side of a ring of 4:

    >>> from collopt.topologies import ring
    >>> [(load.links, load.shards, str(load.load)) for load in bfb_loads(ring(4))]
    [(((1, 0),), 1, '1'), (((1, 0), (3, 0)), 1, '1/2')]
    """
    from ...solvers.bfb.load_balancing import busiest_sets

    asked = read_network(network, direction)
    return tuple(
        BfbLoad(
            distance,
            found.rank,
            tuple(zip(asked.tails[found.links].tolist(), asked.heads[found.links].tolist(), strict=True)),
            found.shards,
            found.width * asked.unit,
        )
        for distance, found in enumerate(busiest_sets(asked.intake), start=1)
    )


def bfb_cost(graph: DirectGraph | Topology, *, solver: str = "auto") -> StepCost:
    """Find T_L and T_B of the best breadth-first broadcast: the optimum of linear program (1), exactly.

    Parameters
    ----------
    graph : DirectGraph or Topology
        Regular; every rank reaches every other.
    solver : {"auto", "subsets", "newton", "lp"}
        How: by all sets of links into a rank, by maximum flows, or by linear programs; "auto" takes the first up to ten
        links and the second beyond.  All find the same.

    Returns
    -------
    StepCost
        As `collopt.schedules.step_cost` says of the schedule that `bfb_schedule` makes.

    Raises
    ------
    UnsupportedError
        If there are switches, nodes differ in their number of ports, or for an unknown solver.
    BoundError
        If some rank cannot reach another.
    CapacityOverflowError
        If exact arithmetic would leave int64.

    Examples
    --------
    >>> from collopt.topologies import hypercube
    >>> bfb_cost(hypercube(10))
    StepCost(steps=10, bandwidth_factor=Fraction(1023, 1024))
    """
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise UnsupportedError(f"solver is {shown(solver)}; expected one of {', '.join(SOLVERS)}")
    graph = as_graph(graph)
    return _cost(graph, SOLVERS[solver](graph))


def chunked_cost(graph: DirectGraph | Topology, chunks: int) -> StepCost:
    """Find T_L and T_B of the best breadth-first broadcast of chunks that stay whole: integer program (13), exactly.

    Parameters
    ----------
    graph : DirectGraph or Topology
        As for `bfb_cost`.
    chunks : int
        Per shard, the paper's P.

    Returns
    -------
    StepCost

    Raises
    ------
    UnsupportedError
        As for `bfb_cost`, or if `chunks` is not a whole number of at least 1.
    BoundError, CapacityOverflowError
        As for `bfb_cost`.

    Notes
    -----
    Where no two links are parallel, T_B is ``d / (N P)`` times the sum of ``ceil(P U)`` over the steps, with the U of
    whole shards: each of the paper's rounding errors (Theorem 20) is less than one chunk per step.

    Examples
    --------
    >>> from collopt.topologies import hypercube
    >>> [str(chunked_cost(hypercube(5), chunks).bandwidth_factor) for chunks in (1, 4, 5)]
    ['35/32', '125/128', '31/32']
    """
    from ...solvers.bfb.chunk_times import chunked_times

    parts, graph = as_chunks(chunks), as_graph(graph)
    network, sets = _sets(graph)
    return _cost(graph, [time / parts / network.unit for time in chunked_times(network.intake, sets, parts)])


def best_chunks(graph: DirectGraph | Topology, *, most: int = USUALLY_TRIED) -> int:
    """Find the number of chunks per shard with which breadth-first broadcast is fastest.

    More chunks are not always better: see `chunked_cost`.

    Parameters
    ----------
    graph : DirectGraph or Topology
        Without switches; every rank reaches every other.  Links may differ in bandwidth.
    most : int
        Numbers of chunks to try: 1 to this.

    Returns
    -------
    int
        The least of those that are equally fast.

    Raises
    ------
    UnsupportedError
        If there are switches, or `most` is not a whole number from 1 to 4096.
    BoundError, CapacityOverflowError
        As for `bfb_cost`.

    Examples
    --------
    >>> from collopt.topologies import hypercube
    >>> best_chunks(hypercube(5), most=12)
    5
    """
    tried = as_whole(most, "most", most=MOST_TRIED)
    return fastest_chunks(*_sets(graph), tried)


def fastest_chunks(network: BfbNetwork, sets: Sequence[BusiestSet], most: int) -> int:
    """Try all numbers of chunks, the promising ones with flows; parameters as from `_sets`, and of `best_chunks`."""
    from ...solvers.bfb.chunk_times import chunked_times, least_chunked_times

    least, best, floor = Fraction(0), 0, sum((each.load for each in sets), Fraction(0))
    for chunks in range(1, most + 1):
        if best and sum(least_chunked_times(network.intake, tuple(sets), chunks), Fraction(0)) >= least * chunks:
            continue
        total = sum(chunked_times(network.intake, tuple(sets), chunks), Fraction(0)) / chunks
        if not best or total < least:
            least, best = total, chunks
        if least == floor:
            break
    return best


def _sets(graph: DirectGraph | Topology) -> tuple[BfbNetwork, tuple[BusiestSet, ...]]:
    from ...solvers.bfb.load_balancing import busiest_sets

    network = read_network(graph)
    return network, busiest_sets(network.intake)


def _cost(graph: DirectGraph, loads: Sequence[Fraction]) -> StepCost:
    """Add up shards per arc."""
    return StepCost(len(loads), Fraction(graph.degree, graph.num_nodes) * sum(loads, Fraction(0)))


def _by_sets(method: str) -> Callable[[DirectGraph], list[Fraction]]:
    def loads(graph: DirectGraph) -> list[Fraction]:
        from ...solvers.bfb.load_balancing import METHODS

        network = read_network(graph)
        return [found.load / network.unit for found in METHODS[method](network.intake)]

    return loads


def _by_linear_programs(graph: DirectGraph) -> list[Fraction]:
    """One program of `collopt.formulations.bfb` for each distance, and its exact answer."""
    from ...formulations import bfb
    from ...solvers.highs.session import solve

    topology = graph.topology()
    programs = (bfb.build(topology, distance) for distance in range(1, graph.diameter + 1))
    return [max(solve(program).exact.values["busiest"].values()) for program in programs]


SOLVERS: dict[str, Callable[[DirectGraph], list[Fraction]]] = {
    "auto": _by_sets("auto"),
    "subsets": _by_sets("subsets"),
    "newton": _by_sets("newton"),
    "lp": _by_linear_programs,
}
"""Ways to find the largest load of each step, in shards per arc."""
