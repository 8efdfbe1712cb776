"""Check of a forest that every plan's certificate rests on, whether its trees are all written down or not.

It shares no code with the planners, the solvers or the methods of `Forest`: it reads the arrays and the topology's
links and nothing else.  Every step is linear in the size of the forest but one, which takes ``log2(N)`` rounds.

Of a symmetric forest not all trees are written down.  Generators that commute make at most as many products as their
orders multiply to; if every orbit of ranks has that many members, these products are different, and only the identity
fixes a rank.  So each rank is the image of one representative under one product, and the load of all trees on a link
follows from those of the representatives on its orbit; docs/explanation/symmetry.md has the proof.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import lcm, prod
from typing import Any, NamedTuple

import numpy as np

from ...errors import CertificateError
from ...support.arrays import BoolArray, IntArray, orbits
from ...support.validation import shown
from ...topologies import Topology
from ..demands import Demands
from ..path_checks import Hops, check_arrays, check_halves, checked_paths, refuse_if, verified_hops
from ..schedule import Schedule
from .tree_arrays import TreeArrays
from .tree_schedule import Trees

LOAD_LIMIT = 2**62
BLOCK_ENTRIES = 2**19  # tree entries that are checked at a time, so that they fit the processor's cache


def verified_forest(forest: TreeArrays, topology: Topology) -> IntArray:
    """Verify a forest on a topology, and sum the tree copies on every link; int64 (links,).

    Checked: the arrays fit together; every route follows links of the topology, passes only switches and no node twice;
    every tree reaches every rank from its root, and branches at switches that can, within their limits; the weights of
    each root's trees add up to `trees_per_root`.
    """
    return _verified(forest, topology)


class _Reach(NamedTuple):
    """Ranks that each tree begins at and has to reach, bool (trees, ranks)."""

    has: BoolArray
    targets: BoolArray


def _verified(forest: TreeArrays, topology: Topology, reach: _Reach | None = None) -> IntArray:
    """Verify trees; by default each begins at its root and reaches all ranks, and those of a root have its weight."""
    _check_shapes(forest, topology.num_ranks)
    if reach is None:
        _check_weights(forest)
    _check_switches(forest, topology)
    switches = frozenset(forest.switches.tolist())
    hops = verified_hops(forest.path_starts, forest.path_nodes, topology, "forest", forest.direction, switches)
    # A path takes a link once, and a copy that a switch sends back once more.
    copies_each = forest.num_ranks + 2 * len(forest.switches)
    if sum(forest.weights.tolist()) * copies_each >= LOAD_LIMIT:
        raise CertificateError(f"{forest.trees_per_root} trees per root could overflow the 64-bit sums of this check")
    copies, back = np.zeros((2, len(forest.path_starts) - 1), dtype=np.int64)
    for trees, parents in _checked_blocks(forest, reach):
        used = forest.routes[trees] >= 0
        weights = np.broadcast_to(forest.weights[trees, None], used.shape)
        np.add.at(copies, forest.routes[trees][used], weights[used])
        if len(forest.switches):
            looped = _looped(forest, trees, parents, topology)
            np.add.at(back, forest.routes[trees][looped], weights[looped])
    loads = np.zeros(topology.num_links, dtype=np.int64)
    np.add.at(loads, hops.links, copies[hops.paths])
    if back.any():
        np.add.at(loads, _opposite_links(hops, back, topology), back[hops.paths])
    return loads


def verified_items(forest: TreeArrays, groups: IntArray, demands: Demands, topology: Topology) -> IntArray:
    """Verify trees of demands on a topology, and sum the tree copies on every link; int64 (links,).

    Checked: as by `verified_forest`, but that every tree begins at sources of its group and reaches all of its
    destinations, and the weights of each group's trees add up to `trees_per_root` times its weight.
    """
    ends = demands.ends(topology)
    trees = len(forest.roots)
    if type(groups) is not np.ndarray or groups.dtype != np.int64 or groups.shape != (trees,):
        raise CertificateError(
            f"the forest's groups are {shown(groups)}; expected int64, one for each of {trees} trees"
        )
    if forest.direction != "broadcast":
        raise CertificateError(f"the direction of trees of demands is {shown(forest.direction)}; expected 'broadcast'")
    refuse_if((groups < 0) | (groups >= len(ends)), "tree {} carries a group of items that there is not")
    goals, has = np.zeros((2, len(ends), topology.num_ranks), dtype=np.bool_)
    for number, (sources, destinations) in enumerate(ends):
        has[number, list(sources)] = goals[number, list(destinations)] = True
    loads = _verified(forest, topology, _Reach(has[groups], goals[groups]))
    refuse_if(~has[groups, forest.roots], "tree {} does not begin at a source of its items")
    totals = [0] * len(ends)
    for group, weight in zip(groups.tolist(), forest.weights.tolist(), strict=True):
        totals[group] += weight
    for number, (total, group) in enumerate(zip(totals, demands.groups, strict=True)):
        if total != forest.trees_per_root * group.weight:
            raise CertificateError(
                f"the trees of group {number} weigh {total} together; expected {forest.trees_per_root * group.weight}"
            )
    return loads


def verified_halves(
    halves: tuple[Any, Any], kind: type[Schedule], verified: Callable[[Any, Topology], IntArray], topology: Topology
) -> IntArray:
    """Verify both forests of an allreduce, of one kind, and that they match; sum their load on every link."""
    _check_shards(*halves, kind)
    return summed_loads([half.trees_per_root for half in halves], [verified(half, topology) for half in halves])


def summed_loads(counts: Sequence[int], loads: Sequence[IntArray]) -> IntArray:
    """Sum the loads of both halves, each in units of 1 over its trees per root, in units of 1 over their multiple."""
    common = lcm(*counts)
    scales = [common // count for count in counts]
    if sum(scale * int(load.max()) for scale, load in zip(scales, loads, strict=True)) >= LOAD_LIMIT:
        raise CertificateError(f"loads in units of 1/{common} could overflow the 64-bit sums of this check")
    return loads[0] * scales[0] + loads[1] * scales[1]


def check_trees(schedule: Trees) -> None:
    """Check all that `verified_loads` does without a topology, for trees that any switches may branch."""
    if len(schedule.forests) > 1:
        reduction, broadcast = schedule.forests
        _check_shards(reduction, broadcast, TreeArrays)
    for forest in schedule.forests:
        _check_shapes(forest, forest.num_ranks)
        _check_weights(forest)
        if forest.num_ranks > 1:
            switches = frozenset(forest.switches.tolist())
            checked_paths(forest.path_starts, forest.path_nodes, forest.num_ranks, "forest", switches)
            for _ in _checked_blocks(forest):
                pass


def _check_shards(reduction: Any, broadcast: Any, kind: type[Schedule]) -> None:
    """Check that forests of a kind reduce and broadcast the same shards."""
    check_halves(reduction, broadcast, kind)
    if not np.array_equal(reduction.root_weights, broadcast.root_weights):
        raise CertificateError("the allreduce broadcasts other shards than it reduces")


def _checked_blocks(forest: TreeArrays, reach: _Reach | None = None) -> Iterator[tuple[slice, IntArray]]:
    """Yield blocks of trees that reach all needed ranks, with the senders' columns as of `_checked_parents`."""
    block = max(1, BLOCK_ENTRIES // forest.routes.shape[1])
    for start in range(0, len(forest.roots), block):
        trees = slice(start, start + block)
        begins, spared = np.zeros((2, *forest.routes[trees].shape), dtype=np.bool_)
        spared[:, forest.num_ranks :] = True
        if reach is None:
            begins[np.arange(len(begins)), forest.roots[trees]] = True
        else:
            begins[:, : forest.num_ranks] = reach.has[trees]
            spared[:, : forest.num_ranks] = ~reach.targets[trees]
        parents = _checked_parents(forest, trees, begins, spared)
        _check_spanning(trees, parents, begins, spared)
        yield trees, parents


def _check_shapes(forest: TreeArrays, ranks: int) -> None:
    trees = len(forest.roots)
    if forest.num_ranks != ranks:
        raise CertificateError(f"the forest is for {forest.num_ranks} ranks; the topology has {ranks}")
    if forest.trees_per_root < 1 or trees < 1:
        raise CertificateError(
            f"the forest has {trees} trees and {forest.trees_per_root} per root; expected at least 1"
        )
    lists = {name: (len(getattr(forest, name)),) for name in ("path_starts", "path_nodes", "switches")}
    shapes: dict[str, tuple[int, ...]] = {"roots": (trees,), "weights": (trees,), **lists}
    shapes["routes"] = (trees, ranks + len(forest.switches))
    check_arrays(forest, shapes | {"root_weights": (ranks,)}, "forest")
    refuse_if((forest.roots < 0) | (forest.roots >= ranks), "tree {} has a root that is not a rank")
    refuse_if(forest.weights < 1, "tree {} has a weight below 1")
    refuse_if(forest.root_weights < 0, "the shard of rank {} has a weight below 0")
    if forest.direction not in ("broadcast", "reduce"):
        raise CertificateError(f"the forest's direction is {shown(forest.direction)}; expected 'broadcast' or 'reduce'")


def _check_switches(forest: TreeArrays, topology: Topology) -> None:
    """Check that trees branch at different switches of the topology, which multicast or, in a reduction, aggregate."""
    invalid = (forest.switches < topology.num_ranks) | (forest.switches >= len(topology.nodes))
    refuse_if(invalid, "number {} of the forest's switches is not a switch of the topology")
    if len(set(forest.switches.tolist())) < len(forest.switches):
        raise CertificateError("the forest lists a switch twice among its vertices")
    names, does = {"broadcast": (topology.multicast, "multicast"), "reduce": (topology.aggregation, "aggregate")}[
        forest.direction
    ]
    for node in forest.switches.tolist():
        if topology.nodes[node] not in names:
            raise CertificateError(f"trees branch at switch {topology.nodes[node]!r}, which cannot {does} data")


def _checked_parents(forest: TreeArrays, trees: slice, begins: BoolArray, spared: BoolArray) -> IntArray:
    """Check that every rank but the root receives on a path that ends there; return the senders' columns.

    Ranks where a tree `begins`, and vertices that are `spared` and not part of it, are their own senders.
    """
    routes, ranks = forest.routes[trees], forest.num_ranks
    own = np.arange(routes.shape[1])
    first = trees.start
    refuse_if(begins & (routes != -1), "the root of tree {} receives: rank {}", first)
    idle = begins | (spared & (routes == -1))
    unrouted = (routes < 0) | (routes >= len(forest.path_starts) - 1)
    refuse_if(~idle & unrouted, "tree {} does not deliver to rank {}", first)
    vertices = np.concatenate([np.arange(ranks), forest.switches])
    column = np.full(1 + max(vertices), -1)
    column[vertices] = own
    path_numbers = np.where(idle, 0, routes)
    receivers = column[forest.path_nodes[forest.path_starts[1:] - 1]][path_numbers]
    refuse_if(~idle & (receivers != own), "in tree {} the path to rank {} ends elsewhere", first)
    return np.where(idle, own, column[forest.path_nodes[forest.path_starts[:-1]]][path_numbers])


def _check_spanning(trees: slice, parents: IntArray, begins: BoolArray, spared: BoolArray) -> None:
    """Check spanning by pointer doubling: a tree reaches a root within ``ceil(log2 N)`` rounds, or never."""
    idle = spared & (parents == np.arange(parents.shape[1]))
    ancestors = parents
    for _ in range(parents.shape[1].bit_length()):
        if (np.take_along_axis(begins, ancestors, axis=1) | idle).all():
            return
        ancestors = np.take_along_axis(ancestors, ancestors, axis=1)
    reached = np.take_along_axis(begins, ancestors, axis=1) | idle
    refuse_if(~reached, "tree {} does not reach rank {} from its root", trees.start)


def _looped(forest: TreeArrays, trees: slice, parents: IntArray, topology: Topology) -> BoolArray:
    """Check the group limits of switches, and mark those whose copies also go back to the rank above.

    Shapes: `parents` and the result (trees of the block, vertices).
    """
    ranks, own = forest.num_ranks, np.arange(parents.shape[1])
    children, below = np.zeros((2, *parents.shape), dtype=np.int64)  # all of them, and the switches among them
    moving = parents != own
    np.add.at(children, (np.nonzero(moving)[0], parents[moving]), 1)
    moving &= own >= ranks
    np.add.at(below, (np.nonzero(moving)[0], parents[moving]), 1)
    limits = {switch_limit.switch: switch_limit for switch_limit in topology.limits}
    looped = np.zeros(parents.shape, dtype=np.bool_)
    for place, node in enumerate(forest.switches.tolist(), start=ranks):
        name = topology.nodes[node]
        if name not in limits:
            continue
        fan, limit = children[:, place], limits[name]
        if limit.group is not None:
            over = f"{limit.group} neighbors of switch {name!r}, the most in its group"
            refuse_if((fan >= 2) & (fan + 1 > limit.group), "tree {} joins more than " + over, trees.start)
        if limit.loopback:
            # A vertex that hands data to one rank passes it; one in front of a switch could hide the rank from it.
            looped[:, place] = ((fan >= 2) | (below[:, place] > 0)) & (parents[:, place] < ranks)
    return looped


def _opposite_links(hops: Hops, back: IntArray, topology: Topology) -> IntArray:
    """Links opposite to those of all hops; hops of paths on which nothing comes back keep their own."""
    tails, heads = (ends[hops.links] for ends in topology.columns[:2])
    opposite = np.where(back[hops.paths] > 0, topology.link_places(heads, tails), hops.links)
    if (opposite < 0).any():
        tail, head = topology.link_at(hops.links[int(opposite.argmin())])[:2]
        raise CertificateError(f"the copy that switches loop back needs a link from {head!r} to {tail!r}")
    return opposite


def _check_weights(forest: TreeArrays) -> None:
    totals = [0] * forest.num_ranks
    for root, weight in zip(forest.roots.tolist(), forest.weights.tolist(), strict=True):
        totals[root] += weight
    for root, (total, shard) in enumerate(zip(totals, forest.root_weights.tolist(), strict=True)):
        if total != forest.trees_per_root * shard:
            raise CertificateError(
                f"the trees of root {root} weigh {total} together; expected {forest.trees_per_root * shard}"
            )


def verified_images(base: TreeArrays, generators: IntArray, topology: Topology) -> IntArray:
    """Verify a symmetric forest on a topology, and sum the load of all its trees on every link; int64 (links,).

    Checked: the trees of representatives, as by `verified_forest`; the generators are commuting permutations
    that keep ranks, links, bandwidths and latencies; every orbit of ranks has as many members as there are products,
    and one representative.
    """
    ranks = topology.num_ranks
    images = _checked_generators(generators, topology)
    loads = verified_forest(base, topology)
    if len(base.switches):
        raise CertificateError("trees of a symmetric forest branch at switches; expected trees that branch at ranks")
    size = prod(_order(generator) for generator in generators)
    of_ranks = orbits(generators[:, :ranks])
    members = np.bincount(of_ranks)
    refuse_if(members != size, f"orbit {{}} of ranks does not have as many members as the group, {size}")
    refuse_if((base.root_weights != 0) & (base.root_weights != 1), "rank {} has a shard of a weight other than 0 and 1")
    representatives = np.bincount(of_ranks, weights=base.root_weights).astype(np.int64)
    refuse_if(representatives != 1, "orbit {} of ranks does not have exactly one representative")
    if int(base.weights.sum()) * ranks * size >= LOAD_LIMIT:
        raise CertificateError(f"{base.trees_per_root} trees per root could overflow the 64-bit sums of this check")
    link_orbits = orbits(images)
    sums = np.zeros(link_orbits.max() + 1, dtype=np.int64)
    np.add.at(sums, link_orbits, loads)
    return np.asarray((sums * size // np.bincount(link_orbits))[link_orbits])


def _checked_generators(generators: IntArray, topology: Topology) -> IntArray:
    """Check that generators are symmetries, and commute; return the image of each link, (generators, links)."""
    size, (tails, heads, kinds, _) = len(topology.nodes), topology.columns
    if generators.dtype != np.int64 or generators.ndim != 2 or generators.shape[1] != size:
        raise CertificateError(
            f"the generators are {generators.dtype} of shape {generators.shape}; expected int64 (generators, {size})"
        )
    if len(generators) >= topology.num_ranks.bit_length():
        raise CertificateError(f"{len(generators)} generators have too many products for {topology.num_ranks} ranks")
    images = np.empty((len(generators), len(tails)), dtype=np.int64)
    for row, generator in enumerate(generators):
        what = f"generator {row} of the symmetric forest"
        if (np.sort(generator) != np.arange(size)).any():
            raise CertificateError(f"{what} is no permutation of the nodes")
        if (generator[: topology.num_ranks] >= topology.num_ranks).any():
            raise CertificateError(f"{what} takes a rank to a switch")
        if generator[0] == 0:
            raise CertificateError(f"{what} fixes rank 0")
        place = topology.link_places(generator[tails], generator[heads])
        if (place < 0).any():
            raise CertificateError(f"{what} takes a link to where the topology has none")
        if (kinds[place] != kinds).any():
            raise CertificateError(f"{what} takes a link to one of another bandwidth or latency")
        images[row] = place
    for one, other in combinations(range(len(generators)), 2):
        if (generators[one][generators[other]] != generators[other][generators[one]]).any():
            raise CertificateError(f"generators {one} and {other} of the symmetric forest do not commute")
    return images


def _order(generator: IntArray) -> int:
    """Return the order of a permutation that fixes no rank but with all nodes, or raise."""
    node, order = int(generator[0]), 1
    while node != 0:
        node, order = int(generator[node]), order + 1
    power, exponent, squared = np.arange(len(generator)), order, generator
    while exponent:
        power = squared[power] if exponent % 2 else power
        squared, exponent = squared[squared], exponent // 2
    if (power != np.arange(len(generator))).any():
        raise CertificateError(
            f"a generator of the symmetric forest, taken {order} times, fixes rank 0 but not all nodes"
        )
    return order
