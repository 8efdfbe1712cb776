"""The physical topology of ns-3 simulations, and files that are taken for descriptions of networks."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import plan, read_topology
from collopt.errors import ColloptError, FileFormatError
from collopt.topologies import Topology, read_box
from collopt.topologies.importing.documents import Document
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.importing.read import PREFIX_CHARACTERS, find_format, unsupported_format
from collopt.topologies.importing.simulators import matches_ns3, read_ns3
from sample_sizes import examples

LEAVES = """\
6 2 5
4 5
0 4 200Gbps 0.005ms 0
1 4 200Gbps 0.005ms 0
2 5 100Gb/s 500ns 0
3 5 12.5GBps 1us 0.000001
5 4 400Gbps 0.0005ms 0

First line: total node #, switch node #, link #
Second line: switch node IDs...
src0 dst0 rate delay error_rate
"""


def network(text: str) -> Topology:
    """Read a text."""
    return read_ns3(Document("topology.txt", text), BoxOptions()).topology


def refusal(text: str) -> str:
    """Why a text is refused."""
    with pytest.raises(FileFormatError) as caught:
        network(text)
    return str(caught.value)


def test_a_file_is_known_by_its_content_and_becomes_its_graph(tmp_path: Path) -> None:
    """What follows the links is not read; both directions have the rate."""
    path = tmp_path / "file"
    path.write_text(LEAVES, encoding="utf-8")
    found = read_topology(path)
    assert found.compute_nodes == ("npu0", "npu1", "npu2", "npu3")
    assert found.switch_nodes == ("switch4", "switch5")
    assert found.link("npu0", "switch4")[2:] == (Fraction(25), Fraction(5))
    assert found.link("switch5", "npu2")[2:] == (Fraction(25, 2), Fraction(1, 2))
    assert found.link("switch5", "npu3")[2:] == (Fraction(25, 2), Fraction(1))
    assert found.link("switch4", "switch5")[2:] == (Fraction(50), Fraction(1, 2))
    assert len(found.links) == 10
    assert plan(found, "allgather").gap == 0
    with pytest.raises(FileFormatError, match="it describes a whole network, not a box"):
        read_box(path)


def test_what_is_left_out_is_told() -> None:
    """Packets that are lost are nothing that a schedule could plan with."""
    made = read_ns3(Document("topology.txt", LEAVES), BoxOptions())
    assert made.notes == ("error rates of 1 of its links were left out: schedules lose nothing",)
    assert read_ns3(Document("x", LEAVES.replace("0.000001", "0")), BoxOptions()).notes == ()


def test_line_ends_count_like_spaces() -> None:
    """The simulators read word by word."""
    head, _, _ = LEAVES.partition("First")
    ordered = head.replace("4 5\n0 4", "4\n5 0 4").replace("0\n1 4", "0 1\n4")
    assert network(ordered) == network(LEAVES)
    assert not matches_ns3(Document("x", head.replace("\n", " ")))


@pytest.mark.parametrize(
    ("rate", "gigabytes"),
    [
        ("8000000000", 1),
        ("8000000kb/s", 1),
        ("1000MB/s", 1),
        ("1GiB/s", Fraction(2**30, 10**9)),
        ("0.8Gbps", Fraction(1, 10)),
        ("1.9bps", Fraction(1, 8 * 10**9)),
    ],
)
def test_rates_have_the_units_of_ns3(rate: str, gigabytes: Fraction) -> None:
    """Bits per second without one; whole bits, as there."""
    assert network(f"2 0 1\n0 1 {rate} 1us 0").link("npu1", "npu0").bandwidth == gigabytes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("6 2 5", "1 2 5", ", line 1: the number of nodes is '1'; expected a whole number from 2 to 65536"),
        ("6 2 5", "6 2 6", ", line 9: an end of link 5 is 'First'; expected a whole number"),
        ("4 5\n0", "4 4\n0", ", line 2: switch 4 appears twice, first on line 2; keep one"),
        ("0 4 2", "0 7 2", ", line 3: an end of link 0 is '7'; expected a whole number from 0 to 5"),
        ("0 4 2", "4 4 2", ", line 3: a link leads from node 4 to itself"),
        ("1 4 2", "4 0 2", ", line 4: nodes 4 and 0 are linked twice, also by link 0"),
        ("100Gb/s", "100Tbps", ", line 5: a data rate is '100Tbps'; expected one such as 200Gbps"),
        ("500ns", "5min", ", line 5: a delay is '5min'; expected one such as 0.005ms"),
        ("500ns", "0.0000001ns", ", line 5: a delay is '0.0000001ns'; expected at most 1000s, in whole femtoseconds"),
        ("0.000001", "1.5", ", line 6: an error rate is '1.5'; expected a number from 0 to 1"),
    ],
)
def test_what_no_simulator_could_use_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    """The message names the line and the word."""
    assert old in LEAVES
    assert refusal(LEAVES.replace(old, new, 1)).startswith(f"topology.txt{message}")


def test_a_file_that_is_cut_is_refused() -> None:
    """A file that ends before its last link is refused wherever it is cut."""
    last = LEAVES.index("5 4 400Gbps")
    for end in range(0, last, 7):
        assert one_line(refusal(LEAVES[:end]))
    assert "it ends before an end of link 4; expected as many switches and links" in refusal(LEAVES[:last])


def one_line(message: str) -> bool:
    """Whether a message is one short printable line."""
    return message.isprintable() and len(message) < 300


WORDS = st.sampled_from([*LEAVES.split(), "\n", "-1", "1e9", "0.5", "9" * 40, "Gbps", "٣", "1Gbps", "0", "1"])


@settings(max_examples=examples(200))
@given(st.lists(WORDS, max_size=12), st.integers(0, 30), st.integers(0, 30))
def test_changed_files_are_read_or_refused(words: list[str], begin: int, end: int) -> None:
    """Words taken out and put in: never another error."""
    known = LEAVES.split(" ")
    text = " ".join([*known[:begin], *words, *known[end:]])
    matches_ns3(Document("x", text))
    message = ""
    try:
        network(text)
    except ColloptError as error:
        message = str(error)
    assert one_line(message or "read")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            '{"topology-name": "Hierarchical", "topologies-per-dim": ["Ring"], "units-count": [8]}',
            "a network of ASTRA-sim 1.0",
        ),
        ("17 8 1 8 128 H100 8\n8\n16\n0 8 2880Gbps 0.000025ms 0\n", "a topology of SimAI"),
        ("Nodes 8\nTiers 2\n", "a topology of htsim"),
        ("collective,...\n  allreduce,0,65536,tree\n", "a tuner table of NCCL"),
        ("0 1\n1 0\n", "a table of numbers without a description"),
    ],
)
def test_files_of_other_kinds_are_named(text: str, what: str) -> None:
    """The message says which kind of file it is."""
    with pytest.raises(FileFormatError, match=f"it is {what}"):
        find_format(Document("file", text))


@pytest.mark.parametrize("piece", ["\n", "1\n", "1 ", " \n", '"collective"', "allreduce,", "1 1 1 1 1\n", "Nodes 1"])
def test_repeated_text_is_looked_at_once(piece: str) -> None:
    """A pattern that tried every beginning against every end would take minutes."""
    text = (piece * PREFIX_CHARACTERS)[:PREFIX_CHARACTERS] + "?"
    assert unsupported_format(Document("file", text + "?" + text)) is None or piece.strip()[:1] == "1"
