"""Trees of equal parts round a network of switches, and their routes from part to part through the switches.

Where the cut round a part is the bottleneck, every tree enters each other part once.  A network of one part and one
node for all others is small; the trees that enter it there are those of all other parts, turned to the first.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Forest
from ...schedules.trees.symmetric_forest import SymmetricForest, link_orbits
from ...solvers.flows.bottleneck import Bottleneck
from ...support.arrays import BoolArray, FloatArray, IntArray, SmallArray, distances_from, places_of
from ...support.kernels import kernel
from ...topologies import Topology
from ..plans.stages import Trace
from .forest import best_forest, bottleneck
from .problem import TreeProblem, tree_problem

MAX_ROUTES = 2**29  # entries of the representatives' trees
CANDIDATES = 24  # shortest routes that are drawn at random from part to part, of which each tree takes one
ROUNDS = 6  # in which every tree takes the route that keeps the orbits of its links emptiest
SEED = 0


class Symmetry(NamedTuple):
    """Generators of a group, and, of a network with switches, the equal parts that it moves."""

    generators: IntArray  # int64 (generators, nodes)
    parts: IntArray  # int64 (products, nodes of a part): the first part and its images
    hosts: IntArray | None = None  # int64 (sites, hosts of each) where ranks, or routers, are linked directly


class PartTrees(NamedTuple):
    """Trees of one part: those of its own ranks, and those that enter it."""

    nodes: IntArray  # int64 (nodes,): of the part, ranks first
    num_ranks: int
    forest: Forest  # of the part and one more rank, the last, for all others; places in `nodes`, but for that rank

    @property
    def outside(self) -> int:
        """The rank that stands for all other parts."""
        return self.num_ranks


class FabricRoutes(NamedTuple):
    """Routes by entry, part and candidate, and the candidate that each tree takes to each part."""

    routes: list[IntArray]  # for each entry int64 (parts, candidates, nodes): switches on the way, -1 after the last
    choices: IntArray  # int64 (trees, parts - 1)
    num_candidates: int  # candidates


def parts_forest(problem: TreeProblem, best: Bottleneck, symmetries: list[Symmetry], trace: Trace) -> SymmetricForest:
    """Build symmetric trees that enter each part once, for the smallest parts that the network allows."""
    for place, symmetry in reversed(list(enumerate(symmetries))):
        if all(_may_enter_often(problem, best, outer, symmetry) for outer in symmetries[:place]):
            trees = _part_trees(problem, best, symmetry.parts[0], trace)
            if trees is not None:
                base = _joined(problem, trees, symmetry.parts, link_orbits(symmetry.generators, problem.topology))
                return SymmetricForest(base, symmetry.generators)
    parts = f"equal parts of {problem.topology}"
    raise UnsupportedError(f"no trees that enter each of the {parts} once reach its bound; plan with 'forestcoll'")


def _may_enter_often(problem: TreeProblem, best: Bottleneck, outer: Symmetry, inner: Symmetry) -> bool:
    """Whether every tree can enter an outer part once for each inner part in it."""
    inside = np.zeros(problem.num_nodes, dtype=np.bool_)
    inside[outer.parts[0]] = True
    ranks = problem.topology.num_ranks
    entering = int(problem.capacities[~inside[problem.tails] & inside[problem.heads]].sum())
    times = len(inner.parts) // len(outer.parts)
    return best.capacity * (ranks - int(inside[:ranks].sum())) * times <= entering * best.supply


def _part_trees(problem: TreeProblem, best: Bottleneck, part: IntArray, trace: Trace) -> PartTrees | None:
    """Pack the trees of a part, which all others enter once; None if its links have no room for them."""
    ranks = problem.topology.num_ranks
    # One rank after those of the part stands for all outside of it.
    nodes = np.sort(part)
    own = int((nodes < ranks).sum())
    place = np.full(problem.num_nodes, own)  # one rank for all outside, after those of the part
    place[nodes] = np.arange(len(nodes)) + (np.arange(len(nodes)) >= own)
    tails, heads = place[problem.tails], place[problem.heads]
    kept = tails != heads
    ends, which = np.unique(np.column_stack([tails[kept], heads[kept]]), axis=0, return_inverse=True)
    units = np.zeros(len(ends), dtype=np.int64)
    np.add.at(units, which.ravel(), problem.capacities[kept] * best.supply)
    # What crosses the part's border is trimmed to what its trees need.
    for column in (0, 1):
        crossing = ends[:, column] == own
        trimmed = _trimmed(units[crossing], best.capacity * (ranks - own))
        if trimmed is None:
            return None
        units[crossing] = trimmed
    names = [str(node) for node in range(len(nodes) + 1)]
    small = Topology.from_links(
        [(names[tail], names[head], unit) for (tail, head), unit in zip(ends.tolist(), units.tolist(), strict=True)],
        compute=names[: own + 1],
        switches=names[own + 1 :],
    )
    # Pack the trees of the small network; they have to be as fast as all.
    small_problem = tree_problem(small, "broadcast", (*[1] * own, ranks - own))
    small_best = bottleneck(small_problem)
    if Fraction(small_best.supply, small_best.capacity) / small.arrays.unit != Fraction(1, best.capacity):
        return None
    return PartTrees(nodes, own, best_forest(small_problem, small_best, None, trace))


def _trimmed(units: IntArray, total: int) -> IntArray | None:
    """Lower capacities in proportion, to a given sum; None if they are less already."""
    capacity = int(units.sum())
    if capacity < total:
        return None
    shares = np.array([unit * total // capacity for unit in units.tolist()], dtype=np.int64)
    shares[: total - int(shares.sum())] += 1
    return shares[shares > 0] if (shares > 0).all() else None


class _Units(NamedTuple):
    """What the small forest says, tree by tree and rank by rank."""

    paths: list[IntArray]  # nodes of each path inside the part, by places in its nodes
    entries: list[IntArray]  # nodes of each path from outside, without the node outside
    inside: SmallArray  # (trees, ranks): path inside on which each rank receives, -1 for none
    entry: IntArray  # int64 (trees,): entry of each tree from outside, -1 for none


def _units(trees: PartTrees) -> _Units:
    forest, outside = trees.forest, trees.outside
    place = np.arange(len(trees.nodes) + 1) - (np.arange(len(trees.nodes) + 1) > outside)
    paths: list[IntArray] = []
    entries: list[IntArray] = []
    inside_number, entry_number = np.full((2, len(forest.path_starts)), -1)
    for number in range(len(forest.path_starts) - 1):
        path = np.array(forest.path(number))
        if path[0] == outside:
            entry_number[number] = len(entries)
            entries.append(place[path[1:]])
        elif path[-1] != outside:
            if outside in path:
                raise UnsupportedError("a tree of one part passes through others")
            inside_number[number] = len(paths)
            paths.append(place[path])
    routes = forest.routes[:, : trees.num_ranks]
    entering = np.where(routes >= 0, entry_number[routes], -1)
    if ((entering >= 0).sum(axis=1) != (forest.roots == outside)).any():
        raise UnsupportedError("a tree enters a part more than once")
    return _Units(
        paths, entries, np.where(routes >= 0, inside_number[routes], -1).astype(np.int32), entering.max(axis=1)
    )


def _joined(problem: TreeProblem, trees: PartTrees, parts: IntArray, orbits: IntArray) -> Forest:
    """Let trees of the first part's ranks enter all other parts, one unit of the small forest for each."""
    count, own, units = trees.forest.trees_per_root, trees.num_ranks, _units(trees)
    targets, ranks = len(parts) - 1, problem.topology.num_ranks
    if count * own * ranks > MAX_ROUTES:
        raise UnsupportedError(f"{count} trees for each of {own} representatives are too many to write down")
    images = parts[:, np.argsort(parts[0])]  # int64 (parts, nodes): the node of each part at each place
    # Trees start in the first part, and enter each other part by a tree of the rank outside.
    starting = _unit_trees(trees, range(own), units).reshape(own * count)
    entering = _unit_trees(trees, [own], units).reshape(own * count, targets)
    exits = units.entry[entering]
    fabric = chosen_routes(problem, images, units.entries, exits, orbits, len(parts))
    # Number the routes between parts that occur.
    numbers, pair = np.unique(
        np.ravel_multi_index(
            (exits, np.arange(1, targets + 1)[None], fabric.choices),
            (len(units.entries), targets + 1, fabric.num_candidates),
        ),
        return_inverse=True,
    )
    kept = len(parts) * len(units.paths)
    entered = (kept + pair).reshape(exits.shape)
    # Write down the routes of all trees: inside the first part, inside others, and into these.
    routes = np.full((own * count, ranks), -1, dtype=np.int32)
    shift = np.arange(1, targets + 1)[:, None] * len(units.paths)
    for tree in range(own * count):
        routes[tree, images[0, :own]] = units.inside[starting[tree]]
        below = units.inside[entering[tree]]
        routes[tree, images[1:, :own]] = np.where(below >= 0, below + shift, entered[tree][:, None])
    starts, nodes = _all_paths(images, units, fabric, numbers)
    roots = np.repeat(images[0, :own], count)
    shards = np.zeros(ranks, dtype=np.int64)
    shards[images[0, :own]] = 1
    return Forest(ranks, count, roots, np.ones_like(roots), routes, starts, nodes, shards, problem.direction)


def _unit_trees(trees: PartTrees, roots: Iterable[int], units: _Units) -> IntArray:
    """Trees of some roots of the small forest, each as often as it weighs, by root or by where they enter."""
    forest = trees.forest
    tree_sets = [np.flatnonzero(forest.roots == root) for root in roots]
    receiver = np.array([entry[-1] for entry in units.entries] + [-1])
    ordered = [
        tree_numbers[np.argsort(receiver[units.entry[tree_numbers]], kind="stable")] for tree_numbers in tree_sets
    ]
    return np.concatenate([np.repeat(tree_numbers, forest.weights[tree_numbers]) for tree_numbers in ordered])


def _all_paths(images: IntArray, units: _Units, fabric: FabricRoutes, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Paths inside all parts, those of a part after each other, then those between the first part and others."""
    inside = np.concatenate([*units.paths, np.empty(0, dtype=np.int64)]).astype(np.int64)
    lengths = np.tile([len(path) for path in units.paths], len(images))
    entry, part, choice = np.unravel_index(numbers, (len(units.entries), len(images), fabric.num_candidates))
    rows, spans = [], []
    for number, nodes in enumerate(units.entries):
        of = np.flatnonzero(entry == number)
        between = fabric.routes[number][part[of], choice[of]]
        out = np.broadcast_to(images[0, nodes[::-1]], (len(of), len(nodes)))
        rows.append(np.hstack([out, between, images[part[of]][:, nodes]]))
        spans.append(of)
    nodes, counts = _in_order(rows, spans, len(numbers))
    starts = np.concatenate([[0], np.cumsum(np.concatenate([lengths, counts]).astype(np.int64))])
    return starts, np.concatenate([images[:, inside].ravel(), nodes])


def _in_order(rows: list[IntArray], places: list[IntArray], size: int) -> tuple[IntArray, IntArray]:
    """Arrange rows of several widths by their places, leaving out -1; their nodes, and how many each has."""
    width = max(block.shape[1] for block in rows)
    table = np.full((size, width), -1)
    for block, place in zip(rows, places, strict=True):
        table[place, : block.shape[1]] = block
    there = table >= 0
    return table[there], there.sum(axis=1)


def chosen_routes(
    problem: TreeProblem, images: IntArray, entries: list[IntArray], exits: IntArray, orbits: IntArray, products: int
) -> FabricRoutes:
    """Choose routes between the nodes where trees leave the first part and enter the others, `exits` by entry."""
    between = np.ones(problem.num_nodes, dtype=np.bool_)
    between[images.ravel()] = False
    network = _sorted_links(problem)
    ports = sorted({int(entry[0]) for entry in entries})
    by_port = {port: _candidates(network, between, images[:, port], np.random.default_rng(SEED)) for port in ports}
    routes = [by_port[int(entry[0])] for entry in entries]
    width = max(candidates.shape[2] for candidates in routes)
    routes = [
        np.pad(candidates, ((0, 0), (0, 0), (0, width - candidates.shape[2])), constant_values=-1)
        for candidates in routes
    ]
    if all((candidates[:, :1] == candidates).all() for candidates in routes):
        return FabricRoutes([candidates[:, :1] for candidates in routes], np.zeros_like(exits), 1)
    links = np.array(
        [
            _link_orbits(problem, images[:, entry[0]], candidates, orbits)
            for entry, candidates in zip(entries, routes, strict=True)
        ]
    )
    size = np.bincount(orbits)
    room = np.zeros(len(size))
    room[orbits] = problem.capacities
    choices = _balanced(links, exits, room * size / products, ROUNDS)
    return FabricRoutes(routes, choices, CANDIDATES)


class _Network(NamedTuple):
    starts: IntArray  # int64 (nodes + 1,): where the links into each node begin
    tails: IntArray  # int64 (links,): where they come from


def _sorted_links(problem: TreeProblem) -> _Network:
    order = np.argsort(problem.heads, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(problem.heads, minlength=problem.num_nodes))])
    return _Network(starts, problem.tails[order])


def _candidates(network: _Network, between: BoolArray, ports: IntArray, random: np.random.Generator) -> IntArray:
    """Draw shortest routes from the port of the first part to those of all others, (parts, candidates, switches)."""
    # Links on the way pass only switches between parts; they end there or at a port.
    heads = np.repeat(np.arange(len(between)), np.diff(network.starts))
    passing, ending = between.copy(), between.copy()
    passing[ports[0]] = ending[ports] = True
    usable = passing[network.tails] & ending[heads]
    hops = distances_from(ports[0], len(between), network.tails[usable], heads[usable])
    if (hops[ports] < 0).any():
        raise UnsupportedError("no route between two parts passes only the switches between them")
    longest = int(hops[ports].max()) - 1
    seeds = random.integers(2**62, size=(len(ports), CANDIDATES))
    return _drawn(*network, hops, ports, seeds, longest)


@kernel
def _drawn(
    starts: IntArray, tails: IntArray, hops: IntArray, ports: IntArray, seeds: IntArray, longest: int
) -> IntArray:
    parts, candidates = seeds.shape
    routes = np.full((parts, candidates, max(longest, 0)), -1, dtype=np.int64)
    for part in range(1, parts):
        for choice in range(candidates):
            # Walk back from the part to the first one, each step at random among nodes that are one hop nearer.
            state = np.uint64(seeds[part, choice])
            node = ports[part]
            for place in range(hops[node] - 2, -1, -1):
                options = 0
                for link in range(starts[node], starts[node + 1]):
                    options += hops[tails[link]] == place + 1
                state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                pick = np.int64((state >> np.uint64(33)) % np.uint64(options))
                for link in range(starts[node], starts[node + 1]):
                    if hops[tails[link]] == place + 1:
                        if pick == 0:
                            node = tails[link]
                            break
                        pick -= 1
                routes[part, choice, place] = node
    return routes


def _link_orbits(problem: TreeProblem, ports: IntArray, routes: IntArray, orbits: IntArray) -> IntArray:
    """Orbits of the links on each route, -1 after the last; (parts, candidates, links)."""
    size = problem.num_nodes
    parts, candidates, width = routes.shape
    nodes = np.full((parts, candidates, width + 2), -1)
    nodes[:, :, 0] = ports[0]
    nodes[:, :, 1:-1] = routes
    ends = 1 + (routes >= 0).sum(axis=2)
    np.put_along_axis(nodes, ends[:, :, None], ports[:, None, None], axis=2)
    there = nodes[:, :, 1:] >= 0
    there[0] = False
    keys = (nodes[:, :, :-1] * size + nodes[:, :, 1:])[there]
    link_orbits = np.full(there.shape, -1)
    link_orbits[there] = orbits[places_of(problem.tails * size + problem.heads, keys)]
    return link_orbits


@kernel
def _balanced(links: IntArray, exits: IntArray, room: FloatArray, rounds: int) -> IntArray:
    """Choose candidates one by one; `links` (entries, parts, candidates, links), `exits` (trees, parts - 1)."""
    trees, targets = exits.shape
    choices = np.full((trees, targets), -1, dtype=np.int64)
    loads = np.zeros(len(room), dtype=np.float64)
    for _ in range(rounds):
        for tree in range(trees):
            for other in range(targets):
                options = links[exits[tree, other], other + 1]
                # Take the route of earlier rounds off the links, and choose anew.
                if choices[tree, other] >= 0:
                    _add(loads, options[choices[tree, other]], -1)
                choices[tree, other] = _emptiest(options, loads, room)
                _add(loads, options[choices[tree, other]], 1)
    return choices


@kernel
def _add(loads: FloatArray, orbits: IntArray, amount: int) -> None:
    for orbit in orbits:
        if orbit >= 0:
            loads[orbit] += amount


@kernel
def _emptiest(options: IntArray, loads: FloatArray, room: FloatArray) -> int:
    """Choose the candidate whose fullest orbit is emptiest, then that with least load; (candidates, links)."""
    best, fullest, second = 0, np.inf, np.inf
    for choice in range(len(options)):
        worst, total = 0.0, 0.0
        for orbit in options[choice]:
            if orbit >= 0:
                share = (loads[orbit] + 1) / room[orbit]
                worst = max(worst, share)
                total += share
        if worst < fullest or (worst == fullest and total < second):
            best, fullest, second = choice, worst, total
    return best
