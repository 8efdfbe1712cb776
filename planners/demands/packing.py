"""Packing of trees for demands by column generation: a linear program of trees, priced by Steiner arborescences.

Trees branch at ranks, and at switches that multicast.  A switch that loops copies back to the rank above it takes that
rank's links both ways, as `Forest.link_loads` counts; one whose groups are too small for a tree is passed only.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import frexp
from typing import Any, NamedTuple

import numpy as np

from ...errors import BoundError, NoAnswerError, SolverError
from ...formulations import Blocks
from ...formulations.multicast import PackingModel, build_packing
from ...schedules import Demands
from ...solvers import Algorithm, HighsOptions, PrimalStatus, Session, Solution, solve
from ...solvers.lp.exact_optimum import exact_answer
from ...solvers.trees.steiner_trees import FAR, MAX_TARGETS, Tree, exact_tree, greedy_tree
from ...support import progress
from ...support.arrays import FloatArray, IntArray
from ...topologies import Topology
from ..trees.problem import whole_numbers
from .cut_search import best_cut
from .folding import Folding, folded, trivial

GRAINS = 2**36  # lengths of links are multiples of the largest of them over this
MAX_ROUNDS = 500
FIRST_TREES = 16  # of each group to start from
STEEPNESS = 6  # of the lengths of loaded links then, as exponents of e
NEARBY_TREES = 2  # of each group and round, at lengths that differ a little
TOLERANCE = 1e-9  # of rates in floats
SMALLEST_SHARE = 2.0**-29  # of all data in floats: a smaller group counts as so much
FEW_PARTS = (1, 2, 4, 8)  # equal ones of each group that are tried
MAX_INTEGERS, PARTS_SECONDS = 2000, 2.0  # of the integer program for that
Path = tuple[int, ...]
NOTHING = np.empty(0, dtype=np.int64)
FractionArray = np.ndarray[Any, np.dtype[np.object_]]  # of fractions


class PackedTree(NamedTuple):
    """A tree of a group by its paths between ranks and switches that branch, and its load of each link."""

    group: int
    paths: tuple[Path, ...]
    loads: IntArray = NOTHING


class Packing(NamedTuple):
    """Trees, each with its rate in GB/s per group, and lengths of links in whole numbers, int64 (links,)."""

    trees: tuple[tuple[PackedTree, Fraction], ...]
    lengths: IntArray


class Pricing:
    """Cheapest trees of the groups of demands on a network, at lengths of its links."""

    def __init__(self, topology: Topology, demands: Demands) -> None:
        self.topology, self.groups = topology, demands.ends(topology)
        self._tails, self._heads, _, _ = topology.arrays
        self._back = topology.link_places(self._heads, self._tails)
        neighbors = 2 + max(len(targets) for _, targets in self.groups)
        small = {limit.switch for limit in topology.limits if limit.group is not None and limit.group < neighbors}
        index = topology.node_index
        copying = [index[node] for node in topology.switch_nodes if node in topology.multicast - small]
        self._looped = np.array([node for node in copying if topology.nodes[node] in topology.loopback], dtype=np.int64)
        plain = [node for node in copying if topology.nodes[node] not in topology.loopback]
        # Looped switches are vertices of their own beside the nodes that data only passes.
        self._ends = np.array([*range(topology.num_ranks), *plain], dtype=np.int64)
        self._is_end = np.zeros(len(topology.nodes), dtype=np.bool_)
        self._is_end[self._ends] = True

    def set_lengths(self, lengths: IntArray) -> None:
        """Find all shortest ways at lengths of links, int64 (links,)."""
        size = len(self.topology.nodes)
        all_ways, self._before = _shortest(lengths, self._tails, self._heads, size)
        ends, looped = self._ends, self._looped
        distances = all_ways[np.ix_(ends, ends)]
        if len(looped):
            both = np.where(self._back >= 0, lengths + lengths[np.maximum(self._back, 0)], FAR)
            ranks = np.arange(self.topology.num_ranks)
            # There and back from each rank, past no other rank; then from any end by way of a rank.
            passed = (self._tails < len(ranks)) | ~self._is_end[self._tails]
            there, self._before_looped = _shortest(
                both[passed], self._tails[passed], self._heads[passed], size, stop=len(ranks)
            )
            into = np.full((len(ends), len(looped)), FAR)
            self._rank_of = np.zeros(into.shape, dtype=np.int64)
            for place, switch in enumerate(looped.tolist()):
                totals = distances[:, ranks] + there[ranks, switch]
                self._rank_of[:, place] = totals.argmin(axis=1)
                into[:, place] = np.minimum(totals.min(axis=1), FAR)
            out = all_ways[np.ix_(looped, ends)]
            between = np.minimum(out[:, :, None] + into[None], FAR).min(axis=1)
            np.fill_diagonal(between, 0)
            distances = np.block([[distances, into], [out, between]])
        self.distances = np.minimum(distances, FAR)

    def cheapest(self, group: int, *, exact: bool) -> Tree:
        """Find a cheapest tree of a group, or a good one."""
        sources, targets = (np.array(ranks, dtype=np.int64) for ranks in self.groups[group])
        tree = (exact_tree if exact else greedy_tree)(self.distances, sources, targets)
        if tree.cost >= FAR:
            raise BoundError(f"no tree joins the sources of group {group} with its destinations on {self.topology}")
        return tree

    def expanded(self, group: int, tree: Tree) -> PackedTree:
        """Expand the ways of a tree to paths, and count its load of links."""
        parent: dict[int, Path] = {}  # the path into each vertex
        reached = set(self.groups[group][0])
        for tail, head in tree.ways.tolist():
            for path in self._paths(tail, head):
                # Whatever is reached already needs no second path.
                if path[-1] not in reached:
                    reached.add(path[-1])
                    parent[path[-1]] = path
        return self._tidied(group, parent)

    def _tidied(self, group: int, parent: dict[int, Path]) -> PackedTree:
        """Leave out vertices that no target needs, and join paths at switches that do not branch."""
        ranks, targets = self.topology.num_ranks, set(self.groups[group][1])
        while True:
            children: dict[int, list[int]] = {}
            for head, path in parent.items():
                children.setdefault(path[0], []).append(head)
            idle = [node for node in parent if node not in children and node not in targets]
            passed = next((node for node in parent if node >= ranks and len(children.get(node, ())) == 1), None)
            if idle:
                for node in idle:
                    del parent[node]
            elif passed is not None:
                (child,) = children[passed]
                parent[child] = _joined(parent.pop(passed), parent[child])
            else:
                break
        loads = np.zeros(self.topology.num_links, dtype=np.int64)
        for head, path in parent.items():
            places = self.topology.link_places(np.array(path[:-1]), np.array(path[1:]))
            np.add.at(loads, places, 1)
            if path[0] < ranks and head in self._looped:
                np.add.at(loads, self._back[places], 1)
        return PackedTree(group, tuple(parent.values()), loads)

    def _paths(self, tail: int, head: int) -> list[Path]:
        """Paths between vertices along the way from one to another, places in the table of distances."""
        count = len(self._ends)
        start = int(self._ends[tail] if tail < count else self._looped[tail - count])
        if head < count:
            return self._cut(_walk(self._before, start, int(self._ends[head])))
        switch = int(self._looped[head - count])
        if tail < count:
            rank, first = int(self._rank_of[tail, head - count]), list[Path]()
        else:
            place = int((self.distances[tail, :count] + self.distances[:count, head])[:count].argmin())
            rank = int(self._rank_of[place, head - count])
        first = self._cut(_walk(self._before, start, rank)) if start != rank else []
        return [*first, tuple(_walk(self._before_looped, rank, switch))]

    def _cut(self, nodes: list[int]) -> list[Path]:
        """Cut a way at the ends that it passes."""
        stops = [0, *(at for at in range(1, len(nodes) - 1) if self._is_end[nodes[at]]), len(nodes) - 1]
        return [tuple(nodes[begin : end + 1]) for begin, end in pairwise(stops)]


def _shortest(
    lengths: IntArray, tails: IntArray, heads: IntArray, size: int, stop: int = 0
) -> tuple[IntArray, IntArray]:
    """Find shortest ways between all nodes, of few links where ways are equal; with `stop`, past none of so many nodes.

    Shapes: returns distances and the node before the last of each way, int64 (nodes, nodes).
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    kept = lengths < FAR
    # One more unit for each link decides between equal ways.
    weights = lengths[kept].astype(np.float64) * size + 1
    begin = np.where((tails[kept] < stop), size + tails[kept], tails[kept])
    graph = csr_array((weights, (begin, heads[kept])), shape=(size + stop, size + stop))
    starts = np.concatenate([size + np.arange(stop), np.arange(stop, size)])
    distances, before = dijkstra(graph, indices=starts, return_predecessors=True)
    distances, before = distances[:, :size], before[:, :size]
    before = np.where(before >= size, before - size, before).astype(np.int64)
    finite = np.isfinite(distances)
    exact = np.full(distances.shape, FAR, dtype=np.int64)
    exact[finite] = (distances[finite] // size).astype(np.int64)
    return exact, before


def _walk(before: IntArray, start: int, end: int) -> list[int]:
    """Nodes of a shortest way."""
    nodes = [end]
    while nodes[-1] != start:
        nodes.append(int(before[start, nodes[-1]]))
    return nodes[::-1]


def _joined(first: Path, second: Path) -> Path:
    """Join two paths, with loops cut off."""
    nodes = list(first)
    for node in second[1:]:
        if node in nodes:
            del nodes[nodes.index(node) :]
        nodes.append(node)
    return tuple(nodes)


def packed(topology: Topology, demands: Demands, loads: FractionArray | None = None) -> Packing:
    """Pack trees at the largest rate, adding trees until none is missing that pricing finds.

    With `loads`, links also carry so much for each unit of weight, (links,).  Groups and links that symmetries take to
    each other are one: in the program a tree stands for all of its images, each of which carries an equal part.
    """
    pricing, folding = Pricing(topology, demands), folded(topology, demands)
    if loads is not None and any((loads[one] != loads[first]) for first, one in _in_orbits(folding.link_orbits)):
        folding = trivial(topology, demands)
    weights = [demands.groups[first].weight for first in folding.firsts.tolist()]
    unit, classes = topology.arrays.unit, folding.link_orbits
    program = _Program(topology, folding, weights, loads)
    model, scale = program.scaled(), program.scale
    trees: list[PackedTree] = []
    random = np.random.default_rng(0)
    new = _spread(pricing, folding, weights, random)
    limit = None if loads is not None else 1 / best_cut(topology, demands).inverse_rate / unit
    session = Session(model, HighsOptions(algorithm=Algorithm.SIMPLEX))
    packed_trees: set[tuple[int, tuple[Path, ...]]] = set()
    place = {first: number for number, first in enumerate(folding.firsts.tolist())}
    with progress.status() as say:
        for number in range(MAX_ROUNDS):
            new = list({tree[:2]: tree for tree in new if tree[:2] not in packed_trees}.values())
            packed_trees.update(tree[:2] for tree in new)
            program.add(model, [place[tree.group] for tree in new], new)
            trees += new
            say(f"round {number + 1}, {len(trees):,} trees")
            solution = session.solve()
            lengths, earned = _float_duals(solution, program.shares * folding.counts.astype(np.float64))
            lengths, earned = lengths[classes], earned - 4 * topology.num_links
            pricing.set_lengths(lengths)
            at_cut = limit is not None and solution.objective * scale >= float(limit) * (1 - TOLERANCE)
            new = [] if at_cut else _priced(pricing, dict(zip(place, earned.tolist(), strict=True)))
            if all(tree[:2] in packed_trees for tree in new):
                if at_cut and (shares := _in_few_parts(program, trees, limit)):
                    return Packing(_images(folding, trees, [share * unit for share in shares]), lengths)
                return _optimum(program, solution, trees, unit)
            new += _nearby(pricing, lengths, list(place), random)
    raise SolverError(f"{model.blocks.name} lacks trees after {MAX_ROUNDS} rounds")


class _Program:
    """The program of trees, once in numbers near 1 for floats, once in whole ones for fractions; bases fit both."""

    def __init__(
        self, topology: Topology, folding: Folding, weights: Sequence[int], loads: FractionArray | None
    ) -> None:
        self.folding, self.weights, self.name = folding, weights, f"trees of demands on {topology.name}"
        classes = folding.link_orbits
        self.capacities = np.bincount(classes, topology.arrays.capacities)
        nothing = np.zeros(len(classes))
        self.before: list[float] = np.bincount(classes, nothing if loads is None else loads.astype(np.float64)).tolist()
        largest = max(sum(weights), *self.before)
        self.scale = 2.0 ** -frexp(largest)[1]
        self.shares: FloatArray = np.maximum(np.array(weights, dtype=np.float64) * self.scale, SMALLEST_SHARE)
        self.groups, self.loads = list[int](), list[IntArray]()

    def scaled(self) -> PackingModel:
        """State it without trees, for GB/s of about all data, of which each group has a share, however small it is."""
        before = [load if (load := units * self.scale) >= SMALLEST_SHARE else 0.0 for units in self.before]
        return build_packing(self.capacities.tolist(), [1.0] * len(self.weights), self.name, before)

    def add(self, model: PackingModel, groups: Sequence[int], trees: Sequence[PackedTree]) -> None:
        """Add trees of groups to what `scaled` stated."""
        counts, classes = self.folding.counts, self.folding.link_orbits
        loads = [counts[at] * np.bincount(classes, tree.loads) for at, tree in zip(groups, trees, strict=True)]
        model.add_trees(groups, [load * self.shares[at] for at, load in zip(groups, loads, strict=True)])
        self.groups += groups
        self.loads += loads

    def unscaled(self) -> PackingModel:
        """State it with all trees, for GB/s per unit of weight."""
        model = build_packing(self.capacities.tolist(), self.weights, self.name, self.before)
        model.add_trees(self.groups, self.loads)
        return model


def _in_orbits(numbers: IntArray) -> list[tuple[int, int]]:
    """Pair each member of an orbit with its first."""
    first: dict[int, int] = {}
    return [(first.setdefault(number, place), place) for place, number in enumerate(numbers.tolist())]


def _spread(
    pricing: Pricing, folding: Folding, weights: Sequence[int], random: np.random.Generator
) -> list[PackedTree]:
    """Trees to start from: one after the other for each group, which avoid links that those before them loaded."""
    capacities, classes, trees = pricing.topology.arrays.capacities, folding.link_orbits, list[PackedTree]()
    members = np.bincount(classes)
    loads = np.zeros(len(capacities))
    for _ in range(FIRST_TREES):
        busy = loads / capacities
        lengths = np.exp(STEEPNESS * busy / max(busy.max(), 1e-300)) * (1 + random.random(len(loads))) / capacities
        pricing.set_lengths(np.maximum(1, GRAINS * lengths / lengths.max()).astype(np.int64))
        for group, weight, count in zip(folding.firsts.tolist(), weights, folding.counts.tolist(), strict=True):
            tree = pricing.expanded(group, pricing.cheapest(group, exact=False))
            loads += (weight * count * np.bincount(classes, tree.loads) / members)[classes]
            trees.append(tree)
    return trees


def _nearby(
    pricing: Pricing, lengths: IntArray, groups: Sequence[int], random: np.random.Generator
) -> list[PackedTree]:
    """Trees at slightly other lengths, since many links have length 0 and many trees the same cost."""
    trees = list[PackedTree]()
    mean = max(1, int(lengths.sum()) // len(lengths))
    for _ in range(NEARBY_TREES):
        pricing.set_lengths(lengths + (mean * random.random(len(lengths))).astype(np.int64))
        trees += [pricing.expanded(group, pricing.cheapest(group, exact=False)) for group in groups]
    return trees


def _priced(pricing: Pricing, earned: Mapping[int, int]) -> list[PackedTree]:
    """Trees that cost less than their group earns: greedy ones, or exact ones where there are no such."""
    cheaper = []
    for exact in (False, True):
        for group, limit in earned.items():
            if exact and len(pricing.groups[group][1]) > MAX_TARGETS:
                continue
            tree = pricing.cheapest(group, exact=exact)
            if tree.cost < limit:
                cheaper.append(pricing.expanded(group, tree))
        if cheaper:
            break
    return cheaper


def _float_duals(solution: Solution, shares: FloatArray) -> tuple[IntArray, IntArray]:
    """Read lengths of links and what trees of groups earn in floats, as multiples of one grain.

    Shapes: `shares` of data and what is earned (groups,), lengths (links,).
    """
    links = np.maximum(solution.duals["link_bandwidth"], 0.0)
    grain = max(float(links.max()), 1e-300) / GRAINS
    earned = np.clip(-solution.duals["group_size"] / shares / grain, -FAR, FAR)
    return np.rint(links / grain).astype(np.int64), np.floor(earned).astype(np.int64)


def _optimum(program: _Program, solution: Solution, trees: Sequence[PackedTree], unit: Fraction) -> Packing:
    """Read rates exactly, if the basis allows, and lengths in whole numbers; list all images of trees."""
    folding, weights = program.folding, np.array(program.weights, dtype=np.float64)
    lengths, _ = _float_duals(solution, program.shares)
    try:
        exact = exact_answer(program.unscaled().linear_program(), solution.evidence.basis)
        rates = [rate for name in exact.values if name.startswith("trees_") for rate in exact.values[name].tolist()]
        lengths = _integers(exact.duals["link_bandwidth"].tolist(), lengths)
    except NoAnswerError:
        blocks = [name for name in solution.values if name.startswith("trees_")]
        shares = np.concatenate([solution.values[name] for name in blocks]) * program.scale
        rates = [Fraction(rate) for rate in (shares * weights[program.groups]).tolist()]
    return Packing(_images(folding, trees, [rate * unit for rate in rates]), lengths[folding.link_orbits])


def _in_few_parts(program: _Program, trees: Sequence[PackedTree], rate: Fraction | None) -> list[Fraction]:
    """Rates of trees that divide each group into a few equal parts and reach a rate; none where there are no such."""
    assert rate is not None
    if len(trees) > MAX_INTEGERS:
        return []
    table, groups = np.array(program.loads), np.array(program.groups)
    number, link = np.nonzero(table)
    capacities, weights = program.capacities.tolist(), np.array(program.weights)
    for parts in FEW_PARTS:
        blocks = Blocks(f"trees of {parts} parts")
        counts = blocks.variables("counts", len(trees), integral=True)
        widths = [int(parts * Fraction(width) / rate) for width in capacities]
        terms = [(link, counts[number], table[number, link].astype(np.float64))]
        blocks.constraint("link_bandwidth", len(widths), terms, upper=widths)
        sizes = parts * weights
        blocks.constraint("group_size", len(sizes), [(groups, counts, 1.0)], lower=sizes, upper=sizes)
        blocks.minimize([(counts, [float(tree.loads.sum()) for tree in trees])])
        solution = solve(blocks, HighsOptions(time_limit=PARTS_SECONDS))
        if solution.status.primal is PrimalStatus.FEASIBLE:
            units = np.rint(solution.values["counts"]).astype(np.int64)
            # Large counts may be off by more than floats can tell.
            totals = np.zeros(len(sizes), dtype=np.int64)
            np.add.at(totals, groups, units)
            if (units >= 0).all() and (totals == sizes).all() and (units @ table <= widths).all():
                return [Fraction(count, parts) * rate for count in units.tolist()]
    return []


def _images(
    folding: Folding, trees: Sequence[PackedTree], rates: Sequence[Fraction]
) -> tuple[tuple[PackedTree, Fraction], ...]:
    """List all images of trees with rates."""
    count = dict(zip(folding.firsts.tolist(), folding.counts.tolist(), strict=True))
    used: dict[tuple[int, tuple[Path, ...]], Fraction] = {}
    for tree, rate in zip(trees, rates, strict=True):
        if rate > 0:
            part = rate * count[tree.group] / len(folding.images)
            for image, groups in zip(folding.images, folding.group_images, strict=True):
                paths = tuple(sorted(tuple(image[list(path)].tolist()) for path in tree.paths))
                key = int(groups[tree.group]), paths
                used[key] = used.get(key, Fraction(0)) + part
    return tuple((PackedTree(*key), rate) for key, rate in used.items())


def _integers(duals: Sequence[Fraction], rounded: IntArray) -> IntArray:
    """Scale exact dual values to whole numbers, or take the rounded ones where these would be too large."""
    numbers = whole_numbers([max(dual, Fraction(0)) for dual in duals])
    return np.array(numbers, dtype=np.int64) if max(numbers) <= GRAINS else rounded
