"""Validated input of the tree planners."""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from ...errors import BoundError, UnsupportedError
from ...schedules.collective import TREE_COLLECTIVES, Collective, Direction, as_collective, as_weights
from ...support.arrays import IntArray, distances_from
from ...support.validation import as_whole, shown
from ...topologies import Topology
from ...topologies.network.links import as_root
from ...topologies.network.topology import as_topology

MAX_TREES_PER_ROOT = 2**20
MAX_WEIGHT = 10**12


class TreeProblem(NamedTuple):
    """Input of tree planners: links in the direction from roots to leaves."""

    topology: Topology
    direction: Direction  # with "reduce", links are turned around
    tails: IntArray  # int64 (links,); as in `Topology.arrays`
    heads: IntArray  # int64 (links,); as in `Topology.arrays`
    capacities: IntArray  # int64 (links,); as in `Topology.arrays`
    root_weights: IntArray  # int64 (ranks,); sizes of the shards, without a common divisor

    @property
    def num_nodes(self) -> int:
        """Ranks and switches."""
        return len(self.topology.nodes)


def tree_problem(topology: Topology, direction: Direction, weights: tuple[int, ...]) -> TreeProblem:
    """Check that trees for these shards exist, and build the `TreeProblem`."""
    problem = cut_problem(topology, direction, weights)
    _check_balanced(topology)
    return problem


def cut_problem(topology: Topology, direction: Direction, weights: tuple[int, ...]) -> TreeProblem:
    """Build a `TreeProblem` for cuts only, which bound schedules even where switches are unbalanced."""
    tails, heads, capacities, _ = topology.arrays
    ends = (tails, heads) if direction == "broadcast" else (heads, tails)
    shards = np.array(weights or [1] * topology.num_ranks, dtype=np.int64)
    problem = TreeProblem(topology, direction, *ends, capacities, shards)
    _check_reachable(problem)
    return problem


def check_reachable(
    topology: Topology,
    collective: Collective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> None:
    """Raise `BoundError` unless every root reaches every rank; parameters as for `collopt.bound`."""
    collective = check_request(topology, collective)
    direction = collective.phases[-1]  # where all ranks are roots, either direction needs the same
    cut_problem(topology, direction, shard_weights(topology, collective, root, weights))


def shard_weights(
    topology: Topology, collective: Collective, root: int | str | None, weights: Sequence[object] | None
) -> tuple[int, ...]:
    """Convert `root` or `weights` to integer weights of the shards; empty for equal ones."""
    if collective.has_one_root:
        if root is None:
            raise UnsupportedError(f"{collective} needs a root; name one of the ranks 0..{topology.num_ranks - 1}")
        if weights is not None:
            raise UnsupportedError(f"{collective} has one shard, that of its root; leave weights out")
        number = as_root(topology.compute_nodes, root)
        return tuple(int(rank == number) for rank in range(topology.num_ranks))
    if root is not None:
        raise UnsupportedError(f"{collective} has no root; leave root={shown(root)} out")
    if weights is None:
        return ()
    if not collective.is_sharded:
        raise UnsupportedError(f"{collective} takes no weights; only allgather and reduce_scatter do")
    integers = whole_numbers(as_weights(weights, topology.num_ranks))
    if sum(integers) > MAX_WEIGHT:
        raise UnsupportedError(f"the weights need more than {MAX_WEIGHT} equal parts; round them to fewer digits")
    return () if set(integers) == {1} else integers


def check_request(topology: object, collective: object) -> Collective:
    """Look up a collective; raise `UnsupportedError` unless tree planners support it."""
    as_topology(topology)
    return as_collective(collective, TREE_COLLECTIVES, "trees do not implement")


def checked_count(trees_per_root: int) -> int:
    """Read a number of trees per root, or raise `UnsupportedError`."""
    return as_whole(trees_per_root, "trees_per_root", high=MAX_TREES_PER_ROOT)


def tree_options(in_network: bool, trees_per_root: int | None = None) -> dict[str, int | str]:
    """Options of a plan: whether switches copy and add, and the number of trees, where these are not the default."""
    options: dict[str, int | str] = {} if in_network else {"in_network": 0}
    return options | ({} if trees_per_root is None else {"trees_per_root": trees_per_root})


def whole_numbers(amounts: Sequence[Fraction]) -> tuple[int, ...]:
    """Scale fractions to coprime integers."""
    scale = lcm(*(amount.denominator for amount in amounts))
    scaled = [int(amount * scale) for amount in amounts]
    common = gcd(*scaled)
    return tuple(amount // common for amount in scaled)


def _check_reachable(problem: TreeProblem) -> None:
    """Every root must reach every rank: the first root all ranks, and all roots the first one."""
    roots = np.flatnonzero(problem.root_weights)
    first = int(roots[0])
    ahead = distances_from(first, problem.num_nodes, problem.tails, problem.heads)
    back = distances_from(first, problem.num_nodes, problem.heads, problem.tails)
    missing = [(first, rank) for rank in range(problem.topology.num_ranks) if ahead[rank] < 0]
    missing += [(int(root), first) for root in roots if back[root] < 0]
    if missing:
        pair = missing[0] if problem.direction == "broadcast" else missing[0][::-1]
        source, target = (problem.topology.nodes[node] for node in pair)
        advice = "add links (each runs one way unless it is bidirectional), or leave ranks out"
        raise BoundError(f"there is no path from rank {source!r} to rank {target!r} in {problem.topology}; {advice}")


def _check_balanced(topology: Topology) -> None:
    tails, heads, capacities, unit = topology.arrays
    ingress, egress = np.zeros((2, len(topology.nodes)), dtype=np.int64)
    np.add.at(ingress, heads, capacities)
    np.add.at(egress, tails, capacities)
    for number in np.flatnonzero(ingress != egress):
        if number >= topology.num_ranks:
            branches = topology.multicast | topology.aggregation
            way_out = "; the planner 'steiner' takes small networks as they are" if branches else ""
            raise UnsupportedError(
                f"switch {topology.nodes[number]!r} has {float(ingress[number] * unit):g} GB/s ingress and "
                f"{float(egress[number] * unit):g} GB/s egress; expected equal values, since edge splitting pairs "
                f"them: add the missing direction or lower the larger one{way_out}"
            )
