"""Writing MSCCL XML: what the parsers want, byte by byte where it matters, and reading it back."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from runtime_forests import allgather, block, copy, exchange, forests, random_forest, recv, ring_forest, send, with_step

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import Program, lower_allgather, read_xml, run_program, to_xml_text, write_xml
from collopt.schedules import Forest

RUNTIMES = ["msccl", "msccl-executor-nccl", "rccl"]


def several_waits() -> Program:
    """Rank 1 forwards nothing but waits for three things before its last send."""
    return allgather(
        3,
        [block(recv(3, count=3), of=1), block(copy(0, 0, count=3)), block(*_three_sends(), to=1)],
        [
            block(recv(0), recv(1), recv(2), of=0),
            block(copy(0, 3, count=2)),
            block(copy(2, 5, (1, 0))),
            block(send("output", 3, (0, 1), (1, 0), (2, 0), count=3), to=0),
        ],
    )


def _three_sends() -> list[object]:
    return [send("input", chunk) for chunk in range(3)]


def test_writes_exactly_this_for_an_exchange_of_two_ranks() -> None:
    """The whole file, so that any change of it is seen."""
    step = (
        '<step s="0" type="{}" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{}" cnt="1" depid="-1" deps="-1" hasdep="0" />'
    )
    header = (
        '<algo name="by-hand" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="0" '
        'outofplace="1" minBytes="0" maxBytes="1099511627776">'
    )
    lines = [header]
    for rank in range(2):
        lines += [
            f'  <gpu id="{rank}" i_chunks="1" o_chunks="2" s_chunks="0">',
            f'    <tb id="0" send="-1" recv="{1 - rank}" chan="0">',
            "      " + step.format("r", 1 - rank),
            "    </tb>",
            '    <tb id="1" send="-1" recv="-1" chan="0">',
            "      " + step.format("cpy", rank),
            "    </tb>",
            f'    <tb id="2" send="{1 - rank}" recv="-1" chan="0">',
            "      " + step.format("s", rank),
            "    </tb>",
            "  </gpu>",
        ]
    assert to_xml_text(exchange()).splitlines() == [*lines, "</algo>"]


@pytest.mark.parametrize("runtime", RUNTIMES)
@given(forest=forests())
@settings(max_examples=20)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, runtime: str, forest: Forest) -> None:
    """Writing and reading is the identity on lowered programs."""
    path = tmp_path_factory.mktemp("xml") / "ag.xml"
    program = lower_allgather(forest, name="round trip")
    write_xml(program, path, runtime=runtime)
    again = read_xml(path)
    assert again == program
    assert again.name == "round trip"


def test_several_dependencies_become_nops_and_come_back(tmp_path: Path) -> None:
    """Two nops carry the first two dependencies, the send itself the third; only awaited steps have hasdep."""
    path = tmp_path / "ag.xml"
    program = several_waits()
    run_program(program)
    write_xml(program, path)
    steps = ET.parse(path).findall("gpu[@id='1']/tb[@id='3']/step")
    assert [(step.get("type"), step.get("depid"), step.get("deps")) for step in steps] == [
        ("nop", "0", "1"),
        ("nop", "1", "0"),
        ("s", "2", "0"),
    ]
    awaited = [step.get("hasdep") for step in ET.parse(path).findall("gpu[@id='1']/tb/step")]
    assert awaited == ["0", "1", "0", "1", "1", "0", "0", "0"]
    assert read_xml(path) == program


def test_dependencies_count_nops(tmp_path: Path) -> None:
    """A step behind nops is awaited by its place in the file, not in the program."""
    program = several_waits()
    blocks = list(program.ranks[1].thread_blocks)
    late = block(copy(2, 5, (3, 0)))
    early = replace(blocks[3], instructions=(send("output", 3, (0, 1), (1, 0), count=2), send("input", 2)))
    ranks = [list(program.ranks[0].thread_blocks), [blocks[0], blocks[1], late, early]]
    ranks[0][0] = block(recv(3, count=2), recv(5), of=1)
    changed = allgather(3, *ranks)
    path = tmp_path / "ag.xml"
    write_xml(changed, path)
    step = ET.parse(path).find("gpu[@id='1']/tb[@id='2']/step")
    assert step is not None
    assert (step.get("depid"), step.get("deps")) == ("3", "1")
    assert read_xml(path) == changed


@given(forest=forests(max_ranks=4))
@settings(max_examples=15)
def test_the_text_is_what_the_parsers_take(forest: Forest) -> None:
    """No prolog, no tab, no single quote, one space between attributes, all ten attributes on every step."""
    text = to_xml_text(lower_allgather(forest))
    assert text.startswith("<algo ")
    assert not re.search(r"[\t'&]|<\?|<!", text)
    names = ["s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"]
    for element in ET.fromstring(text).iter("step"):
        assert list(element.keys()) == names
    for line in text.splitlines():
        assert re.fullmatch(r' *(</?[a-z]+( [A-Za-z_]+="[^"]*")*( /)?>)', line), line


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_header_is_consistent_and_complete(runtime: str) -> None:
    """Chunk numbers as microsoft/msccl checks them, size window and both placement flags as the others want them."""
    program = lower_allgather(random_forest(4, 3, 0))
    root = ET.fromstring(to_xml_text(program, runtime=runtime, min_bytes=1024, max_bytes=4096, protocol="LL128"))
    assert root.attrib == {
        "name": "allgather",
        "proto": "LL128",
        "nchannels": str(program.num_channels),
        "nchunksperloop": "12",
        "ngpus": "4",
        "coll": "allgather",
        "inplace": "0",
        "outofplace": "1",
        "minBytes": "1024",
        "maxBytes": "4096",
    }
    for rank, gpu in enumerate(root):
        assert gpu.attrib == {"id": str(rank), "i_chunks": "3", "o_chunks": "12", "s_chunks": "0"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runtime": "nccl"}, "runtime is 'nccl'; expected one of msccl, msccl-executor-nccl, rccl"),
        ({"protocol": "simple"}, "protocol is 'simple'"),
        ({"min_bytes": -1}, "min_bytes is -1"),
        ({"max_bytes": 0}, "max_bytes is 0"),
        ({"max_bytes": 2**63}, "max_bytes"),
        ({"min_bytes": 10, "max_bytes": 9}, "at least min_bytes = 10"),
        ({"max_bytes": 1e9}, "max_bytes is 1000000000.0"),
    ],
)
def test_refuses_senseless_options(options: dict[str, object], message: str) -> None:
    """The message names the option, the value and what is possible."""
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        to_xml_text(exchange(), **options)


@pytest.mark.parametrize("name", ["", "a" * 64, 'say "hi"', "a<b", "tab\there", "größe", " leading"])
def test_refuses_names_that_the_parsers_would_garble(name: str) -> None:
    """No parser decodes entities, and 63 characters are kept."""
    with pytest.raises(UnsupportedError, match="program name"):
        to_xml_text(replace(exchange(), name=name))


def test_never_writes_a_wrong_program(tmp_path: Path) -> None:
    """A race is refused before the file is touched, and the old file stays."""
    path = tmp_path / "ag.xml"
    path.write_text("old")
    program = lower_allgather(ring_forest(3))
    broken = with_step(program, 0, 2, 1, lambda step: replace(step, depends=()))
    with pytest.raises(ProgramError, match="race"):
        write_xml(broken, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(("ranks", "trees"), [(16, 13), (32, 3)])
def test_plans_of_two_boxes_fit_every_runtime(tmp_path: Path, runtime: str, ranks: int, trees: int) -> None:
    """The sizes of two DGX A100 (16 ranks, k = 13) and of two MI250 boxes with few trees, on trees made at random."""
    program = lower_allgather(random_forest(ranks, trees, seed=ranks))
    write_xml(program, tmp_path / "ag.xml", runtime=runtime)
    assert read_xml(tmp_path / "ag.xml") == program
