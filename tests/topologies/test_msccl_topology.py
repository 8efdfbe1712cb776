"""Topologies of msccl-tools."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError
from collopt.topologies import Topology
from collopt.topologies.importing.documents import Document, Imported
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.importing.planner_inputs import matches_msccl, read_msccl
from sample_sizes import examples
from vendor_tables import refusal


def topology(links: object, switches: object = (), **changes: object) -> str:
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


def read(text: str, **options: str) -> Imported:
    """Read the text with options as people write them."""
    document = Document("msccl.json", text)
    assert matches_msccl(document)
    return read_msccl(document, BoxOptions.of(**options))  # type: ignore[arg-type]


def test_rows_are_receivers() -> None:
    """links[2][0] is the link from 0 to 2."""
    made = read(topology([[0, 1, 1], [0, 0, 1], [3, 1, 0]]))
    assert made.topology.link("gpu0", "gpu2").bandwidth == 3
    assert ("gpu0", "gpu1") not in {link[:2] for link in made.topology.links}
    assert (made.topology.name, made.topology.num_ranks) == ("Ring(n=3)", 3)
    assert made.notes == ("a unit of bandwidth is modeled as 1 GB/s, and latencies as 0",)


def test_a_unit_is_a_link_of_the_gpu() -> None:
    """By either figure."""
    assert read(topology(mesh(2, 2)), gpu="v100").topology.egress("gpu0") == 50
    assert read(topology(mesh(2, 2)), gpu="v100").topology.links[0].latency == Fraction(7, 10)
    assert read(topology(mesh(2, 2)), gpu="v100", figures="nccl").topology.egress("gpu0") == 40
    with pytest.raises(FileFormatError, match="a10 has no links to other GPUs"):
        read(topology(mesh(2)), gpu="a10")


def test_bounds_of_all_nodes_are_a_hub() -> None:
    """Each node has one port, however many peers."""
    made = read(topology(mesh(4), hub(4)))
    ways = [(f"gpu{node}", "hub", 1) for node in range(4)]
    names = [f"gpu{node}" for node in range(4)]
    ours = Topology.from_links(ways, compute=names, switches=["hub"], bidirectional=True)
    assert made.topology.digest == ours.digest
    hop = read(topology(mesh(4), hub(4)), gpu="v100").topology.links
    assert {link.latency for link in hop} == {Fraction(7, 20)}


def test_the_smaller_of_two_bounds_counts() -> None:
    """Both hold."""
    made = read(topology(mesh(3, 9), [*hub(3, 2), *hub(3, 5), [[0], [1, 2], 1, "slow"]]))
    assert (made.topology.egress("gpu0"), made.topology.ingress("gpu0")) == (Fraction(1), Fraction(2))


def test_a_link_needs_no_more_than_the_narrower_of_its_two_ports() -> None:
    """Each node sends 2 units and could receive 5; a link of 2 never holds it up."""
    bounds = [*hub(3, 2)[::2], *hub(3, 5)[1::2]]
    network = read(topology(mesh(3, 2), bounds)).topology
    assert (network.egress("gpu0"), network.ingress("gpu0")) == (2, 5)


def test_the_topology_inside_an_algorithm_is_read() -> None:
    """Such files carry one."""
    inside = json.loads(topology(mesh(2)))
    text = json.dumps({"msccl_type": "algorithm", "name": "x", "topology": inside, "steps": []})
    assert read(text).topology == read(topology(mesh(2))).topology


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (topology(mesh(2))[:-1], "is not valid JSON at line 1"),
        (topology(mesh(2), msccl_type="instance"), "its msccl_type is 'instance'; expected topology or algorithm"),
        (topology([]), "field links is []; expected 2 to 512 rows"),
        (topology([[0]]), "field links is [[0]]; expected 2 to 512 rows"),
        (topology({"0": 1}), "expected 2 to 512 rows"),
        (topology([[0] * 600] * 600), "expected 2 to 512 rows"),
        (topology([[0, 1], [1]]), "links[1] is [1]; expected 2 numbers, one for each sender"),
        (topology([[0, -1], [1, 0]]), "links[0][1] is -1; expected 0 to 1000000"),
        (topology([[0, 1.5], [1, 0]]), "links[0][1] is Decimal('1.5'); expected 0 to 1000000"),
        (topology([[0, True], [1, 0]]), "links[0][1] is True; expected 0 to 1000000"),
        (topology([[1, 1], [1, 0]]), "links[0][0] is 1; expected 0, as no node sends to itself"),
        (topology([[0, 10**9], [1, 0]]), "links[0][1] is 1000000000; expected 0 to 1000000"),
        (topology(mesh(3), {}), "field switches is {}; expected a list"),
        (topology(mesh(3), [[[0], [1], 0, "s"]]), "switches[0] is [[0], [1], 0, 's']; expected [senders, receivers"),
        (topology(mesh(3), [[[7], [1], 1, "s"]]), "switches[0] is [[7], [1], 1, 's']; expected [senders, receivers"),
        (topology(mesh(3), [[[0, 1], [1, 2], 1, "s"]]), "switch 's' bounds what 2 nodes send to 2 together; expected"),
        (topology(mesh(3), [[[0], [1], 1, "s"]]), "switch 's' bounds what 1 nodes send to 1 together; expected one"),
        (topology(mesh(3), hub(3)[1:]), "links[1][0] is 1, but other pairs are bounded by switches; expected a hub"),
        (topology(mesh(3), hub(3, 2)), "links[0][1] is 1, but other pairs are bounded by switches; expected a hub"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_what_is_damaged_or_has_no_counterpart_is_refused(text: str, message: str) -> None:
    """With the field."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read(text)


@settings(max_examples=examples(100))
@given(st.recursive(st.none() | st.booleans() | st.integers(-2, 4) | st.floats() | st.text(max_size=3), st.lists),
       st.recursive(st.integers(-1, 4), st.lists), st.text(max_size=5))  # fmt: skip
def test_any_content_gives_one_clear_error_or_a_network(links: object, switches: object, name: str) -> None:
    """Never another exception."""
    document = Document("msccl.json", topology(links, switches, name=name))
    assert "\n" not in refusal(lambda: read_msccl(document, BoxOptions()))
