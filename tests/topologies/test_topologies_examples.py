"""Small examples of the internal functions of `collopt.topologies`."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np

from collopt.topologies import dgx1_v100
from collopt.topologies.direct_connect.arcs import (
    arcs_to,
    bidirectional_arcs,
    circulant_arcs,
    line_graph_name,
    offset_names,
    operand,
)
from collopt.topologies.direct_connect.basic_graphs import double_binary_tree_parents
from collopt.topologies.direct_connect.circulants import (
    bidirectional_offset_sets,
    digraph_offset_sets,
    sampled_offset_sets,
)
from collopt.topologies.direct_connect.distance_regular import incidence_edges
from collopt.topologies.importing.box_from_links import (
    PcieLocation,
    box_name,
    directly_linked,
    pcie_link_bandwidth,
    pcie_path_tree,
)
from collopt.topologies.importing.documents import Document, as_decimal
from collopt.topologies.importing.formats import latencies_note, unsupported_format
from collopt.topologies.importing.nccl_xml import read_nccl
from collopt.topologies.importing.options import BoxOptions, find_product, is_always_linked, product_of
from collopt.topologies.importing.planner_inputs import read_msccl
from collopt.topologies.importing.simulators import read_ns3
from collopt.topologies.importing.text_matrix import find_headers, line_below, plain_lines
from collopt.topologies.network.direct_graph import hop_distances, partial_hop_distances
from collopt.topologies.network.link_costs import link_classes, matching_classes
from collopt.topologies.network.links import node_kind, rank_number
from collopt.topologies.network.topology import Topology
from collopt.topologies.network.topology_json import topology_from_json, topology_to_json
from collopt.topologies.switched.nic_shares import max_min_shares
from collopt.topologies.switched.scale_out import SharedLink
from collopt.topologies.symmetry.automorphisms import link_images, link_orbits


def test_arcs_to() -> None:
    """Return the arcs from each node to the nodes in its row of `heads`."""
    assert arcs_to(np.array([[1, 2], [2, 0], [0, 1]])).tolist() == [[0, 1], [0, 2], [1, 2], [1, 0], [2, 0], [2, 1]]


def test_bidirectional_arcs() -> None:
    """Return both arcs of every edge."""
    assert bidirectional_arcs([(0, 1), (1, 2)]).tolist() == [[0, 1], [1, 2], [1, 0], [2, 1]]


def test_circulant_arcs() -> None:
    """Return the arcs from each node i to the nodes i + offset, modulo `num_nodes`; offsets may repeat."""
    assert circulant_arcs(3, [1, 1]).tolist() == [[0, 1], [0, 1], [1, 2], [1, 2], [2, 0], [2, 0]]


def test_double_binary_tree_parents() -> None:
    """Return the parents of nodes 0 to `count` - 1 in two trees with root 0 that share no other inner node."""
    assert double_binary_tree_parents(6) == ([-1, 2, 4, 2, 0, 4], [-1, 5, 3, 5, 3, 0])


def test_incidence_edges() -> None:
    """Return an edge between every point and every line through it; lines are numbered after the points."""
    assert incidence_edges([(0, 1), (1, 2)]) == [(0, 3), (1, 3), (1, 4), (2, 4)]


def test_digraph_offset_sets() -> None:
    """List sets of offsets of circulant digraphs."""
    assert digraph_offset_sets(4, 2, 10).tolist() == [[1, 3], [1, 2], [1, 2], [1, 3], [2, 3]]
    assert digraph_offset_sets(7, 3, 1)[0].tolist() == [1, 2, 4]


def test_bidirectional_offset_sets() -> None:
    """List sets of offsets that contain -a with each a, modulo n, so that each link has an opposite one."""
    assert bidirectional_offset_sets(8, 3, 10).tolist() == [[1, 7, 4], [1, 7, 4], [1, 7, 4], [2, 6, 4], [3, 5, 4]]


def test_sampled_offset_sets() -> None:
    """Sample sets of numbers from 1 to `largest` that contain 1, spread evenly over all such sets."""
    assert sampled_offset_sets(100, 3, range(2)).tolist() == [[1, 8, 27], [1, 2, 65]]


def test_operand() -> None:
    """Put a name in parentheses if it has an operator outside of parentheses."""
    assert (operand("K(2) □ K(3)"), operand("K(2) □ K(3)", "□"), operand("L^2(K(3))")) == (
        "(K(2) □ K(3))",
        "K(2) □ K(3)",
        "L^2(K(3))",
    )


def test_line_graph_name() -> None:
    """Name the iterated line graph of a graph."""
    assert (line_graph_name("K(4, 4)", 1), line_graph_name("L^2(K(4, 4))", 1)) == ("L(K(4, 4))", "L^3(K(4, 4))")


def test_offset_names() -> None:
    """Format the offsets of a circulant graph for its name; of many, the first three and their number."""
    assert (offset_names([1, 4, 5]), offset_names(range(1, 512))) == ("{1, 4, 5}", "{1, 2, 3, ... 511 offsets}")


def test_link_orbits() -> None:
    """The rotations of a ring of three have one orbit."""
    ring = np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([5, 5, 5])
    found = link_orbits(*ring, np.ones((3, 3), dtype=np.int64), np.array([[1, 2, 0]]))
    assert [part.tolist() for part in (found.sources, found.counts, found.classes)] == [[0], [3], [0, 0, 0]]


def test_link_images() -> None:
    """Return the image of each link under each symmetry, after checking that there is one."""
    assert (
        repr(link_images(np.array([0, 1]), np.array([1, 0]), np.array([5, 5]), np.array([[1, 0]]))) == "array([[1, 0]])"
    )


def test_unsupported_format() -> None:
    """Describe a file of a known format that is not a network, or return None for an unknown one."""
    assert (
        unsupported_format(Document("logical.json", '{"logical-dims": ["8"]}'))
        == "a logical topology of ASTRA-sim for ns-3, whose links are in another file"
    )


def test_latencies_note() -> None:
    """Return the note on assumed latencies, which are those of `scale_out`; None if there are none."""
    assert (
        latencies_note([("gpu-gpu", Fraction(7, 10)), ("nic-rail", Fraction(1, 2)), ("rail-spine", Fraction(1, 2))])
        == "latencies are assumed, after TACCL's measurements of NVLink and InfiniBand: 0.7 µs for gpu-gpu, 0.5 µs for "
        "nic-rail, rail-spine; collopt calibrate fits them to measured times"
    )


def test_read_box() -> None:
    """Read the box that a topology file of NCCL or RCCL describes."""
    pair = '<system version="1"><cpu numaid="0">{}{}</cpu></system>'.format(
        '<pci busid="0:1:0"><gpu dev="0" sm="80"><nvlink target="0:2:0" count="4" tclass="0x03"/></gpu></pci>',
        '<pci busid="0:2:0"><gpu dev="1" sm="80"><nvlink target="0:1:0" count="4" tclass="0x03"/></gpu></pci>',
    )
    box = read_nccl(Document("pair.xml", pair), BoxOptions())
    assert (box.name, box.links[0].bandwidth) == ("a100-2gpu", Fraction(100, 1))


def test_read_msccl_tools_network() -> None:
    """Read a topology of msccl-tools."""
    text = '{"msccl_type": "topology", "name": "pair", "links": [[0, 2], [2, 0]], "switches": []}'
    read = read_msccl(Document("pair.json", text), BoxOptions.of(gpu="a100"))
    assert read.topology.egress("gpu0") == 50


def test_read_ns3_network() -> None:
    """Read a topology of ns-3."""
    text = "3 1 2\n2\n0 2 200Gbps 0.005ms 0\n1 2 200Gbps 0.005ms 0\n"
    assert (
        repr(read_ns3(Document("topology.txt", text), BoxOptions()).topology.link("npu0", "switch2"))
        == "Link(tail='npu0', head='switch2', bandwidth=Fraction(25, 1), latency=Fraction(5, 1))"
    )


def test_find_product() -> None:
    """Return the GPU of this name, in upper or lower case, with or without dashes."""
    assert find_product("H100").link("line") == Fraction(25, 1)


def test_product_of() -> None:
    """Return the first GPU of a compute capability or architecture, or None if the table has none."""
    assert product_of("amd", "gfx942").name == "mi300x"


def test_is_always_linked() -> None:
    """Return whether all GPUs of this code in the table have links, so that the code determines the links."""
    assert (is_always_linked("nvidia", "90"), is_always_linked("nvidia", "86"), is_always_linked("nvidia", "89")) == (
        True,
        False,
        False,
    )


def test_as_decimal() -> None:
    """Read a number with a point or an exponent."""
    assert as_decimal("4e2") == 400


def test_boxoptions_given() -> None:
    """Return the names of options that differ from their defaults."""
    assert BoxOptions.of(gpu="h100", figures="line").changed() == ("gpu",)


def test_boxoptions_of() -> None:
    """Validate options as users give them."""
    assert BoxOptions.of(nic_bandwidth="12.5").nic_bandwidth == Fraction(25, 2)


def test_plain_lines() -> None:
    """Return the lines of a document without terminal escape sequences."""
    assert plain_lines(Document("a.txt", "\x1b[4mGPU0\x1b[0m\nGPU1")) == ["GPU0", "GPU1"]


def test_find_headers() -> None:
    """Yield the lines that end with two labels or more."""
    assert (
        repr(list(find_headers(["Hops", "$ GPU0 GPU1", "GPU0 0 1"], re.compile(r"GPU[0-9]+"))))
        == "[Header(line=2, labels=('GPU0', 'GPU1'))]"
    )


def test_line_below() -> None:
    """Return the next line with text after a line number, from 1; an empty text at the end."""
    assert line_below(["Hops", "", "GPU0 0"], 1) == "GPU0 0"


def test_directly_linked() -> None:
    """Return whether the pairs connect all GPUs."""
    assert not directly_linked(3, {(0, 1): 1})


def test_box_name() -> None:
    """Name a box after its GPUs."""
    assert box_name("nvidia", BoxOptions.of(gpu="A100"), 8) == "a100-8gpu"


def test_pcie_link_bandwidth() -> None:
    """Return GB/s of one PCIe link in each direction, and a note on its source."""
    assert pcie_link_bandwidth(Document("topo.txt", ""), BoxOptions.of(gpu="h100", figures="nccl"))[0] == Fraction(
        48, 1
    )


def test_pcie_path_tree() -> None:
    """Build the PCIe tree of devices, the first `gpus` of which are GPUs."""
    assert pcie_path_tree([PcieLocation(0), PcieLocation(0), PcieLocation(1)], 3, Fraction(32)).switches == (
        "cpu0",
        "cpu1",
    )


def test_hop_distances() -> None:
    """Return all-pairs hop distances, ``[source, node]``; `BoundError` if a node is unreachable."""
    assert hop_distances(3, np.array([0, 1, 2]), np.array([1, 2, 0]), "UniRing(1, 3)").tolist() == [
        [0, 1, 2],
        [2, 0, 1],
        [1, 2, 0],
    ]


def test_partial_hop_distances() -> None:
    """Return all-pairs hop distances, -1 where there is no path; 8 sources are searched per byte."""
    assert partial_hop_distances(3, np.array([0, 1]), np.array([1, 2])).tolist() == [[0, 1, 2], [-1, 0, 1], [-1, -1, 0]]


def test_matching_classes() -> None:
    """Look up classes by name; kinds without a bandwidth, such as ``gpu-gpu``, select all classes between them."""
    assert [each.name for each in matching_classes(link_classes(dgx1_v100()), ["gpu-gpu"])] == [
        "gpu-gpu:25",
        "gpu-gpu:50",
    ]


def test_node_kind() -> None:
    """Return the kind of a node: the end of its name, after the last slash and without its number."""
    assert (node_kind("box1/gpu3"), node_kind("7", "rank")) == ("gpu", "rank")


def test_rank_number() -> None:
    """Return the number of a rank given by number or name; None if there is no such rank."""
    assert (rank_number(["gpu0", "gpu1", "gpu2"], "gpu2"), rank_number(["gpu0", "gpu1"], 2)) == (2, None)


def test_topology_to_json() -> None:
    """Convert a topology to lists, strings and integers for `json.dumps`."""
    pair = Topology.from_links([("a", "b", "12.5"), ("b", "a", 25)], compute=["a", "b"], name="pair")
    assert topology_to_json(pair)["links"] == [["a", "b", "25/2", 0], ["b", "a", 25, 0]]


def test_topology_from_json() -> None:
    """Validate a decoded JSON document and build its topology."""
    pair = Topology.from_links([("a", "b", 25), ("b", "a", 25)], compute=["a", "b"])
    assert topology_from_json(topology_to_json(pair), "example") == pair


def test_max_min_shares() -> None:
    """Compute max-min fair bandwidths of NICs by progressive filling."""
    way = SharedLink("the link between CPUs", Fraction(22), ((0, 2), (1, 2)))
    assert [str(share.bandwidth) for share in max_min_shares([2, 2], [Fraction(50), Fraction(1)], [way])] == ["21", "1"]
