"""The door of public functions of networks: wrong arguments get one line that names argument, value and expectation."""

from __future__ import annotations

import itertools
from typing import Any

import networkx as nx
import numpy as np
import pytest

import collopt
from collopt import topologies
from collopt.errors import TopologyError, UnsupportedError
from collopt.topologies import DirectGraph, Topology, circulant, complete, ring, write_topology


class Rude:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        """Fail."""
        raise RuntimeError("no")


K3 = complete(3).direct_graph()
PATH = DirectGraph.from_arcs(3, [(0, 1), (1, 0), (1, 2), (2, 1)], "path")
LINKS = [("a", "b", 1), ("b", "a", 1)]
NAMES = {**vars(topologies), "K3": K3, "PATH": PATH, "RING": ring(3), "LINKS": LINKS, "cycle": itertools.cycle}
STAR = Topology.from_links(
    [(rank, "hub", 10) for rank in "abc"], compute="abc", switches=["hub"], bidirectional=True, name="star"
)
NAMES |= {"STAR": STAR, "array": np.array, "read_topology": collopt.read_topology, "uint64": np.uint64}

BUILDERS = [
    # Call, and how its message begins or what it names
    ("ring(1)", "n is 1; expected a whole number from 2"),
    ("ring(2**16 + 1)", "n is 65537; expected a whole number from 2 to 65536"),
    ("ring(4, bandwidth=0)", "bandwidth of ring-4 is 0"),
    ("ring(4, latency=-1)", "latency of ring-4 is -1"),
    ("torus()", "the shape of the torus is empty"),
    ("torus(4, 1)", "dimension 1 of the torus is 1"),
    ("torus(1000, 1000)", "torus 1000x1000 would have 4000000 links"),
    ("hypercube(16)", "dimension is 16; expected a whole number from 1 to 15"),
    ("complete(1025)", "n is 1025; expected a whole number from 2 to 1024"),
    ("twisted_torus()", "the shape of the twisted torus is []"),
    ("twisted_torus(4, 4)", "the shape of the twisted torus is [4, 4]; expected sizes k and 2 k"),
    ("twisted_torus(2, 2, 4, twist=2)", "twist goes with two dimensions"),
    ("twisted_torus(3, 5, twist=5)", "twist is 5; expected a whole number from 0 to 4"),
    ("twisted_torus(100, 200, 200)", "number of nodes of TwistedTorus(100, 200, 200) is 4000000"),
    ("twisted_hypercube(2)", "dimension is 2; expected a whole number from 3 to 15"),
    ("complete_bipartite(0)", "degree is 0; expected a whole number from 1 to 724"),
    ("hamming(2, 1)", "size is 1; expected a whole number from 2"),
    ("hamming(16, 65536)", "the number of nodes of H(16, 65536) is"),
    ("diamond(bandwidth='x')", "bandwidth of Diamond is 'x'"),
    ("double_binary_tree(1)", "n is 1; expected a whole number from 2"),
    ("distance_regular(7)", "n is 7, for which there is no distance-regular graph here; expected one of 6, 9, 10, 14"),
    ("kautz(0, 1)", "degree is 0; expected a whole number from 1"),
    ("kautz(2, -1)", "length is -1; expected a whole number from 0"),
    ("kautz(4, 9)", "the number of nodes of Kautz(4, 9) is 1310720; expected a whole number from 2 to 65536"),
    ("generalized_kautz(1, 5)", "degree is 1; expected a whole number from 2"),
    ("generalized_kautz(4, 4)", "n is 4; expected a whole number from 5"),
    ("de_bruijn(1, 3)", "degree is 1; expected a whole number from 2"),
    ("de_bruijn(4, 9)", "the number of nodes of DBJ(4, 9) is 262144"),
    ("modified_de_bruijn(3, 3)", "of (degree, length) (3, 3); expected one of (2, 3), (2, 4)"),
    ("circulant(2, [1])", "n is 2; expected a whole number from 3"),
    ("circulant(9, [])", "there are no offsets"),
    ("circulant(10, array(3))", "the offsets are array(3); expected a list"),
    ("circulant(9, [0])", "an offset of the circulant graph of 9 nodes is 0; expected a whole number from 1 to 4"),
    ("circulant(8, [1, 4])", "offset 4 is half of n = 8"),
    ("circulant(8, [1, 1])", "offset 1 is given twice"),
    ("circulant(15, [3, 6])", "the offsets [3, 6] and n = 15 have the common divisor 3"),
    ("circulant_digraph(1, [1])", "n is 1; expected a whole number from 2"),
    ("circulant_digraph(9, [9])", "an offset of the circulant digraph of 9 nodes is 9"),
    ("low_diameter_circulant(20, 5)", "degree is 5; expected an even number"),
    ("low_diameter_circulant(6, 6)", "n is 6; expected at least 7 nodes"),
    ("low_diameter_offsets(4, 4)", "n is 4; expected at least 5 nodes"),
    ("low_diameter_offsets(20, 6, tries=0)", "tries is 0; expected a whole number from 1"),
    ("directed_circulant(10**6)", "degree is 1000000; expected a whole number from 1 to 1022"),
    ("unidirectional_ring(1, 1)", "n is 1; expected a whole number from 2"),
    ("bidirectional_ring(3, 5)", "degree is 3; expected an even number"),
    ("shifted_ring(2)", "n is 2"),
    ("shifted_ring(9, stride=3)", "stride is 3; expected no divisor in common with n = 9"),
    ("metacirculant_digraph(1, 2, 1, [1])", "m of the group is 1; expected a whole number from 2"),
    ("metacirculant_digraph(5, 3, 2, [1])", "r is 2, and its power 3 is 3 modulo 5; expected 1"),
    ("metacirculant_digraph(5, 4, 2, [20])", "an element is 20; expected a whole number from 1 to 19"),
    ("metacirculant_digraph(5, 4, 2, [1, 1])", "the elements are [1, 1]; expected one or more, all different"),
    ("metacirculant_digraph(5, 4, 2, [4, 8])", "the elements [4, 8] generate 5 of 20 of MetaCirc(5, 4, 2)"),
    ("metacirculant_digraph(2**12, 2**12, 1, [1])", "number of nodes of MetaCirc(4096, 4096, 1) is 16777216"),
    ("leaf_spine(1, 1, 2)", "leaves is 1; expected a whole number from 2"),
    ("leaf_spine(2, 1, 2, oversubscription=0)", "oversubscription is 0"),
    ("leaf_spine(2, 1, 2, latency='x')", "latency of leaf-spine-2x2 is 'x'"),
    ("leaf_spine(2**16, 2**16, 1)", "links; expected at most"),
    ("rail(2, 1)", "gpus_per_box is 1"),
    ("rail(2, nic_bandwidth='fast')", "bandwidth of every NIC is 'fast'"),
    ("fat_tree(3)", "k is 3; expected an even number"),
    ("fat_tree(1000)", "fat-tree-1000 would have 1500000000 links"),
    ("dragonfly(0, 1, 1)", "routers_per_group is 0"),
    ("dragonfly(2, 1, 1, groups=4)", "groups is 4; expected a whole number from 2 to 3"),
    ("dragonfly(2**16, 2**16, 2**16)", "links; expected at most"),
    ("dgx_h100(loopback=1)", "loopback is 1; expected True or False"),
    *((f"{box}({boxes!r})", f"boxes is {boxes!r}; expected a whole number from 1 to 131072")
      for box, boxes in (("dgx_a100", 0), ("mi250", -1), ("trn2", 131073), ("dgx_h100", True), ("gaudi3", "2"),
                         ("mi300x", 2.0), ("helios", None))),
    ("tpu_v4(4, 4)", "the shape of tpu-v4 is [4, 4]; expected 3 sizes"),
    ("tpu_v5e(4, 32)", "dimension 1 of tpu-v5e is 32; expected a whole number from 1 to 16"),
    ("tpu_v4(16, 16, 32)", "tpu-v4-16x16x32 has 8192 chips; expected 2 to 4096"),
    ("tpu_v4(4, 4, 4, twisted=True)", "tpu-v4-4x4x4 cannot be twisted"),
    ("tpu_v4(4, 4, 8, twisted='yes')", "twisted is 'yes'; expected True or False"),
    ("build(10**5000)", "called an integer of more than 4300 digits"),
]  # fmt: skip

GRAPHS = [
    ("line_graph(K3, 20)", "L^20(K(3)) would have 6291456 links"),
    ("degree_expansion(K3, 1000)", "K(3)*1000 would have 6000000 links"),
    ("cartesian_power(K3, 12)", "K(3)^□12 would have 12754584 links"),
    ("cartesian_product(*[K3] * 60)", "links; expected at most 1048576"),
    ("parallel(K3, 65536 * 16)", "times is 1048576"),
    ("moore_steps(0, 2)", "nodes is 0"),
    ("bandwidth_optimum(0)", "nodes is 0"),
    ("DirectGraph.from_arcs(-1, [(0, 1)], 'x')", "num_nodes is -1"),
    (
        "DirectGraph.from_arcs(2, [(0, 1), (1, 2)], 'pair')",
        "pair has the arc (1, 2); expected node numbers from 0 to 1",
    ),
    ("DirectGraph.from_arcs(2, [(0, 1), (1,)], 'x')", "the arcs are ((0, 1), (1,)); expected pairs (tail, head)"),
    ("DirectGraph.from_arcs(2, None, 'x')", "the arcs are None; expected a list"),
    ("DirectGraph.from_arcs(2, array([[0, 2**64 - 1]], dtype=uint64), 'x')", "the arcs are"),
    ("DirectGraph.from_arcs(2, cycle([(0, 1)]), 'x')", "the arcs are more than 1048576; expected a list"),
    ("DirectGraph.from_arcs(3, [(0, 1)], None)", "the graph's name is None; expected printable text"),
    ("Topology.from_graph(None)", "the graph is None; expected a DirectGraph"),
    ("Topology.from_graph(K3, names=list('abcd'))", "the names are ['a', 'b', 'c', 'd']; expected one for each"),
]

CHANGES = [
    *((f"STAR.restrict({ranks})", f"rank {named} is not in star; expected 0..2")
      for ranks, named in (([0, 4], 4), ([0, -1], -1), ([0, True], True), ([0, 1.0], 1.0), (["a", "z"], "'z'"),
                           (["a", "hub"], "'hub'"))),
    ("STAR.restrict([0, 0])", "compute node 'a' is listed twice"),
    ("STAR.restrict([0])", "at least 2 compute nodes; the topology has 1"),
    ("STAR.restrict([0, 1, 2], relay=True)", "no compute node of star is left to relay"),
    ("STAR.without_node('z')", "node 'z' is not in star"),
    ("STAR.without_link('a', 'b')", "there is no link ('a', 'b') in star"),
    *((f"STAR.{name}('z')", "node 'z' is not in star") for name in ("egress", "ingress", "out_links", "in_links")),
    *((f"STAR.derate('a', 'hub', {factor})", "derating factor is") for factor in ("0", "-1", "'none'", "float('nan')")),
    ("STAR.derate('a', 'b', 1)", "there is no link ('a', 'b')"),
    ("STAR.scaled(0)", "scale factor is 0"),
    ("STAR.with_bandwidths({('b', 'a'): 1})", "there is no link ('b', 'a')"),
    ("STAR.with_bandwidths({('a', 'hub'): -1})", "at least 0"),
]  # fmt: skip

UNSUPPORTED = [
    ("undirected_moore_steps(3, 1)", "bidirectional links of degree 1 cannot connect 3 nodes"),
    ("cartesian_product()", "the list of factors is empty; expected at least one"),
    ("line_graph(PATH)", "path is not regular: 1 arcs leave node 0, 2 leave and 2 enter node 1"),
    ("isomorphism(complete(3), complete(3))", "expected a DirectGraph"),
    ("symmetries(K3)", "expected a Topology"),
    ("symmetries(RING, [[0, 1.5, 1], [1, 0, 1], [1, 1, 0]])", "the amounts of traffic are"),
    ("symmetries(RING, [[0, 1], [1, 0]])", "the traffic has shape (2, 2); expected a row and a column"),
    ("symmetries(RING, 'much')", "the amounts of traffic are 'much'"),
    ("base_schedule_rows('diamond')", "there is no stored schedule of 'diamond'; expected one of Diamond, DBJMod"),
    ("base_schedule_rows('DBJMod(2, 3)^T')", "there is no stored schedule of 'DBJMod(2, 3)^T'"),
    ("base_schedule_rows(None)", "there is no stored schedule of None"),
    ("guessed_costs('fast', RING)", "there are no costs 'fast'; expected one of links, generic, fused"),
]


@pytest.mark.parametrize(("call", "named", "error"), [
    *((*row, TopologyError) for row in BUILDERS + GRAPHS + CHANGES), *((*row, UnsupportedError) for row in UNSUPPORTED)
])  # fmt: skip
def test_wrong_arguments_are_refused_by_name(call: str, named: str, error: type[Exception]) -> None:
    """Every public builder says in one line which argument it cannot use."""
    with pytest.raises(error) as caught:
        eval(call, dict(NAMES))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_endless_lists_are_refused() -> None:
    """Lists without end, and lists that hold themselves, get an error of ours."""
    with pytest.raises(TopologyError, match=r"^the offsets are more than \d+; expected a list"):
        circulant(10, itertools.repeat(1))  # type: ignore[arg-type]
    rows: list[Any] = []
    rows.append(rows)
    with pytest.raises(UnsupportedError, match="expected a row and a column of whole numbers"):
        topologies.symmetries(ring(3), rows)


@pytest.mark.parametrize("call", [
    "reverse_symmetry({})", "automorphisms({})", "bidirectional({})", "cartesian_product({})", "line_graph({})",
    "cartesian_power({}, 2)", "degree_expansion({}, 2)", "parallel({}, 2)", "isomorphism({}, K3)",
    "isomorphism(K3, {})",
])  # fmt: skip
def test_functions_of_graphs_refuse_other_values(call: str) -> None:
    """Every function of graphs names the graph, whatever is in its place."""
    for value in (None, 3, "K(3)", [], np.array([1, 2]), complete(3), Rude()):
        with pytest.raises(UnsupportedError, match=r"^the graph is .*; expected a DirectGraph"):
            eval(call.format("value"), {**NAMES, "value": value})


@pytest.mark.parametrize("call", [
    "RING.link({}, 'gpu1')", "RING.link('gpu0', {})", "RING.out_links({})", "RING.in_links({})", "RING.egress({})",
    "RING.ingress({})", "RING.restrict([0, {}])", "RING.without_node({})", "RING.without_link({}, 'gpu1')",
    "RING.without_link('gpu0', 'gpu1', bidirectional={})", "RING.derate('gpu0', {}, '0.5')",
    "RING.derate('gpu0', 'gpu1', '0.5', bidirectional={})", "Topology.from_links({}, compute='a')",
    "Topology.from_links([{}], compute='ab')", "Topology.from_links(LINKS, compute={})",
    "Topology.from_links(LINKS, compute=['a', 'b', {}])", "Topology.from_links(LINKS, compute='ab', bidirectional={})",
    "Topology.from_links(LINKS, compute='ab', switches=[{}])",
    "Topology.from_links(LINKS, compute='ab', multicast=[{}])",
    "Topology.from_links(LINKS, compute='ab', name={})", "Topology({}, (), (Link('a', 'b', 1),))",
    "Topology(('a', 'b'), (), ({},))", "build({})", "build('ring', n={})", "build('ring', n=4, bidirectional={})",
    "link_classes({})",
])  # fmt: skip
def test_arguments_of_other_types_are_refused(call: str) -> None:
    """No error of Python's own escapes from a wrong type."""
    for value in (None, 3.5, b"x", [], {}, [[1]], object(), np.array([1, 2])):
        with pytest.raises(TopologyError):
            eval(call.format("value"), {**NAMES, "value": value})


@pytest.mark.parametrize("value", [None, 3.5, True, b"x"])
def test_lists_of_nodes_are_lists(value: Any) -> None:
    """Text and numbers are no lists of nodes."""
    for option in ("switches", "multicast", "aggregation"):
        with pytest.raises(TopologyError, match="expected a list"):
            Topology.from_links(LINKS, compute="ab", **{option: value})
    with pytest.raises(TopologyError, match=r"ranks are .*; expected a list"):
        ring(3).restrict(value)


@pytest.mark.parametrize("option", ["bandwidth", "latency", "kind"])
def test_attributes_of_graphs_have_names(option: str) -> None:
    """Names of attributes are text."""
    graph = nx.Graph([("a", "b", {"bandwidth": 1})])
    for value in (None, 3, ["bandwidth"]):
        with pytest.raises(TopologyError, match=f"{option} is .*; expected the name of an attribute"):
            Topology.from_networkx(graph, **{option: value})  # type: ignore[arg-type]


def test_writing_anything_but_a_topology_is_refused(tmp_path: Any) -> None:
    """No file is made for other values."""
    with pytest.raises(TopologyError, match="the topology is"):
        write_topology([], tmp_path / "file.json")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
