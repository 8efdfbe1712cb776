"""Symmetries of networks are right, as many as brute force finds orbits, and found quickly; so are orbits of links."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.topologies import (
    SwitchLimits,
    Topology,
    complete,
    complete_bipartite,
    dgx_a100,
    fat_tree,
    generalized_kautz,
    hypercube,
    leaf_spine,
    mi250,
    ring,
    symmetries,
    torus,
)
from collopt.topologies import symmetries as find_symmetries
from collopt.topologies.symmetry.automorphisms import LinkOrbits, link_images, link_orbits, trivial_link_orbits
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
        (torus(32, 32), 1),
        (torus(8, 8, 16), 1),
        (dgx_a100(boxes=16), 1),
        (leaf_spine(8, 4, 16, 50, oversubscription=2), 1),
        (fat_tree(8), 1),
        (mi250(boxes=2), 4),
        (complete(64), 1),
        (complete_bipartite(16), 1),
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


def test_traffic_that_a_rank_keeps_does_not_matter() -> None:
    """The diagonal is left out."""
    assert len(symmetries(ring(4), np.diag([1, 2, 3, 4]))) == len(symmetries(ring(4)))


def test_random_traffic_leaves_nothing_alike() -> None:
    """Every pair is different."""
    assert len(symmetries(torus(4, 4), np.random.default_rng(0).permutation(256).reshape(16, 16))) == 0


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

    module = sys.modules["collopt.topologies.symmetry.automorphisms"]
    cube, found = hypercube(4), []
    for attempts in range(40):
        monkeypatch.setattr(module, "MAX_WORK", attempts * (module.FIXED_COST + len(cube.links)))
        rows = symmetries(cube)
        assert all(is_symmetry(cube, None, tuple(row)) for row in rows.tolist())
        found.append(len(rows))
    assert found[0] == 0
    assert found == sorted(found)
    assert len(set(found)) > 2


def endless() -> list[Any]:
    """Return a list that holds itself."""
    rows: list[Any] = []
    rows.append(rows)
    return rows


def test_matrices_are_read_as_arrays_are() -> None:
    """Even of numpy's own kind, whose rows are matrices again."""
    amounts = np.array([[0, 2, 2], [1, 0, 1], [1, 1, 0]])
    assert symmetries(ring(3), amounts.view(np.matrix)).tolist() == symmetries(ring(3), amounts).tolist() == [[0, 2, 1]]


@pytest.mark.parametrize(
    ("traffic", "message"),
    [
        ([[0, 1.5, 1], [1, 0, 1], [1, 1, 0]], "the amounts of traffic are"),
        ([[0, 1], [1, 0]], r"the traffic has shape \(2, 2\); expected a row and a column .* each of 3 ranks"),
        ("much", "the amounts of traffic are 'much'"),
        (endless(), "expected a row and a column of whole numbers"),
    ],
)
def test_refuses_traffic_that_is_none(traffic: Any, message: str) -> None:
    """Each message names what is wrong."""
    with pytest.raises(UnsupportedError, match=message):
        symmetries(ring(3), traffic)


def test_refuses_what_is_no_topology() -> None:
    """A graph has to be made a topology first."""
    with pytest.raises(UnsupportedError, match="expected a Topology"):
        symmetries(ring(3).graph)  # type: ignore[arg-type]


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
