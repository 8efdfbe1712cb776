"""Symmetries of a network that keep demands: items and links that they take to each other are planned as one.

Candidates turn ranks of equal roles in circles: nested groups of them, such as boxes, or the ranks of each, in blocks.
Those that commute, and are checked link by link and item by item, generate a group of a few hundred symmetries.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain, islice, product
from typing import Any, NamedTuple

import numpy as np

from ...schedules import Demands
from ...support.arrays import IntArray, orbits, places_of
from ...topologies import Topology
from ...topologies.symmetry.rank_groups import rank_groups
from ...topologies.symmetry.refinement import ColoredNetwork, refined
from ...topologies.symmetry.translations import two_copies

MAX_SYMMETRIES = 512  # whose images of a tree are all in the plan
MAX_CANDIDATES = 4096
FEW_RANKS = 12  # on which folding takes longer than it saves


class Folding(NamedTuple):
    """Symmetries, and the orbits of groups of items and of links under them."""

    images: IntArray  # int64 (symmetries, nodes), the identity among them
    group_images: IntArray  # int64 (symmetries, groups)
    firsts: IntArray  # int64 (orbits of groups,): one group of each
    counts: IntArray  # int64 (orbits of groups,): how many there are
    link_orbits: IntArray  # int64 (links,)


def folded(topology: Topology, demands: Demands) -> Folding:
    """Find symmetries; the identity alone on small networks, and where there are no others."""
    ends = demands.ends(topology)
    network, size = ColoredNetwork.of(topology), len(topology.nodes)
    keys = {(*ends[number], group.weight, group.layer): number for number, group in enumerate(demands.groups)}
    images, group_images = np.arange(size)[None], np.arange(len(ends))[None]
    moves = list[tuple[IntArray, IntArray]]()
    if topology.num_ranks > FEW_RANKS:
        for ranks in islice(_candidates(topology, demands), MAX_CANDIDATES):
            if (moved := _moved_groups(ranks, keys)) is not None:
                moves.append((ranks, moved))
    # Those that join most groups first, then those that join most ranks.
    moves.sort(key=lambda move: tuple(int(orbits(side[None]).max()) for side in move[::-1]))
    generators, own = list[IntArray](), np.arange(topology.num_ranks)
    for ranks, moved in moves:
        joined_ranks = [orbits(np.array([own, *(mapping[: len(own)] for mapping in generators)])), orbits(group_images)]
        if all((joined[to] == joined).all() for joined, to in zip(joined_ranks, (ranks, moved), strict=True)):
            continue
        if any((ranks[other[: len(own)]] != other[ranks]).any() for other in generators):
            continue
        if (mapping := _extended(network, ranks)) is None:
            continue
        if any((mapping[other] != other[mapping]).any() for other in generators):
            continue
        powers = [(np.arange(size), np.arange(len(ends)))]
        while not ((power := (mapping[powers[-1][0]], moved[powers[-1][1]]))[0] == powers[0][0]).all():
            powers.append(power)
            if len(powers) * len(images) > MAX_SYMMETRIES:
                break
        if len(images) * len(powers) <= MAX_SYMMETRIES:
            products = np.concatenate([power[images] for power, _ in powers])
            images, places = np.unique(products, axis=0, return_index=True)
            group_images = np.concatenate([power[group_images] for _, power in powers])[places]
            generators.append(mapping)
    tails, heads, _, _ = topology.arrays
    keys_of_links = tails * size + heads
    link_images = np.array([places_of(keys_of_links, image[tails] * size + image[heads]) for image in images])
    of_groups = orbits(group_images)
    _, firsts, counts = np.unique(of_groups, return_index=True, return_counts=True)
    return Folding(images, group_images, firsts, counts, orbits(link_images))


def trivial(topology: Topology, demands: Demands) -> Folding:
    """Return the identity alone."""
    groups = np.arange(len(demands.groups))
    nodes, links = np.arange(len(topology.nodes)), np.arange(topology.num_links)
    return Folding(nodes[None], groups[None], groups, np.ones_like(groups), links)


def _moved_groups(ranks: IntArray, keys: Mapping[Any, int]) -> IntArray | None:
    """Image of each group under a permutation of the ranks; None if one has no image."""
    moved = np.empty(len(keys), dtype=np.int64)
    for (sources, destinations, *sizes), number in keys.items():
        image = (tuple(sorted(ranks[list(side)].tolist())) for side in (sources, destinations))
        place = keys.get((*image, *sizes))
        if place is None:
            return None
        moved[number] = place
    return moved


def _extended(network: ColoredNetwork, ranks: IntArray) -> IntArray | None:
    """Extend a permutation of the ranks to the switches; None if that is no symmetry."""
    size, count = network.num_nodes, len(ranks)
    colors = two_copies(network, []).colors + count
    colors[:count] = np.arange(count)
    colors[size + ranks] = np.arange(count)
    colors = refined(two_copies(network, []), colors)
    here, there = (np.argsort(half, kind="stable") for half in np.split(colors, 2))
    mapping = np.empty(size, dtype=np.int64)
    mapping[here] = there
    return mapping if network.has_symmetry(mapping) else None


def _candidates(topology: Topology, demands: Demands) -> Iterator[IntArray]:
    """Yield permutations of the ranks: one turn, or none, in each family of nested groups of equal roles."""
    families = _families(topology, demands)
    single = ((place, turn) for place, family in enumerate(families) for turn in _turns(family))
    identity = np.arange(topology.num_ranks)
    for place, turn in single:
        yield _applied(identity, [(families[place], turn)])
    if len(families) == 2:
        for pair in product(*(list(_turns(family)) for family in families)):
            yield _applied(identity, list(zip(families, pair, strict=True)))


def _applied(identity: IntArray, turns: list[tuple[IntArray, IntArray]]) -> IntArray:
    ranks = identity.copy()
    for family, turn in turns:
        ranks[family.ravel()] = family.ravel()[turn]
    return ranks


def _families(topology: Topology, demands: Demands) -> list[IntArray]:
    """Group the outermost nested groups of ranks by the roles of these; int64 (groups, ranks of each)."""
    roles: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for group, ends in zip(demands.groups, demands.ends(topology), strict=True):
        for place, side in enumerate(ends):
            for rank in side:
                roles[rank].append((group.weight, group.layer, *map(len, ends), place))
    digits = rank_groups(topology).digits
    outer = digits[:, 0] if digits.shape[1] > 1 else np.zeros(len(digits), dtype=np.int64)
    families: dict[object, list[IntArray]] = defaultdict(list)
    for number in dict.fromkeys(outer.tolist()):
        members = np.flatnonzero(outer == number)
        families[tuple(tuple(sorted(map(str, roles[rank]))) for rank in members.tolist())].append(members)
    return [np.array(rows) for rows in families.values()]


def _turns(family: IntArray) -> Iterator[IntArray]:
    """Yield turns of a family as places in its flat order: of its groups, or of the ranks in each, in blocks."""
    groups, ranks = family.shape
    places = np.arange(groups * ranks).reshape(groups, ranks)
    for axis, size in ((0, groups), (1, ranks)):
        blocks = (block for block in range(2, size + 1) if size % block == 0)
        for block, step in chain.from_iterable(
            ((block, step) for step in range(1, block) if block % step == 0) for block in blocks
        ):
            own = np.arange(size)
            own = own // block * block + (own % block + step) % block
            yield np.take(places, own, axis=axis).ravel()
