"""Topologies built from arrays are those built from links."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError, TopologyError
from collopt.support.arrays import encode_integers
from collopt.topologies import (
    DirectGraph,
    Link,
    RuntimeCosts,
    Topology,
    dgx_h100,
    dragonfly,
    fat_tree,
    leaf_spine,
    rail,
    ring,
    torus,
)
from collopt.topologies.builders import read_topology, write_topology
from collopt.topologies.network import topology_json
from collopt.topologies.switched.box_files import stored_box
from collopt.topologies.switched.scale_out import Box, Nic, join_boxes
from oracles import changes_by_links, networks_by_links
from sample_sizes import examples
from strategies import able_topologies


def same(made: Topology, wanted: Topology) -> bool:
    """Whether two networks agree in all that there is, and the first has made no links for it."""
    arrays = zip((*made.columns[:3], *made.arrays), (*wanted.columns[:3], *wanted.arrays), strict=True)
    return (
        (made.nodes, made.num_ranks, made.name) == (wanted.nodes, wanted.num_ranks, wanted.name)
        and (made, made.digest, hash(made)) == (wanted, wanted.digest, hash(wanted))
        and all(np.array_equal(one, other) for one, other in arrays)
        and repr(made) == repr(wanted)
        and "links" not in vars(made)
        and made.links == wanted.links
    )


def from_arrays(network: Topology, **changes: Any) -> Topology:
    """Build a network again, from its arrays."""
    arguments = dict(zip(("tails", "heads", "kinds", "rates"), network.columns, strict=True))
    arguments |= {name: getattr(network, name) for name in ("multicast", "aggregation", "limits", "name")}
    arguments |= {"compute": network.compute_nodes, "switches": network.switch_nodes}
    return Topology.from_arrays(**arguments | changes)


@settings(max_examples=examples(30))
@given(able_topologies())
def test_arrays_make_the_network_that_links_make(network: Topology) -> None:
    """Also after copying, pickling and every change; kinds may be numbered in any way."""
    columns, more = (
        network.columns,
        [*network.columns.rates[::-1], (Fraction(7), Fraction(1)), network.columns.rates[0]],
    )
    kinds = len(columns.rates) - 1 - columns.kinds
    kinds[columns.kinds == 0] = len(more) - 1
    assert same(from_arrays(network), network)
    assert same(from_arrays(network, kinds=kinds.astype(np.int32), rates=more), network)
    made = from_arrays(network)
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made.changed(name="other")):
        assert "links" not in vars(again)
        assert again == network
    tail, head = network.links[-1][:2]
    changes: list[Callable[[Topology], Topology]] = [
        lambda each: each.without_abilities().without_link(tail, head),
        lambda each: replace(each, name="other", multicast=()),
    ]
    for change in changes:
        assert change(from_arrays(network)) == change(network)
    assert made != network.scaled(2)
    assert made != network.columns
    with pytest.raises(AttributeError, match="no attribute 'lnks'"):
        made.lnks  # type: ignore[attr-defined]  # noqa: B018


@settings(max_examples=examples(60))
@given(able_topologies(), st.data())
def test_what_if_changes_are_those_made_link_by_link(network: Topology, data: st.DataObject) -> None:
    """Nodes, their order, links, names, abilities and costs; nothing is made of `links`."""
    network = network.changed(costs=RuntimeCosts(alpha=2, calibrated=True))
    made, links = from_arrays(network).changed(costs=network.costs), network.links
    kept = tuple(data.draw(st.permutations(network.compute_nodes))[: data.draw(st.integers(2, network.num_ranks))])
    tail, head = data.draw(st.sampled_from(links))[:2]
    both = data.draw(st.booleans())
    factor = data.draw(st.fractions("1/3", 3, max_denominator=5))
    some = data.draw(
        st.dictionaries(st.sampled_from([link[:2] for link in links]), st.fractions(0, 3, max_denominator=6))
    )
    ends = {(tail, head), (head, tail)} if both else {(tail, head)}
    old = {link[:2]: link.bandwidth for link in links}
    name, slower = network.name, {pair: old[pair] * factor for pair in ends & old.keys()}
    changed = changes_by_links.with_bandwidths
    pairs = [
        (made.restrict(kept), changes_by_links.restrict(network, kept)),
        (
            made.without_link(tail, head, bidirectional=both),
            changed(network, dict.fromkeys(ends, Fraction(0)), f"{name} without {tail}-{head}"),
        ),
        (
            made.derate(tail, head, factor, bidirectional=both),
            changed(network, slower, f"{name} with {tail}-{head} x {factor}"),
        ),
        (
            made.scaled(factor),
            changed(network, {pair: each * factor for pair, each in old.items()}, f"{name} x {factor}"),
        ),
        (made.with_bandwidths(some), changed(network, some, f"{name} with other bandwidths")),
    ]
    node = data.draw(st.sampled_from(network.nodes))
    if network.num_ranks > 2 or node in network.switch_nodes:
        pairs.append((made.without_node(node), changes_by_links.without_node(network, node)))
    for one, other in pairs:
        assert same(one, other)
        assert (one.limits, one.multicast, one.aggregation, one.costs) == (
            other.limits,
            other.multicast,
            other.aggregation,
            other.costs,
        )
    if len(kept) < network.num_ranks:
        assert same(made.restrict(kept, relay=True), changes_by_links.restrict(network, kept, relay=True))


@settings(max_examples=examples(20))
@given(able_topologies())
def test_files_of_arrays_hold_the_same_network(network: Topology) -> None:
    """Where there are many links, here more than none, the document has version 2."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(topology_json, "MAX_ROWS", 0)
        document = json.loads(json.dumps(topology_json.topology_to_json(network)))
    assert document["version"] == 2
    assert same(topology_json.topology_from_json(document, "document"), network)


def test_only_large_networks_are_written_as_arrays(tmp_path: Path) -> None:
    """In kilobytes for the links; files of smaller ones stay as they were."""
    network = dgx_h100(1366)
    write_topology(network, tmp_path / "large.json")
    document = json.loads((tmp_path / "large.json").read_text())
    assert (document["version"], len(json.dumps(document["links"])) < 10_000) == (2, True)
    assert same(read_topology(tmp_path / "large.json"), network)
    assert topology_json.topology_to_json(ring(4))["version"] == 1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"count": 5}, "links.tails has more than 5 bytes"),
        (
            {"tails": encode_integers([0, 1, 2, 3, 0, 1])},
            "links.tails has the number 3; expected whole numbers from 0 to 2",
        ),
        ({"rates": [[1]]}, r"links.rates\[0\]: is \[1\]; expected \[bandwidth, latency\]"),
        ({"rates": []}, "field links has 6 links, but there are no rates"),
        ({"rates": [[1, 0], [2, 0]]}, "row 1 of links.rates is used by no link"),
        ({"tails": encode_integers([0] * 6)}, "is a self-loop|is listed twice"),
    ],
)
def test_wrong_files_of_arrays_are_refused(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], problem: str
) -> None:
    """The message names the file and the field."""
    monkeypatch.setattr(topology_json, "MAX_ROWS", 0)
    document = topology_json.topology_to_json(ring(3))
    document["links"] |= fields
    with pytest.raises(FileFormatError, match=f"^net.json: (?!.*net.json).*{problem}"):
        topology_json.topology_from_json(document, "net.json")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tails": [0, 1, 3]}, "the tails hold 3; expected numbers from 0 to 2"),
        ({"kinds": [0, 0, 1]}, "the kinds hold 1; expected numbers from 0 to 0"),
        ({"kinds": [[0, 0, 0]]}, r"the kinds have the shape \(1, 3\)"),
        ({"kinds": [0, 0]}, "there are 3 tails, 3 heads and 2 kinds"),
        ({"tails": [1, 1, 2]}, r"link \('gpu1', 'gpu1'\) is a self-loop|is listed twice"),
        ({"tails": [0, 1, 0], "heads": [1, 2, 1]}, r"link \('gpu0', 'gpu1'\) is listed twice"),
        ({"rates": [(0, 0)]}, "bandwidth of links of kind 0 is 0"),
        ({"rates": [(1, -1)]}, "latency of links of kind 0 is -1"),
        ({"compute": ["a", "b"], "switches": ["c"], "multicast": ["d"]}, "multicast is claimed for 'd'"),
        (
            {"heads": [1, 0, 1], "tails": [0, 1, 2], "compute": "ab", "switches": "c", "multicast": "c"},
            "links to 1 nodes",
        ),
    ],
)
def test_wrong_arrays_are_refused(changes: dict[str, Any], problem: str) -> None:
    """The message names the link or the number."""
    with pytest.raises(TopologyError, match=problem):
        from_arrays(ring(3, bidirectional=False), **changes)


def test_arrays_that_change_later_change_no_network() -> None:
    """The network has copies of the arrays."""
    tails, heads, kinds = (column.copy() for column in ring(4).columns[:3])
    made = from_arrays(ring(4), tails=tails, heads=heads, kinds=kinds)
    tails[:] = heads[:] = kinds[:] = 0
    assert made == ring(4)


def test_boxes_are_joined_as_link_by_link() -> None:
    """Equal boxes in a row and others, with fabrics in turn, parallel links, and links of the fabric."""
    pair = Box(
        "pair", 2, (Link("gpu0", "gpu1", Fraction(3)), Link("gpu1", "gpu0", Fraction(1))), (Nic(("gpu0",), 1, 2),)
    )
    stored = [stored_box(name) for name in ("dgx-h100", "mi250", "dgx1-v100", "trn2")]
    backbone = [Link("left", "top", Fraction(3)), Link("right", "top", Fraction(3))]
    cases = [[each] * count for each, count in product((pair, *stored), (1, 2, 5))]
    for boxes in [*cases, [pair, *stored[:1] * 2, pair, pair, stored[1]]]:
        for top in ([], backbone):
            made = join_boxes(boxes, "joined", fabric_switch=lambda _, nic: ("left", "right")[nic % 2], backbone=top)
            wanted = networks_by_links.boxes(boxes, "joined", lambda _, nic: ("left", "right")[nic % 2], top)
            assert same(made, wanted)


def test_fabrics_are_those_made_link_by_link() -> None:
    """Arrays agree with the oracle for many small parameters."""
    for leaves, spines, hosts, taper in product((2, 3), (1, 2), (1, 3), (1, 2)):
        made = leaf_spine(leaves, spines, hosts, oversubscription=taper)
        assert same(made, networks_by_links.leaf_spine(leaves, spines, hosts, taper))
    for k, taper in product((2, 4, 6), (1, 3)):
        assert same(fat_tree(k, oversubscription=taper), networks_by_links.fat_tree(k, taper))
    for a, p, h in product((1, 2, 3), (1, 2), (1, 2)):
        for groups in range(2, a * h + 2):
            made = dragonfly(a, p, h, groups=groups, oversubscription=2)
            assert same(made, networks_by_links.dragonfly(a, p, h, groups, 2))


def test_direct_networks_are_those_made_link_by_link() -> None:
    """Parallel arcs are merged, in the order of their first."""
    for shape in ((2, 2), (2, 3), (4, 2, 3), (5, 3)):
        assert same(torus(*shape), networks_by_links.torus(*shape))
    for seed in range(10):
        ends = np.random.default_rng(seed).integers(0, 6, (2, 25))
        graph = DirectGraph(6, *ends, "random")
        assert same(Topology.from_graph(graph, bandwidth="1/3"), networks_by_links.of_graph(graph))


def test_large_networks_make_no_links() -> None:
    """Only arrays of them: the checks of switches and rails, too."""
    assert "links" not in vars(rail(1000, sharp=True))
    assert "links" not in vars(dgx_h100(1000).without_abilities())
    assert dgx_h100(1000).num_links == 48_000
