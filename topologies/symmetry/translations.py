"""Translations of a network, and turns of its equal parts, such as boxes round a fabric or hosts of a switch.

Without its outermost switches a network falls apart.  Where the parts are equal, and linked equally to what was taken
away, moving each to the next one is a symmetry that fixes all else; so for the parts of a part: all turns commute.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray, components, distances_from
from .refinement import ColoredNetwork, hops_from, refined, refinements, signature

MAX_TIES = 64  # sets of nodes that refinement does not tell apart, in a part
MAX_LOOKS = 128  # images of rank 0 whose distances are compared with its own
MAX_TARGETS = 24  # images of rank 0 that are tried
NEAR = 12  # of which these are its neighbors
PATIENCE = 3  # images that are tried in vain beside one symmetry of order 2
SEEDS = 3  # orders in which ties are broken
MAX_WORK = 3 * 10**7  # links times individualized pairs of nodes: seconds


class Turn(NamedTuple):
    """A symmetry that moves equal parts in a circle."""

    mapping: IntArray  # int64 (nodes,): where each node goes
    order: int
    # int64 (products, nodes of a part): the first part and its images under the outer turns and this one
    parts: IntArray


def nested_turns(network: ColoredNetwork, num_ranks: int) -> Iterator[Turn]:
    """Yield commuting turns of a network with switches, the outermost first, each checked link by link."""
    ends = np.concatenate([[network.tails, network.heads], [network.heads, network.tails]], axis=1)
    levels = np.maximum(distances_from(np.arange(num_ranks), network.num_nodes, *ends), 0)  # links to the nearest rank
    # From the outermost switches inwards: take them away, match the parts, turn them in all images at once.
    images = np.arange(network.num_nodes)[None]
    for level in range(int(levels.max()), 0, -1):
        block = images[0]
        inside = levels[block] < level
        for at_once in (True, False):
            steps = _equal_parts(network, block[inside], num_ranks, at_once=at_once)
            if steps is None:
                break
            moves = np.flatnonzero(inside)[steps]
            mapping = np.arange(network.num_nodes)
            mapping[images[:, moves.ravel()]] = images[:, np.roll(moves, -1, axis=0).ravel()]
            if network.has_symmetry(mapping):
                images = images[:, moves].reshape(-1, moves.shape[1])
                yield Turn(mapping, len(moves), images)
                break


def hosts_of_sites(network: ColoredNetwork, num_ranks: int) -> IntArray | None:
    """Return the hosts of each router, int64 (routers, hosts of each): equally many, each linked to its router alone.

    Without switches every rank is its own site.  None for other networks with switches.
    """
    routers = network.num_nodes - num_ranks
    if not routers:
        return np.arange(num_ranks)[:, None]
    if routers == 1:
        return None
    # Every rank has one link up and one down, to the same router; routers have equally many ranks.
    ups, downs = network.tails < num_ranks, network.heads < num_ranks
    own, other = ([ends[links] for ends in (network.tails, network.heads)] for links in (ups, downs))
    above, below = np.argsort(own[0]), np.argsort(other[1])
    ranks, near = np.arange(num_ranks), own[1][above]
    if len(above) != num_ranks or (own[0][above] != ranks).any() or near.min() < num_ranks:
        return None
    if len(below) != num_ranks or (other[1][below] != ranks).any() or (other[0][below] != near).any():
        return None
    if (np.bincount(near - num_ranks, minlength=routers) * routers != num_ranks).any():
        return None
    # Links of the hosts of a router are of the same kinds.
    hosts = np.argsort(near, kind="stable").reshape(routers, -1)
    kinds = np.array([network.kinds[ups][above], network.kinds[downs][below]])[:, hosts]
    return hosts if (kinds == kinds[:, :, :1]).all() else None


def _equal_parts(network: ColoredNetwork, inside: IntArray, num_ranks: int, *, at_once: bool) -> IntArray | None:
    """Match the parts that some nodes fall into; int64 (parts, nodes of each), places in `inside`.

    Nodes that are tied are told apart in the order of their numbers: all at once, or one at a time.  None if there are
    no equal parts, or too many ties.
    """
    # Parts are the components of the nodes inside; those with ranks have to be equally large.
    local, colors = network.around(inside)
    size = len(inside)
    both = (local.tails < size) & (local.heads < size)
    part = components(size, np.column_stack([local.tails[both], local.heads[both]]))
    with_ranks = np.zeros(part.max(initial=0) + 1, dtype=np.bool_)
    with_ranks[part[inside < num_ranks]] = True
    moving = with_ranks[part]
    counts = np.bincount(part)[with_ranks]
    if len(counts) < 2 or (counts != counts[0]).any():
        return None
    colors[:size][~moving] = colors.max() + 1 + np.flatnonzero(~moving)
    # Refine all parts together until no color ties two nodes of a part.
    for _ in range(MAX_TIES):
        colors = refined(local, colors)
        order = np.lexsort((np.arange(size), colors[:size], part))
        order = order[moving[order]]
        rows = order.reshape(-1, counts[0])
        tied = _ties(colors[rows])
        if tied is None:
            return rows if (colors[rows] == colors[rows[0]]).all() else None
        nodes, places = rows[tied.mask], tied.places
        if not at_once:
            nodes, places = nodes[places == 0], places[places == 0]
        colors[nodes] = colors.max() + 1 + places
    return None


class _Ties(NamedTuple):
    mask: BoolArray  # bool (parts, nodes): the nodes of one color that ties some in each part
    places: IntArray  # int64 (mask,): their places among those of their part


def _ties(rows: IntArray) -> _Ties | None:
    """Find the color that ties fewest nodes of a part; `rows` int64 (parts, nodes), sorted. None without ties."""
    repeats = rows[:, 1:] == rows[:, :-1]
    if not repeats.any():
        return None
    tied = np.unique(rows[:, 1:][repeats])
    sizes = [(rows == color).sum(axis=1).max() for color in tied.tolist()]
    mask = rows == tied[np.argmin(sizes)]
    return _Ties(mask, (np.cumsum(mask, axis=1) - 1)[mask])


class CyclicGroups:
    """Commuting permutations of which no product but the identity fixes a rank: a product of cyclic groups."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self.generators: list[IntArray] = []
        self.orders: list[int] = []  # of each in the group of those before it
        self.relations: list[list[int]] = []  # row i: exponents of the product of generators up to i that is 1
        self.orbit = np.zeros(1, dtype=np.int64)  # images of rank 0 by exponents, the last one fastest

    def added(self, mapping: IntArray) -> bool:
        """Add a permutation that commutes with the others if the group still fixes no rank."""
        # The order of the permutation relative to the group, and the member that this power is.
        exponents_of = np.full(self.num_ranks, -1)
        exponents_of[self.orbit] = np.arange(len(self.orbit))
        image, order = int(mapping[0]), 1
        while exponents_of[image] < 0:
            image, order = int(mapping[image]), order + 1
        size = order * len(self.orbit)
        exponents = (
            [int(exponent) for exponent in np.unravel_index(exponents_of[image], tuple(self.orders))]
            if self.orders
            else []
        )
        member = product_of_powers(self.generators, exponents, np.arange(len(mapping)))
        # The group has at most `size` members: none but the identity fixes a rank if all orbits are that large.
        if (power(mapping, order) != member).any() or (self._orbit_sizes(mapping) != size).any():
            return False
        for row in self.relations:
            row.append(0)
        self.relations.append([*(-exponent for exponent in exponents), order])
        images = [self.orbit]
        for _ in range(order - 1):
            images.append(mapping[images[-1]])
        self.orbit = np.column_stack(images).ravel()
        self.generators.append(mapping)
        self.orders.append(order)
        return True

    def independent(self) -> list[IntArray]:
        """Return generators whose orders multiply to that of the group."""
        return [
            product_of_powers(self.generators, row, np.arange(len(self.generators[0])))
            for row, order in _smith_rows(self.relations)
            if order != 1
        ]

    def _orbit_sizes(self, mapping: IntArray) -> IntArray:
        ranks = np.arange(self.num_ranks)
        pairs = [np.column_stack([ranks, generator[ranks]]) for generator in (*self.generators, mapping)]
        return np.bincount(components(self.num_ranks, np.concatenate(pairs)))


def product_of_powers(generators: Sequence[IntArray], exponents: Sequence[int], nodes: IntArray) -> IntArray:
    """Return where a product of powers of commuting permutations takes nodes."""
    for generator, exponent in zip(generators, exponents, strict=True):
        nodes = power(generator, exponent)[nodes]
    return nodes


def site_symmetries(network: ColoredNetwork, hosts: IntArray) -> Iterator[IntArray]:
    """Yield independent commuting symmetries that turn the hosts, (routers, hosts of each), or move the routers."""
    first = network.num_nodes - len(hosts)
    if hosts.shape[1] > 1:
        turn = np.arange(network.num_nodes)
        turn[hosts] = np.roll(hosts, -1, axis=1)
        yield turn
    for moved in translations(_between_sites(network, first), len(hosts)):
        mapping = np.concatenate([np.empty(first, dtype=np.int64), first + moved])
        mapping[hosts] = hosts[moved]
        yield mapping


def _between_sites(network: ColoredNetwork, first: int) -> ColoredNetwork:
    """Return the network of the routers, which are the nodes from `first` on, colored by the links to their hosts."""
    colors = network.colors[first:].copy()
    for own, other in ((network.tails, network.heads), (network.heads, network.tails)):
        crossing = (own >= first) & (other < first)
        kinds = np.zeros_like(colors)
        kinds[own[crossing] - first] = network.kinds[crossing]
        colors = colors * (network.kinds.max(initial=0) + 1) + kinds
    inside = (network.tails >= first) & (network.heads >= first)
    return ColoredNetwork(network.tails[inside] - first, network.heads[inside] - first, network.kinds[inside], colors)


def translations(network: ColoredNetwork, num_ranks: int) -> list[IntArray]:
    """Find independent commuting symmetries, of which no product but the identity fixes a rank."""
    if not len(network.tails):
        return []
    targets = list(_targets(network, num_ranks))
    group = _group(network, num_ranks, targets, least_order=2)
    if len(group.orbit) == 2:  # such as a reflection, which commutes with no translation
        other = _group(network, num_ranks, targets, least_order=3)
        group = other if len(other.orbit) > 2 else group
    return group.independent()


def _group(network: ColoredNetwork, num_ranks: int, targets: list[int], *, least_order: int) -> CyclicGroups:
    """Find commuting symmetries that take rank 0 to some of the targets, the first of at least this order."""
    group = CyclicGroups(num_ranks)
    distances = hops_from(network, 0)
    left = MAX_WORK // (len(network.tails) + 1)  # pairs of nodes that may still be individualized
    both = two_copies(network, group.generators)
    failed = 0
    for target in targets:
        if len(group.orbit) == num_ranks or left <= 0 or (len(group.orbit) == 2 and failed == PATIENCE):
            break
        if target in group.orbit:
            continue
        failed += 1
        for seed in range(SEEDS):
            mapping, pairs = _translation(network, both, target, distances, seed, left)
            left -= pairs
            fits = mapping is not None and (len(group.orbit) > 1 or least_order == 2 or mapping[mapping[0]] != 0)
            if mapping is not None and fits and network.has_symmetry(mapping) and group.added(mapping):
                both = two_copies(network, group.generators)
                failed = 0
                break
            if pairs == 1:
                break  # nothing was tied, so no other order helps
    return group


def _targets(network: ColoredNetwork, num_ranks: int) -> Iterator[int]:
    """Yield ranks from which the network looks as from rank 0: near ones, then one of each distance, then others."""
    distances = hops_from(network, 0)[:num_ranks]
    order = np.argsort(distances, kind="stable")
    order = order[distances[order] > 0]
    _, first = np.unique(distances[order], return_index=True)
    own = signature(network, _seen_from(network, 0))
    yielded = 0
    for target in list(dict.fromkeys([*order[:NEAR].tolist(), *order[first].tolist(), *order.tolist()]))[:MAX_LOOKS]:
        if (signature(network, _seen_from(network, target)) == own).all():
            yield target
            yielded += 1
            if yielded == MAX_TARGETS:
                return


def _seen_from(network: ColoredNetwork, node: int) -> IntArray:
    """Color nodes by their colors and distances from one of them."""
    return network.colors * (network.num_nodes + 1) + hops_from(network, node) + 1


def two_copies(network: ColoredNetwork, mappings: list[IntArray]) -> ColoredNetwork:
    """Return a network twice, with links of a kind of their own from each node to its image under each mapping."""
    size, kinds = network.num_nodes, network.kinds.max() + 1
    tails = np.concatenate([network.tails, *([np.arange(size)] * len(mappings))])
    heads = np.concatenate([network.heads, *mappings])
    links = np.concatenate([network.kinds, *(np.full(size, kinds + number) for number in range(len(mappings)))])
    twice = [np.concatenate([ends, ends + size]) for ends in (tails, heads)]
    return ColoredNetwork(twice[0], twice[1], np.tile(links, 2), np.tile(network.colors, 2))


def _translation(
    network: ColoredNetwork, both: ColoredNetwork, target: int, distances: IntArray, seed: int, limit: int
) -> tuple[IntArray | None, int]:
    """Match a network with itself so that rank 0 goes to `target`, by at most so many individualized pairs.

    Returns the mapping, int64 (nodes,), which may be no symmetry, or None; and the number of pairs.
    """
    size = network.num_nodes
    random = np.random.default_rng(seed)
    colors = both.colors.copy()
    node, image = 0, target
    distance = distances[target]
    for pairs in range(1, limit + 1):
        # Distances from both nodes say at once what refinement would find out one hop at a time.
        hops = np.concatenate([hops_from(network, node), hops_from(network, image)])
        for colors in refinements(both, colors * (hops.max() + 2) + hops + 1):  # noqa: B020
            counts = [np.bincount(half, minlength=2 * size) for half in (colors[:size], colors[size:])]
            if (counts[0] != counts[1]).any():
                return None, pairs
        # All nodes have colors of their own: these are the mapping.
        here, there = (np.argsort(half, kind="stable") for half in (colors[:size], colors[size:]))
        tied = np.flatnonzero(np.diff(colors[here]) == 0)
        if not len(tied):
            mapping = np.empty(size, dtype=np.int64)
            mapping[here] = there
            return mapping, pairs
        # The first image, or the nearest tied node; of the nodes that it can go to one as far away as the first image.
        open_nodes = here[np.concatenate([tied, tied + 1])]
        node = target if target in open_nodes else int(open_nodes[distances[open_nodes].argmin()])
        choices = np.flatnonzero(colors[size:] == colors[node])
        lengths = hops_from(network, node)[choices]
        candidates = choices[lengths == distance]
        if not len(candidates):
            return None, pairs
        # Far from rank 0, so that it takes many steps to get back.
        image = int(candidates[distances[candidates].argmax()] if seed == 0 else random.choice(candidates))
    return None, limit


def power(mapping: IntArray, exponent: int) -> IntArray:
    """Apply a permutation several times; its inverse for a negative exponent."""
    if exponent < 0:
        mapping, exponent = np.argsort(mapping), -exponent
    product = np.arange(len(mapping))
    while exponent:
        if exponent % 2:
            product = mapping[product]
        mapping, exponent = mapping[mapping], exponent // 2
    return product


def _smith_rows(relations: list[list[int]]) -> list[tuple[list[int], int]]:
    """Diagonalize relations by unimodular steps; the exponents of each new generator, and its order."""
    size = len(relations)
    rows = [list(row) for row in relations]
    inverse = [[int(row == column) for column in range(size)] for row in range(size)]
    for step in range(size):
        # Bring the smallest entry to the pivot and reduce its row and column, until both are zero.
        while True:
            entries = [
                (abs(rows[row][column]), row, column)
                for row in range(step, size)
                for column in range(step, size)
                if rows[row][column]
            ]
            _, row, column = min(entries)
            rows[step], rows[row] = rows[row], rows[step]
            for line in rows:
                line[step], line[column] = line[column], line[step]
            inverse[step], inverse[column] = inverse[column], inverse[step]
            pivot = rows[step][step]
            for row in range(step + 1, size):
                factor = rows[row][step] // pivot
                rows[row] = [value - factor * top for value, top in zip(rows[row], rows[step], strict=True)]
            for column in range(step + 1, size):
                factor = rows[step][column] // pivot
                for line in rows:
                    line[column] -= factor * line[step]
                # A column operation on the relations is the opposite row operation on the generators.
                inverse[step] = [
                    value + factor * other for value, other in zip(inverse[step], inverse[column], strict=True)
                ]
            if not any(rows[row][step] for row in range(step + 1, size)) and not any(rows[step][step + 1 :]):
                break
    assert prod(abs(rows[step][step]) for step in range(size)) > 0
    return [(inverse[step], abs(rows[step][step])) for step in range(size)]
