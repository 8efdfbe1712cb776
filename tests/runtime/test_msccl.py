"""Writing MSCCL XML: what the parsers want, byte by byte where it matters, and reading it back."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from runtime_forests import (
    allgather,
    block,
    copy,
    exchange,
    forests,
    random_forest,
    random_schedule,
    recv,
    ring_forest,
    schedules,
    send,
    summing,
    with_step,
    write_xml,
)

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import (
    ChunkRange,
    Instruction,
    Program,
    interpret_file,
    lower,
    read_xml,
    run_program,
    to_xml_text,
    without_receive_reduce,
)
from collopt.schedules import Forest, TreeSchedule
from sample_sizes import examples

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
@settings(max_examples=examples(20))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, runtime: str, forest: Forest) -> None:
    """Writing and reading is the identity on lowered programs."""
    path = tmp_path_factory.mktemp("xml") / "ag.xml"
    program = lower(forest, "allgather", name="round trip")
    write_xml(program, path, runtime=runtime)
    again = read_xml(path)
    assert again == program
    assert again.name == "round trip"


@pytest.mark.parametrize("runtime", RUNTIMES)
@given(case=schedules())
@settings(max_examples=examples(40))
def test_every_collective_is_read_back_and_runs(
    tmp_path_factory: pytest.TempPathFactory, runtime: str, case: tuple[TreeSchedule, str]
) -> None:
    """What is written comes back as it was, in the steps that the runtime knows, or is refused with the reason."""
    schedule, collective = case
    # Splitting the steps that add while receiving can double them, and rccl takes 64.
    program = lower(schedule, collective, max_steps=32)
    if runtime == "rccl":
        program = without_receive_reduce(program)
    path = tmp_path_factory.mktemp("xml") / "file.xml"
    if program.shards and collective in ("allgather", "reduce_scatter"):
        with pytest.raises(UnsupportedError, match="all shards are of one size"):
            write_xml(program, path, runtime=runtime)
        return
    write_xml(program, path, runtime=runtime)
    assert replace(read_xml(path), in_place=False) == program
    interpret_file(path, interleavings=2)
    kinds = {step.get("type") for step in ET.parse(path).iter("step")}
    assert kinds <= ({"s", "r", "cpy", "re", "nop"} if runtime == "rccl" else {"s", "r", "cpy", "rrc", "nop"})


@pytest.mark.parametrize(
    ("runtime", "collective", "name", "flags"),
    [
        ("msccl", "reduce_scatter", "reduce_scatter", ("0", "1")),
        ("rccl", "reduce_scatter", "reducescatter", ("0", "1")),
        ("msccl-executor-nccl", "allreduce", "allreduce", ("1", "1")),
        ("msccl", "allreduce", "allreduce", ("1", "0")),
        ("rccl", "broadcast", "broadcast", ("1", "1")),
        ("msccl", "reduce", "reduce", ("1", "0")),
    ],
)
def test_the_header_says_what_the_file_is_for(runtime: str, collective: str, name: str, flags: tuple[str, str]) -> None:
    """The runtime's spelling, and by default the calls that PyTorch makes."""
    program = without_receive_reduce(lower(random_schedule(collective, 3, 2, 0), collective))
    root = ET.fromstring(to_xml_text(program, runtime=runtime))
    assert root.get("coll") == name
    assert (root.get("inplace"), root.get("outofplace")) == flags
    apart = ET.fromstring(to_xml_text(program, runtime=runtime, placement="out-of-place"))
    assert (apart.get("inplace"), apart.get("outofplace")) == ("0", "1")


def test_scratch_that_is_allocated_at_once_has_a_sane_size() -> None:
    """microsoft/msccl allocates for maxBytes when it loads the file."""
    program = lower(random_schedule("reduce_scatter", 4, 2, 0), "reduce_scatter")
    assert max(rank.scratch_chunks for rank in program.ranks) > 0
    assert ET.fromstring(to_xml_text(program, runtime="msccl")).get("maxBytes") == str(2**30)
    assert ET.fromstring(to_xml_text(program, runtime="msccl", min_bytes=2**33)).get("maxBytes") == str(2**33 + 1)
    assert ET.fromstring(to_xml_text(program)).get("maxBytes") == str(2**40)
    assert ET.fromstring(to_xml_text(lower(ring_forest(3), "allgather"), runtime="msccl")).get("maxBytes") == str(2**40)


def test_refuses_a_program_that_is_wrong_in_place_for_calls_in_place() -> None:
    """It is right for others."""
    steps = [
        Instruction("recv", None, ChunkRange("output", 0), 1),
        Instruction("reduce", ChunkRange("input", 0), ChunkRange("output", 0), 1),
    ]
    program = summing([block(*steps, of=1)], [block(send("input", 0), to=0)])
    to_xml_text(program, placement="out-of-place")
    with pytest.raises(ProgramError, match="2 times"):
        to_xml_text(program)


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


@given(forest=forests(max_ranks=4))
@settings(max_examples=examples(15))
def test_the_text_is_what_the_parsers_take(forest: Forest) -> None:
    """No prolog, no tab, no single quote, one space between attributes, all ten attributes on every step."""
    text = to_xml_text(lower(forest, "allgather"))
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
    program = lower(random_forest(4, 3, 0), "allgather")
    root = ET.fromstring(to_xml_text(program, runtime=runtime, min_bytes="1K", max_bytes=4096, protocol="LL128"))
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
        ({"min_bytes": -1}, "min_bytes -1 is not understood"),
        ({"max_bytes": 0}, "max_bytes 0 is not understood"),
        ({"placement": "there"}, "placement is 'there'; expected one of out-of-place, in-place, both"),
        ({"placement": "both", "runtime": "msccl"}, "msccl takes a file for one placement"),
        ({"max_bytes": 2**63}, "max_bytes 9223372036854775808 is too large; expected less than 10^18 bytes"),
        ({"min_bytes": 10, "max_bytes": 9}, "more than min_bytes = 10"),
        ({"max_bytes": 0.5}, "max_bytes 0.5 is not understood"),
    ],
)
def test_refuses_senseless_options(options: dict[str, object], message: str) -> None:
    """The message names the option, the value and what is possible."""
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        to_xml_text(exchange(), **options)


def test_never_writes_a_wrong_program(tmp_path: Path) -> None:
    """A race is refused before the file is touched, and the old file stays."""
    path = tmp_path / "ag.xml"
    path.write_text("old")
    program = lower(ring_forest(3), "allgather")
    broken = with_step(program, 0, 2, 1, lambda step: replace(step, depends=()))
    with pytest.raises(ProgramError, match="race"):
        write_xml(broken, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
