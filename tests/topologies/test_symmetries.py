"""Symmetries of networks and graphs, orbits of links, and nested groups of ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import NoAnswerError, UnsupportedError
from collopt.topologies import (
    DirectGraph,
    SwitchLimits,
    Topology,
    automorphisms,
    cartesian_power,
    circulant,
    complete,
    de_bruijn,
    dgx_a100,
    dgx_h100,
    diamond,
    dragonfly,
    fat_tree,
    gb200_nvl72,
    generalized_kautz,
    hamming,
    hypercube,
    isomorphism,
    leaf_spine,
    line_graph,
    mi250,
    rail,
    ring,
    symmetries,
    torus,
    unidirectional_ring,
)
from collopt.topologies import symmetries as find_symmetries
from collopt.topologies.symmetry import isomorphism as isomorphism_search
from collopt.topologies.symmetry.isomorphism import (
    LinkOrbits,
    link_images,
    link_orbits,
    preserves_arcs,
    trivial_link_orbits,
)
from collopt.topologies.symmetry.rank_groups import UNREACHED, rank_distances, rank_groups
from graph_symmetry import orbits
from regular_graphs import renumbered
from sample_sizes import examples

Mapping = tuple[int, ...]
EQUAL = st.just(None)


def is_symmetry(topology: Topology, traffic: Any, mapping: Mapping) -> bool:
    """By the definition: names are exchanged, and all must be as before."""
    nodes, ranks = topology.nodes, topology.num_ranks
    names = dict(zip(nodes, (nodes[image] for image in mapping), strict=True))
    moved = {(names[link.tail], names[link.head], link.bandwidth, link.latency) for link in topology.links}
    pairs = [(source, target) for source in range(ranks) for target in range(ranks) if source != target]
    return (
        sorted(mapping[:ranks]) == list(range(ranks))
        and moved == set(topology.links)
        and {names[switch] for switch in topology.multicast} == topology.multicast
        and {names[switch] for switch in topology.aggregation} == topology.aggregation
        and {names[switch] for switch in topology.loopback} == topology.loopback
        and (traffic is None or all(traffic[a][b] == traffic[mapping[a]][mapping[b]] for a, b in pairs))
    )


def orbit_labels(size: int, mappings: Any) -> list[int]:
    """The least node that mappings, one after the other, take each node to."""
    labels = list(range(size))
    changed = True
    while changed:
        changed = False
        for mapping in mappings:
            for node, image in enumerate(mapping):
                least = min(labels[node], labels[image])
                changed |= labels[node] != labels[image]
                labels[node] = labels[image] = least
    return labels


@st.composite
def small_networks(draw: st.DrawFn) -> tuple[Topology, list[list[int]] | None]:
    """Up to four ranks and two switches, few different bandwidths, latencies and amounts, so that much is alike."""
    ranks, switches = draw(st.integers(2, 4)), draw(st.integers(0, 2))
    nodes = [f"n{number}" for number in range(ranks + switches)]
    pairs = st.sampled_from(list(permutations(nodes, 2)))
    links = [
        (*pair, draw(st.sampled_from([1, 1, 1, 2])), draw(st.sampled_from([0, 0, 0, 1])))
        for pair in draw(st.lists(pairs, max_size=8, unique=True))
    ]
    made = Topology.from_links(
        links,
        compute=nodes[:ranks],
        switches=nodes[ranks:],
        bidirectional=draw(st.booleans()),
    )
    made = replace(
        made,
        multicast=frozenset(nodes[ranks : ranks + draw(st.integers(0, switches))]),
        aggregation=frozenset(nodes[ranks + draw(st.integers(0, switches)) :]),
        limits=tuple(SwitchLimits(switch, loopback=draw(st.booleans())) for switch in nodes[ranks:]),
    )
    rows = st.lists(st.sampled_from([1, 1, 1, 0, -7]), min_size=ranks, max_size=ranks)
    return made, draw(st.one_of(EQUAL, st.lists(rows, min_size=ranks, max_size=ranks)))


@given(small_networks())
@settings(max_examples=examples(200))
def test_orbits_are_those_of_all_symmetries(drawn: tuple[Topology, list[list[int]] | None]) -> None:
    """Found by trying every permutation; and each one that is given is a symmetry, not the identity."""
    topology, traffic = drawn
    size = len(topology.nodes)
    every = [mapping for mapping in permutations(range(size)) if is_symmetry(topology, traffic, mapping)]
    found = [tuple(row) for row in symmetries(topology, traffic).tolist()]
    assert set(found) <= set(every) - {tuple(range(size))}
    assert orbit_labels(size, found) == orbit_labels(size, every)


def ranks_alike(topology: Topology, traffic: Any = None) -> LinkOrbits:
    """Orbits under what is found, which is checked on the way."""
    tails, heads, capacities, _ = topology.arrays
    amounts = np.ones((topology.num_ranks,) * 2, dtype=np.int64) if traffic is None else traffic
    return link_orbits(tails, heads, capacities, amounts, find_symmetries(topology, traffic))


@pytest.mark.parametrize(
    ("topology", "sources"),
    [
        (hypercube(10), 1),
        (torus(8, 8, 16), 1),
        (dgx_a100(boxes=16), 1),
        (leaf_spine(8, 4, 16, 50, oversubscription=2), 1),
        (fat_tree(8), 1),
        (mi250(boxes=2), 4),
        (complete(64), 1),
        (generalized_kautz(4, 1024), 51),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else str(value),
)
def test_large_networks_have_the_orbits_that_their_makers_gave_them(topology: Topology, sources: int) -> None:
    """One source where all ranks are alike; Π(4, 1024) is a de Bruijn graph: set partitions of 5 places, at most 4."""
    found = ranks_alike(topology)
    assert len(found.sources) == sources
    assert found.counts.sum() == topology.num_ranks
    assert found.sizes.sum() == len(topology.links)
    assert len(found.sizes) < len(topology.links)


def test_traffic_tells_ranks_apart_or_leaves_turns_alone() -> None:
    """A shift keeps the turns of a ring, and no reflection; one hot rank keeps only the reflection through it."""
    network = ring(7)
    shift = np.roll(np.eye(7, dtype=np.int64), 2, axis=1) * 5
    turned = ranks_alike(network, shift)
    assert turned.counts.tolist() == [7]
    assert turned.sizes.tolist() == [7, 7]
    hot = np.ones((7, 7), dtype=np.int64)
    hot[0] = 9
    assert ranks_alike(network, hot).counts.tolist() == [1, 2, 2, 2]


def test_bandwidths_latencies_and_abilities_are_kept() -> None:
    """Two switches in parallel are alike until one of them is told apart."""
    rows = [(rank, switch, 10, 1) for rank in "ab" for switch in "st"]
    alike = Topology.from_links(rows, compute="ab", switches="st", bidirectional=True)

    def switch_orbits(topology: Topology) -> int:
        return len(set(orbit_labels(4, symmetries(topology).tolist())[2:]))

    assert switch_orbits(alike) == 1
    assert switch_orbits(alike.derate("a", "s", "1/2")) == 2
    slow = [(*row[:3], 2) if row[:2] == ("a", "s") else row for row in rows]
    assert switch_orbits(Topology.from_links(slow, compute="ab", switches="st", bidirectional=True)) == 2
    for ability in ({"multicast": "s"}, {"aggregation": "t"}):
        able = Topology.from_links(rows, compute="ab", switches="st", bidirectional=True, **ability)
        assert switch_orbits(able) == 2


def test_a_search_that_gives_up_keeps_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found is right with any number of attempts; with none, nothing is known."""
    import sys

    module = sys.modules["collopt.topologies.symmetry.isomorphism"]
    cube, found = hypercube(4), []
    for attempts in range(40):
        monkeypatch.setattr(module, "MAX_WORK", attempts * (module.FIXED_COST + len(cube.links)))
        rows = symmetries(cube)
        assert all(is_symmetry(cube, None, tuple(row)) for row in rows.tolist())
        found.append(len(rows))
    assert found[0] == 0
    assert found == sorted(found)
    assert len(set(found)) > 2


def test_images_of_links_follow_their_ends() -> None:
    """Parallel links of one capacity are exchanged in order, others go to those of their capacity."""
    tails, heads = np.array([0, 0, 1, 1, 0]), np.array([1, 1, 0, 0, 1])
    capacities, turn = np.array([1, 2, 2, 1, 1]), np.array([[1, 0]])
    with pytest.raises(UnsupportedError, match="row 0 of the symmetries does not take every link"):
        link_images(tails, heads, capacities, turn)
    (image,) = link_images(tails[:4], heads[:4], capacities[:4], turn)
    assert image.tolist() == [3, 2, 1, 0]


def test_symmetries_are_checked_and_not_believed() -> None:
    """Permutations, ranks to ranks, equal links, equal demands."""
    network = np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([1, 1, 1])
    ones = np.ones((3, 3), dtype=np.int64)
    for rows, demands, message in [
        ([[0, 0, 1]], ones, "row 0 of the symmetries is no permutation"),
        ([[0, 1, 2], [1, 0, 2]], ones, "row 1 of the symmetries does not take every link"),
        ([[1, 2, 0]], np.array([[0, 1, 1], [1, 0, 1], [2, 1, 0]]), "does not take every demand"),
        ([[1, 2, 0]], ones[:2, :2], "takes a rank to a switch"),
    ]:
        with pytest.raises(UnsupportedError, match=message):
            link_orbits(*network, demands, np.array(rows))
    assert trivial_link_orbits(3, demands=ones).counts.tolist() == [1, 1, 1]


@st.composite
def any_graphs(draw: st.DrawFn) -> DirectGraph:
    """Small graphs, regular or not, connected or not."""
    nodes = draw(st.integers(2, 5))
    node = st.integers(0, nodes - 1)
    return DirectGraph.from_arcs(nodes, draw(st.lists(st.tuples(node, node), min_size=1, max_size=8)), "random")


def mappings(graph: DirectGraph, other: DirectGraph) -> list[tuple[int, ...]]:
    """All isomorphisms, by trying every permutation."""
    arcs = sorted(zip(other.tails.tolist(), other.heads.tolist(), strict=True))
    pairs = list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
    return [
        order
        for order in permutations(range(graph.num_nodes))
        if sorted((order[tail], order[head]) for tail, head in pairs) == arcs
    ]


@given(any_graphs(), any_graphs())
@settings(max_examples=examples(150))
def test_small_graphs_are_told_apart_as_by_brute_force(graph: DirectGraph, other: DirectGraph) -> None:
    """Also a graph and its transpose, which have more in common."""
    for second in (other, graph.transpose()):
        if graph.num_nodes == second.num_nodes:
            known, found = mappings(graph, second), isomorphism(graph, second)
            assert tuple(found.tolist()) in known if found is not None else not known


@given(any_graphs())
@settings(max_examples=examples(100))
def test_orbits_are_those_of_all_automorphisms(graph: DirectGraph) -> None:
    """Each orbit is labelled by its least node."""
    known = mappings(graph, graph)
    assert orbits(graph).tolist() == [min(each[node] for each in known) for node in range(graph.num_nodes)]
    found = automorphisms(graph)
    assert {tuple(each) for each in found.tolist()} <= set(known)
    # Each one makes at least two orbits one.
    assert len(found) <= graph.num_nodes - len(np.unique(orbits(graph)))


LARGE: dict[str, Callable[[], DirectGraph]] = {
    "hypercube(10)": lambda: hypercube(10).direct_graph(),
    "DBJ(4, 5)": lambda: de_bruijn(4, 5).direct_graph(),
    "Pi(4, 1000)": lambda: generalized_kautz(4, 1000).direct_graph(),
    "C(1024, {22, 23})": lambda: circulant(1024, (22, 23)).direct_graph(),
    "L(UniRing(4, 64))": lambda: line_graph(unidirectional_ring(4, 64).direct_graph()),
    "L(Diamond^2)": lambda: line_graph(cartesian_power(diamond().direct_graph(), 2)),
}


@pytest.mark.parametrize("made", LARGE.values(), ids=LARGE.keys())
def test_large_graphs_are_recognised(made: Callable[[], DirectGraph]) -> None:
    """Symmetric ones, where nothing tells nodes apart at first, ones without symmetry, and ones with many twins."""
    graph = made()
    other = renumbered(graph, 7)
    found = isomorphism(graph, other)
    assert found is not None
    assert preserves_arcs(graph, other, found)


def test_graphs_that_look_alike_to_refinement_are_told_apart() -> None:
    """The 4 x 4 rook's graph and the Shrikhande graph: strongly regular, with the same parameters."""
    rook = cartesian_power(complete(4).direct_graph(), 2)
    steps = [(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)]
    shrikhande = DirectGraph.from_arcs(
        16,
        [(4 * a + b, 4 * ((a + x) % 4) + (b + y) % 4) for a in range(4) for b in range(4) for x, y in steps],
        "Shrikhande",
    )
    assert isomorphism(rook, shrikhande) is None
    assert isomorphism(shrikhande, renumbered(shrikhande, 3)) is not None
    assert not orbits(shrikhande).any()


def test_a_search_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than answering that there is no isomorphism."""
    monkeypatch.setattr(isomorphism_search, "MAX_ATTEMPTS", 2)
    cube = hypercube(4).direct_graph()
    with pytest.raises(NoAnswerError, match="2 attempts"):
        isomorphism(cube, renumbered(cube, 1))


SIZES = [
    (dgx_a100(boxes=2), (2, 8)),
    (dgx_h100(boxes=4), (4, 8)),
    (mi250(boxes=2), (2, 16)),
    (gb200_nvl72(), (72,)),
    (rail(4), (4, 8)),
    (leaf_spine(4, 2, 8), (4, 8)),
    (fat_tree(8), (8, 4, 4)),
    (dragonfly(4, 2, 2), (9, 4, 2)),
    (dragonfly(8, 1, 1, groups=8), (8, 8)),
    (torus(8, 8), (8, 8)),
    (torus(4, 4, 4), (4, 4, 4)),
    (hypercube(3), (2, 2, 2)),
    (hamming(2, 4), (4, 4)),
    (ring(8), (8,)),
]


def with_rank_order(topology: Topology, order: list[int]) -> Topology:
    """Return the same network with its ranks in another order."""
    names = [topology.compute_nodes[rank] for rank in order]
    return Topology.from_links(topology.links, compute=names, switches=topology.switch_nodes)


@pytest.mark.parametrize(("topology", "sizes"), SIZES, ids=lambda value: getattr(value, "name", None))
def test_digits_number_the_ranks_of_known_networks(topology: Topology, sizes: tuple[int, ...]) -> None:
    """Digits of the groups that builders make number all ranks in their order."""
    groups = rank_groups(topology)
    assert groups.sizes == sizes
    assert groups.digits.dtype == np.int64
    assert groups.values.tolist() == list(range(topology.num_ranks))
    assert groups.places.tolist() == np.arange(topology.num_ranks).reshape(sizes).tolist()


def test_peers_of_rails_have_the_same_place_in_any_order() -> None:
    """Where rails say who is whose peer, the order of the ranks inside a box does not matter."""
    order = [0, 1, 2, 3, 6, 4, 7, 5, 11, 10, 9, 8]
    network = with_rank_order(rail(3, gpus_per_box=4), order)
    groups = rank_groups(network)
    assert groups.sizes == (3, 4)
    for rank, name in enumerate(network.compute_nodes):
        box, gpu = name.split("/")
        assert f"box{groups.digits[rank, 0]}" == box
        assert f"gpu{groups.digits[rank, 1]}" == gpu


def test_boxes_whose_ranks_are_interleaved_are_found() -> None:
    """Ranks need not be numbered box by box."""
    groups = rank_groups(with_rank_order(dgx_a100(boxes=2), [rank // 2 + 8 * (rank % 2) for rank in range(16)]))
    assert groups.sizes == (2, 8)
    assert groups.digits[:4].tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("rates", "sizes"), [((200, 200, 200), (3, 4)), ((200, 200, 50), (12,)), ((200, 100, 100), (3, 4)), ((50,), (4,))]
)
def test_boxes_as_near_as_others_are_those_of_wider_links(rates: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """One switch joins all ranks, wider links to another one those of each box; boxes of unequal sizes are none."""
    links = [(f"b{box}g{gpu}", f"box{box}", rate) for box, rate in enumerate(rates) for gpu in range(4)]
    links += [(link[0], "core", 50) for link in links]
    switches = [*(f"box{box}" for box in range(len(rates))), "core"]
    ranks = list(dict.fromkeys(link[0] for link in links))
    network = Topology.from_links(links, compute=ranks, switches=switches, bidirectional=True)
    assert rank_groups(network).sizes == sizes


def test_distances_do_not_pass_ranks() -> None:
    """Paths pass switches only, and the longer direction counts."""
    links = [("a", "s", 1), ("s", "b", 1), ("b", "a", 1), ("b", "c", 1), ("c", "b", 1)]
    distances = rank_distances(Topology.from_links(links, compute="abc", switches="s"))
    assert distances.tolist() == [[0, 2, UNREACHED], [2, 0, 1], [UNREACHED, 1, 0]]
