"""Representative trees of direct-connect networks: an order of the ranks, and one transport problem.

If every rank receives from ranks that come earlier in some order, any choice of senders is a tree.  So each rank takes
one of k units from the orbits of its links to earlier ranks, each orbit gives what its links can carry, and a flow that
serves all is k trees; docs/explanation/symmetry.md says when there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Forest
from ...solvers.flow.max_flow import check_capacities, max_flow
from ...solvers.trees.bottleneck import Bottleneck
from ...support.arrays import BoolArray, IntArray
from ...topologies.graphs.refinement import ColoredNetwork
from ...topologies.graphs.translations import hops_from
from ..trees.problem import TreeProblem

SEEDS = 4  # loose orders that are tried
MAX_ROUTES = 2**28  # entries of the representatives' trees


class _Choices(NamedTuple):
    """From where the ranks of one tree set can receive, in some order."""

    root: int
    links: IntArray  # int64 (ranks, degree): link of each orbit into the rank from an earlier one, -1 for none
    kinds: IntArray  # int64 (ranks,): ranks with the same orbits have the same kind; -1 at the root
    orbits: BoolArray  # (kinds, orbits)


def direct_forest(problem: TreeProblem, best: Bottleneck, roots: IntArray, link_orbits: IntArray, size: int) -> Forest:
    """Pack the trees of representative roots; `link_orbits` int64 (links,), and `size` the members of the group."""
    count = best.capacity
    if count * len(roots) * len(problem.root_weights) > MAX_ROUTES:
        raise UnsupportedError(f"{count} trees for each of {len(roots)} representatives are too many to write down")
    num_orbits = int(link_orbits.max()) + 1
    capacities = np.zeros(num_orbits, dtype=np.int64)
    capacities[link_orbits] = problem.capacities
    check_capacities(int(capacities.max()) * best.supply * len(link_orbits))
    limits = capacities * best.supply * np.bincount(link_orbits) // size
    for orders in _orders(problem, roots):
        choices = [
            _choices(problem, root, order, link_orbits) for root, order in zip(roots.tolist(), orders, strict=True)
        ]
        flows = _flows(choices, limits, count)
        if flows is not None:
            return _forest(problem, choices, flows, count, link_orbits)
    raise UnsupportedError("no order of the ranks was found in which trees of representatives reach the bound")


def _orders(problem: TreeProblem, roots: IntArray) -> Iterator[list[IntArray]]:
    """Yield positions of the ranks, int64 (ranks,) for each root: levels, then levels with ties broken at random."""
    network = ColoredNetwork(problem.tails, problem.heads, problem.capacities, np.zeros(problem.num_nodes, np.int64))
    levels = [hops_from(network, int(root)) for root in roots]
    yield levels
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        yield [np.argsort(np.lexsort((random.random(len(level)), level))) for level in levels]


def _choices(problem: TreeProblem, root: int, order: IntArray, link_orbits: IntArray) -> _Choices:
    ranks, num_orbits = len(problem.root_weights), int(link_orbits.max()) + 1
    earlier = np.flatnonzero((order[problem.tails] < order[problem.heads]) & (problem.heads != root))
    links = np.full((ranks, num_orbits), -1)
    links[problem.heads[earlier], link_orbits[earlier]] = earlier
    orbits, kinds = np.unique(links >= 0, axis=0, return_inverse=True)
    kinds = kinds.ravel()
    kinds[root] = -1
    return _Choices(root, links, kinds, orbits)


def _flows(choices: list[_Choices], limits: IntArray, count: int) -> list[IntArray] | None:
    """Units that each kind of rank takes from each orbit, int64 (kinds, orbits) for each root; None if they are few."""
    orbits = len(limits)
    tails: list[IntArray] = []
    heads: list[IntArray] = []
    capacities: list[IntArray] = []
    demands: list[IntArray] = []
    node = 2 + orbits
    for each in choices:
        wanted = count * np.bincount(each.kinds[each.kinds >= 0], minlength=len(each.orbits))
        kinds, able = np.nonzero(each.orbits)
        own = node + np.arange(len(wanted))
        tails += [2 + able, own]
        heads += [node + kinds, np.ones_like(own)]
        capacities += [np.repeat(wanted, each.orbits.sum(axis=1)), wanted]
        demands.append(wanted)
        node += len(wanted)
    tails.append(np.zeros(orbits, dtype=np.int64))
    heads.append(2 + np.arange(orbits))
    capacities.append(limits)
    flow = max_flow(node, np.concatenate(tails), np.concatenate(heads), np.concatenate(capacities), 0, 1)
    if flow.value < sum(int(each.sum()) for each in demands):
        return None
    carried, done, found = flow.residual[1::2], 0, []
    for each in choices:
        units = np.zeros(each.orbits.shape, dtype=np.int64)
        taken = int(each.orbits.sum())
        units[each.orbits] = carried[done : done + taken]
        done += taken + len(each.orbits)
        found.append(units)
    return found


def _forest(
    problem: TreeProblem, choices: list[_Choices], flows: list[IntArray], count: int, link_orbits: IntArray
) -> Forest:
    """Give the j-th unit of each rank to tree j; equal trees become one."""
    ranks = len(problem.root_weights)
    roots, weights, rows = [], [], []
    for each, units in zip(choices, flows, strict=True):
        routes = np.full((count, ranks), -1)
        for kind, row in enumerate(units):
            members = np.flatnonzero(each.kinds == kind)
            taken = np.repeat(np.arange(len(row)), row).reshape(count, len(members))
            routes[:, members] = each.links[members, taken]
        distinct, copies = np.unique(routes, axis=0, return_counts=True)
        rows.append(distinct)
        weights.append(copies)
        roots.append(np.full(len(copies), each.root))
    table = np.concatenate(rows)
    used = np.unique(table[table >= 0])
    number = np.full(len(link_orbits) + 1, -1)
    number[used] = np.arange(len(used))
    shards = np.zeros(ranks, dtype=np.int64)
    shards[[each.root for each in choices]] = 1
    return Forest(
        ranks,
        count,
        np.concatenate(roots),
        np.concatenate(weights),
        number[table].astype(np.int32),
        2 * np.arange(len(used) + 1),
        np.column_stack([problem.tails[used], problem.heads[used]]).ravel(),
        shards,
        problem.direction,
    )
