"""Inputs of TACCL, TE-CCL, ASTRA-sim and msccl-tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import read_topology
from collopt.errors import ColloptError, FileFormatError, TopologyError
from collopt.topologies import Topology, compose, read_box, torus
from collopt.topologies.importing.documents import Document, Imported
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.importing.planner_inputs import read_msccl
from collopt.topologies.importing.read import find_format, import_network
from sample_sizes import examples
from vendor_tables import refusal as refusal_of

PROFILE: dict[str, Any] = {
    "name": "lab_1MB",
    "gpus_per_node": 4,
    "nics_per_node": 2,
    "alpha": 0.5,
    "node_betas_list": [20],
    "node_invbws_list": [20],
    "remote_invbw": 82,
    "remote_alpha": 2,
    "remote_beta": 80,
}
TECCL: dict[str, Any] = {"name": "NDv2", "chassis": 2, "chunk_size": 0.1, "alpha": [7e-7, 1.3e-6], "side_length": 3}
ASTRA = (
    "topology: [ Switch, Ring ]  # kinds\nnpus_count: [ 4, 3 ]\nbandwidth: [ 400, 50.5 ]\nlatency: [ 500, 1000.0 ]\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test writes its file; the name says nothing."""
    return tmp_path / "file"


def profile(file: Path, **changes: Any) -> Path:
    """Write a profile with other fields; None removes one."""
    fields = {name: value for name, value in (PROFILE | changes).items() if value is not None}
    file.write_text(json.dumps(fields), encoding="utf-8")
    return file


def teccl(file: Path, **changes: Any) -> Path:
    """Write an input of TE-CCL with other fields."""
    file.write_text(json.dumps({"TopologyParams": TECCL | changes, "GurobiParams": {}}), encoding="utf-8")
    return file


def astra(file: Path, text: str = ASTRA) -> Path:
    """Write a network of ASTRA-sim."""
    file.write_text(text, encoding="utf-8")
    return file


def refusal(file: Path, **options: Any) -> str:
    """Return why a file is refused, or an empty text if it is read."""
    try:
        read_topology(file, **options)
    except ColloptError as error:
        return str(error)
    return ""


def test_a_profile_with_one_beta_is_a_switch(file: Path) -> None:
    """1 MB in 20 µs are 50 GB/s; half the latency is on either side of the switch."""
    network = read_topology(profile(file), boxes=2, fabric="full")
    port = network.link("box0/gpu3", "box0/nvswitch")
    assert (port.bandwidth, port.latency) == (50, Fraction(1, 4))
    assert network.link("box1/nic1", "fabric").bandwidth == Fraction(25, 2)
    assert {link.tail for link in network.links if link.head == "box0/nic1"} == {"box0/gpu2", "box0/gpu3", "fabric"}


def test_two_betas_are_the_mesh_of_an_ndv2(file: Path) -> None:
    """Every GPU has two fast links and two slow ones."""
    network = read_topology(profile(file, gpus_per_node=8, node_betas_list=[23, 46], nics_per_node=None))
    fast, slow = Fraction(1000, 23), Fraction(1000, 46)
    assert all(network.egress(gpu) == 2 * fast + 2 * slow for gpu in network.compute_nodes)
    assert network.link("box0/gpu0", "box0/gpu1").bandwidth == fast
    assert network.link("box0/gpu0", "box0/gpu2").bandwidth == slow


def test_matrices_say_which_pairs_are_linked(file: Path) -> None:
    """A ring of four, one side of it twice as slow."""
    links = [[int(abs(a - b) in (1, 3)) for b in range(4)] for a in range(4)]
    betas = [[(40 if {a, b} == {0, 3} else 20) * links[a][b] for b in range(4)] for a in range(4)]
    changes = {"links": links, "betas": betas, "invbws": betas, "node_betas_list": None, "node_invbws_list": None}
    network = read_topology(profile(file, **changes))
    assert network.link("box0/gpu3", "box0/gpu0").bandwidth == 25
    assert network.link("box0/gpu1", "box0/gpu2").bandwidth == 50
    links[0][1] = 0
    with pytest.raises(FileFormatError, match="GPUs 0 and 1 are joined by 1 links with beta 20 one way and 0"):
        read_topology(profile(file, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "lab"}, "the name 'lab' does not end in it; write it there, such as 'lab_1MB'"),
        ({"name": None}, "field name is missing"),
        ({"gpus_per_node": -4}, "field gpus_per_node is -4"),
        ({"alpha": "soon"}, "field alpha.* is 'soon'; expected a number from 0"),
        ({"node_betas_list": [1, 2, 3]}, "node_betas_list has 3 entries for 4 GPUs"),
        ({"nics_per_node": 9}, "9 NICs need remote_alpha, and at most one NIC for each of 4 GPUs"),
        ({"remote_beta": None}, "a beta is None"),
        ({"links": [[0]], "betas": [[0]]}, "field links is .*; expected 4 lists of 4 numbers"),
    ],
)
def test_what_is_wrong_with_a_profile_is_named(file: Path, changes: dict[str, Any], message: str) -> None:
    """The message names the field and its value."""
    with pytest.raises(FileFormatError, match=message):
        read_box(profile(file, **changes))


@pytest.mark.parametrize(
    ("name", "chassis", "ranks", "switches", "bandwidth"),
    [
        ("NDv2", 1, 8, 0, 150),
        ("NDv2", 2, 16, 0, Fraction(325, 2)),
        ("NDv2", 3, 24, 1, Fraction(325, 2)),
        ("DGX1", 1, 8, 0, 150),
        ("DGX2", 2, 32, 2, 125),
        ("AMD", 1, 16, 0, 350),
        ("AMD", 2, 32, 17, 375),
        ("Mesh", 1, 9, 0, 200),
    ],
)
def test_networks_of_te_ccl_are_known_by_name(
    file: Path, name: str, chassis: int, ranks: int, switches: int, bandwidth: int
) -> None:
    """How much the first GPU gives out follows from their tables."""
    network = read_topology(teccl(file, name=name, chassis=chassis))
    assert (network.num_ranks, len(network.switch_nodes)) == (ranks, switches)
    assert network.egress(network.compute_nodes[0]) == bandwidth


def test_te_ccl_has_defaults(file: Path) -> None:
    """One chassis, a side of four and no latency, as in its program."""
    for name, ranks in (("AMD", 16), ("Mesh", 16)):
        file.write_text(json.dumps({"TopologyParams": {"name": name}}), encoding="utf-8")
        network = read_topology(file)
        assert (network.num_ranks, {link.latency for link in network.links}) == (ranks, {0})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Torus"}, "it names the network 'Torus', whose links are in TE-CCL's program and not in the file"),
        ({"chassis": 0}, "field TopologyParams.chassis is 0; it should be greater than"),
        ({"name": "Mesh", "side_length": 10**6}, "field TopologyParams.side_length is 1000000; it should be less than"),
        ({"name": "DGX1", "alpha": []}, r"field TopologyParams.alpha is \[\]"),
        ({"name": "DGX1", "alpha": [-1]}, r"field TopologyParams.alpha\[0\]: is .*-1.*; expected a number from 0"),
    ],
)
def test_what_is_wrong_with_an_input_of_te_ccl_is_named(file: Path, changes: dict[str, Any], message: str) -> None:
    """The message names the field and its value."""
    with pytest.raises(FileFormatError, match=message):
        read_topology(teccl(file, **changes))


def test_dimensions_of_astra_sim_multiply(file: Path) -> None:
    """The first varies fastest; bandwidths are GiB/s, latencies ns."""
    made = import_network(astra(file), {})
    network = made.topology
    assert (network.num_ranks, len(network.switch_nodes)) == (12, 3)
    inner, outer = network.link("npu5", "dim0/switch1"), network.link("npu1", "npu9")
    assert (inner.bandwidth, inner.latency) == (400 * Fraction(2**30, 10**9), Fraction(1, 2))
    assert (outer.bandwidth, outer.latency) == (Fraction(101, 2) * Fraction(2**30, 10**9), 1)
    assert "GiB/s" in made.notes[0]


def test_rings_of_astra_sim_are_a_torus(file: Path) -> None:
    """Of the catalogue, up to the numbers of the nodes."""
    text = "topology: [Ring, Ring]\nnpus_count: [3, 4]\nbandwidth: [8, 8]\nlatency: [0, 0]\n"
    network = read_topology(astra(file, text))
    assert nx.is_isomorphic(network.to_networkx(), torus(3, 4).to_networkx())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Ring", "Torus", "topology has 'Torus'; expected Ring, Switch or FullyConnected"),
        ("[ 4, 3 ]", "[ 4, 1 ]", "npus_count has 1; expected a whole number from 2"),
        ("[ 400, 50.5 ]", "[ 400, .nan ]", "bandwidth has nan; expected a number"),
        ("[ 500, 1000.0 ]", "soon", "latency is 'soon'; expected a list"),
        ("[ 500, 1000.0 ]", "&a [*a, 1]", r"it has the alias \*a; write the value out"),
        ("[ 500, 1000.0 ]", "[" * 30000, "line 4: its lists are nested too deeply; expected four lists"),
        ("[ 400, 50.5 ]", "[ 400, 1e999999999 ]", "it has the number '1e999999999'; expected at most 30 digits"),
    ],
)
def test_what_is_wrong_with_a_network_of_astra_sim_is_named(file: Path, old: str, new: str, message: str) -> None:
    """And no alias makes a small file a huge one."""
    with pytest.raises(FileFormatError, match=message):
        read_topology(astra(file, ASTRA.replace(old, new)))


@pytest.mark.parametrize("number", ["4e2", "40E+1", "4.e2", "4000e-1", "4.0e+2"])
def test_numbers_of_astra_sim_may_have_an_exponent(file: Path, number: str) -> None:
    """Most of these are text to YAML 1.1, which wants a point and a sign."""
    written = ASTRA.replace("400", number).replace("[ 500,", "[ 5e2,")
    assert read_topology(astra(file, written)) == read_topology(astra(file))


@pytest.mark.parametrize(
    "text", ["1e-999999999", "1e999999999", f"1e{'9' * 5000}", f"0.{'1' * 31}", "1e401", "1e-401", f"-{'1' * 40}.5"]
)
def test_numbers_that_would_take_for_ever_to_write_out_are_refused(file: Path, text: str) -> None:
    """In JSON of any planner; the exponent is enough to know."""
    file.write_text(json.dumps({"TopologyParams": TECCL | {"alpha": ["here"]}}).replace('"here"', text))
    message = refusal(file)
    assert "it has the number" in message
    assert "expected at most 30 digits and a power of ten from -400 to 400" in message
    assert len(message) < 400
    file.write_text(json.dumps({"TopologyParams": TECCL | {"alpha": ["here"]}}).replace('"here"', "1e-300"))
    assert read_topology(file).num_ranks == 16


@pytest.mark.parametrize("options", [{"gpu": "h100"}, {"figures": "line"}, {"nic_bandwidth": 5}, {"boxes": 2}])
@pytest.mark.parametrize("write", [astra, teccl])
def test_options_that_a_reader_does_not_use_are_refused(
    file: Path, write: Callable[[Path], Path], options: dict[str, Any]
) -> None:
    """Options without effect are refused by name."""
    told = f"{next(iter(options))} does not go with {file}, which describes its network completely"
    assert told in refusal(write(file), **options)


def test_a_profile_takes_the_bandwidth_of_cards_only(file: Path) -> None:
    """Its links are measured; also where it is read as a box."""
    assert "gpu does not go with a file of the format TACCL topology, which takes nic_bandwidth only" in refusal(
        profile(file), gpu="h100"
    )
    with pytest.raises(FileFormatError, match="pcie_bandwidth does not go with"):
        read_box(profile(file), pcie_bandwidth=5)
    expected = read_topology(profile(file), boxes=2, fabric="full", nic_bandwidth=50)
    assert compose([read_box(file)] * 2, nic_bandwidth=50, name=expected.name) == expected


@pytest.mark.parametrize(
    "options", [{"fabric": "rail"}, {"fabric": "rail", "boxes": 1}, {"nics": 2}, {"boxes_per_leaf": 2}]
)
def test_options_for_several_boxes_do_not_go_with_one(file: Path, options: dict[str, Any]) -> None:
    """Whoever gives them has forgotten to say how many."""
    assert "does not go with one box, which has no network to others; leave it out, or give boxes=2" in refusal(
        profile(file), **options
    )


def test_several_boxes_need_a_fabric(file: Path) -> None:
    """No file of a box says what is between boxes."""
    with pytest.raises(TopologyError, match="nothing describes the network between boxes; give fabric, one of full"):
        read_topology(profile(file), boxes=2)
    with pytest.raises(TopologyError, match="there is no option 'fabrics' for a file of a network; expected one of"):
        read_topology(profile(file), fabrics="full")  # type: ignore[call-arg]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(name=st.sampled_from(sorted(PROFILE)), value=values)
@settings(max_examples=examples(150))
def test_no_profile_ends_in_another_error(name: str, value: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any value of a field gives a network or one line."""
    file = profile(tmp_path_factory.getbasetemp() / "profile.json", **{name: value})
    assert "\n" not in refusal(file, boxes=2, fabric="rail")


def msccl_text(links: object, switches: object = (), **changes: object) -> str:
    """Write what msccl-tools saves."""
    data = {"msccl_type": "topology", "name": "Ring(n=3)", "switches": switches, "links": links}
    return json.dumps(data | changes)


def hub(nodes: int, units: int = 1) -> list[list[object]]:
    """The bounds of msccl-tools' hub and spokes."""
    bounds: list[list[object]] = []
    for node in range(nodes):
        others = [other for other in range(nodes) if other != node]
        bounds += [[[node], others, units, f"node_{node}_out"], [others, [node], units, f"node_{node}_in"]]
    return bounds


def mesh(nodes: int, units: int = 1) -> list[list[int]]:
    """All pairs."""
    return [[units * (a != b) for b in range(nodes)] for a in range(nodes)]


def read_units(text: str, **options: str) -> Imported:
    """Read the text with options as people write them."""
    document = Document("msccl.json", text)
    format_ = find_format(document)
    assert format_ is not None
    assert format_.reader == "msccl"
    return read_msccl(document, BoxOptions.of(**options))  # type: ignore[arg-type]


def test_rows_are_receivers() -> None:
    """links[2][0] is the link from 0 to 2."""
    made = read_units(msccl_text([[0, 1, 1], [0, 0, 1], [3, 1, 0]]))
    assert made.topology.link("gpu0", "gpu2").bandwidth == 3
    assert ("gpu0", "gpu1") not in {link[:2] for link in made.topology.links}
    assert (made.topology.name, made.topology.num_ranks) == ("Ring(n=3)", 3)
    assert made.notes == ("a unit of bandwidth is modeled as 1 GB/s, and latencies as 0",)


def test_a_unit_is_a_link_of_the_gpu() -> None:
    """A unit has the line rate, or NCCL's figure, of one link."""
    assert read_units(msccl_text(mesh(2, 2)), gpu="v100").topology.egress("gpu0") == 50
    assert read_units(msccl_text(mesh(2, 2)), gpu="v100").topology.links[0].latency == Fraction(7, 10)
    assert read_units(msccl_text(mesh(2, 2)), gpu="v100", figures="nccl").topology.egress("gpu0") == 40
    with pytest.raises(FileFormatError, match="a10 has no links to other GPUs"):
        read_units(msccl_text(mesh(2)), gpu="a10")


def test_bounds_of_all_nodes_are_a_hub() -> None:
    """Each node has one port, however many peers."""
    made = read_units(msccl_text(mesh(4), hub(4)))
    ways = [(f"gpu{node}", "hub", 1) for node in range(4)]
    names = [f"gpu{node}" for node in range(4)]
    ours = Topology.from_links(ways, compute=names, switches=["hub"], bidirectional=True)
    assert made.topology.digest == ours.digest
    hop = read_units(msccl_text(mesh(4), hub(4)), gpu="v100").topology.links
    assert {link.latency for link in hop} == {Fraction(7, 20)}


def test_the_smaller_of_two_bounds_counts() -> None:
    """Two bounds on one port hold both."""
    made = read_units(msccl_text(mesh(3, 9), [*hub(3, 2), *hub(3, 5), [[0], [1, 2], 1, "slow"]]))
    assert (made.topology.egress("gpu0"), made.topology.ingress("gpu0")) == (Fraction(1), Fraction(2))


def test_the_topology_inside_an_algorithm_is_read() -> None:
    """A saved algorithm gives the topology that it carries."""
    inside = json.loads(msccl_text(mesh(2)))
    text = json.dumps({"msccl_type": "algorithm", "name": "x", "topology": inside, "steps": []})
    assert read_units(text).topology == read_units(msccl_text(mesh(2))).topology


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (msccl_text(mesh(2), msccl_type="instance"), "field msccl_type is 'instance'"),
        (msccl_text([]), "field links is []"),
        (msccl_text([[0, 1], [1]]), "links[1] is [1]; expected 2 numbers, one for each sender"),
        (msccl_text([[0, -1], [1, 0]]), "field links[0][1] is -1"),
        (msccl_text([[1, 1], [1, 0]]), "links[0] is [1, 1]; expected 2 numbers, one for each sender, 0 for itself"),
        (msccl_text(mesh(3), [[[0], [1], 0, "s"]]), "field switches[0][2] is 0"),
        (
            msccl_text(mesh(3), [[[0, 1], [1, 2], 1, "s"]]),
            "switch 's' bounds the total from 2 nodes to 2; expected",
        ),
        (msccl_text(mesh(3), hub(3)[1:]), "links[1][0] is 1, but other pairs are bounded by switches; expected a hub"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_what_is_damaged_or_has_no_counterpart_is_refused(text: str, message: str) -> None:
    """The message names the field and its value."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read_units(text)


@settings(max_examples=examples(100))
@given(st.recursive(st.none() | st.booleans() | st.integers(-2, 4) | st.floats() | st.text(max_size=3), st.lists),
       st.recursive(st.integers(-1, 4), st.lists), st.text(max_size=5))  # fmt: skip
def test_any_content_gives_one_clear_error_or_a_network(links: object, switches: object, name: str) -> None:
    """No other exception escapes."""
    document = Document("msccl.json", msccl_text(links, switches, name=name))
    assert "\n" not in refusal_of(lambda: read_msccl(document, BoxOptions()))
