"""Reading MSCCL XML: each way in which a file can be wrong, and what the message says."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import block, random_schedule, ring_forest, send, summing

from collopt.errors import ColloptError, FileFormatError, ProgramError
from collopt.runtime import ChunkRange, Instruction, interpret_file, lower, read_xml, to_xml_text
from collopt.runtime.msccl.export import read_algorithm
from sample_sizes import examples

TEXT = to_xml_text(lower(ring_forest(3), "allgather"))
WAITING = '<step s="1" type="s" srcbuf="o" srcoff="2" dstbuf="o" dstoff="2" cnt="1" depid="0" deps="0" hasdep="0" />'


def refused(tmp_path: Path, text: str | bytes, error: type[Exception] = FileFormatError) -> str:
    """Write `text`, read it, and return the message of the refusal without the path."""
    path = tmp_path / "ag.xml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error) as caught:
        read_xml(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", ["name", "outofplace", "minBytes", "maxBytes"])
def test_does_without_what_only_some_runtimes_want(tmp_path: Path, name: str) -> None:
    """microsoft/msccl's own tools leave these out."""
    path = tmp_path / "ag.xml"
    path.write_text(re.sub(rf' {name}="[^"]*"', "", TEXT, count=1))
    assert read_xml(path) == lower(ring_forest(3), "allgather")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('coll="allgather" inplace="0" outofplace="1"', 'coll="allgather" inplace="0" outofplace="0"', "no call picks"),
        ('nchannels="1"', 'nchannels="²"', "nchannels"),
        ('nchunksperloop="3"', 'nchunksperloop="99999999999999999999999"', "nchunksperloop is -1, by which"),
        ('<gpu id="0"', '<gpu id="3"', "there is no gpu element with id 0, but ngpus is 3"),
        ('depid="0" deps="0" hasdep="0"', 'depid="3" deps="0" hasdep="0"', "3 step 0 of rank 0, which does not exist"),
        ('depid="0" deps="0" hasdep="0"', 'depid="0" deps="2" hasdep="0"', "0 step 2 of rank 0, which does not exist"),
        ('depid="0" deps="0" hasdep="0"', 'depid="0" deps="1" hasdep="0"', "step 1, which has no hasdep"),
        ('hasdep="1"', 'hasdep="0"', 'has no hasdep="1"'),
        ('hasdep="1"', 'hasdep="2"', "hasdep is 2; expected 0 or 1"),
        ("algo", "algorithm", "there is no <algo> element"),
        ("</algo>", "", "the file ends before </algo>; it was cut short"),
        ('type="cpy"', 'type="ra"', "type is 'ra'; expected cpy, nop, r"),
    ],
)
def test_refuses_a_wrong_value(tmp_path: Path, old: str, new: str, message: str) -> None:
    """One thing is changed, and the message names it."""
    assert old in TEXT
    changed = TEXT.replace(old, new) if old == "algo" else TEXT.replace(old, new, 1)
    assert message in refused(tmp_path, changed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('nchannels="1"', 'nchannels="0x1"'),
        ('nchannels="1"', 'nchannels=" 1"'),
        ('step s="1"', 'step s="2"'),
        ("</algo>", "</algo><algo></algo>"),
        (WAITING, WAITING.replace("step", "note") + WAITING),
    ],
)
def test_reads_what_the_parsers_read(tmp_path: Path, old: str, new: str) -> None:
    """Numbers as C writes them, steps in their order whatever their numbers, and nothing that they ignore."""
    assert old in TEXT
    path = tmp_path / "ag.xml"
    path.write_text(TEXT.replace(old, new, 1))
    assert read_xml(path) == lower(ring_forest(3), "allgather")


def test_splits_steps_that_receive_and_send_on(tmp_path: Path) -> None:
    """They are two steps in a program."""
    path = tmp_path / "ag.xml"
    path.write_text(TEXT.replace('send="-1"', 'send="2"', 1).replace('type="r"', 'type="rcs"', 1))
    assert [step.kind for step in read_xml(path).ranks[0].thread_blocks[0].instructions[:2]] == ["recv", "send"]


@pytest.mark.parametrize(
    ("nops", "message"), [([(-1, -1)], "waits for nothing"), ([(0, 0), (0, 1)], "which does not exist|no hasdep")]
)
def test_refuses_nops_that_shift_the_numbering(tmp_path: Path, nops: list[tuple[int, int]], message: str) -> None:
    """A nop has to carry a dependency that exists."""
    changed = TEXT.replace(
        WAITING, "".join(_nop(1 + n, *wait) for n, wait in enumerate(nops)) + _moved(1 + len(nops)), 1
    )
    assert changed != TEXT
    assert re.search(message, refused(tmp_path, changed))


def test_refuses_a_dependency_behind_a_nop_chain_without_one(tmp_path: Path) -> None:
    """The parsers reject a chain of nops that ends in a step without a dependency."""
    changed = TEXT.replace(WAITING, _nop(1, 0, 0) + _moved(2).replace('depid="0" deps="0"', 'depid="-1" deps="-1"'), 1)
    assert "waits for nothing" in refused(tmp_path, changed)


def test_leaves_out_a_nop_at_the_end(tmp_path: Path) -> None:
    """It would hold nothing back."""
    path = tmp_path / "ag.xml"
    path.write_text(TEXT.replace(WAITING, WAITING + _nop(2, 0, 0), 1))
    assert read_xml(path) == lower(ring_forest(3), "allgather")


def test_refuses_waiting_for_a_nop(tmp_path: Path) -> None:
    """A nop never signals that it is done."""
    changed = TEXT.replace(WAITING, _nop(1, 0, 0) + _moved(2), 1)
    copy = 'cnt="1" depid="-1" deps="-1" hasdep="0" />'
    at = changed.index('type="cpy"')
    changed = changed[:at] + changed[at:].replace(copy, 'cnt="1" depid="2" deps="1" hasdep="0" />', 1)
    assert "waits for thread block 2 step 1, which is a nop and never signals" in refused(tmp_path, changed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<?xml version="1.0"?>\n' + TEXT, "prolog"),
        (TEXT.replace("  <gpu", "\t<gpu", 1), "a tab"),
        (TEXT.replace('proto="Simple"', "proto='Simple'"), 'name="value", in double quotes'),
        ('<!DOCTYPE algo [<!ENTITY a "b">]>' + TEXT, "do not support a document type; delete it"),
        (TEXT[: len(TEXT) // 2], "an element is not written as"),
        ("", "the file ends without an element"),
        ("hello", "there is 'hello', which is no element"),
        (TEXT.encode().replace(b"allgather", b"\xff\xfe", 1), "not UTF-8"),
    ],
    ids=["prolog", "tab", "quotes", "entities", "cut short", "empty", "text", "bytes"],
)
def test_refuses_what_the_parsers_reject(tmp_path: Path, text: str | bytes, message: str) -> None:
    """NCCL's parser takes less than XML, and no parser takes half a file."""
    assert message in refused(tmp_path, text)


def test_reads_which_calls_a_file_is_for(tmp_path: Path) -> None:
    """In place, out of place or both, and runs it accordingly."""
    path = tmp_path / "ag.xml"
    path.write_text(TEXT.replace('inplace="0" outofplace="1"', 'inplace="1" outofplace="0"'))
    assert read_xml(path).in_place
    assert read_algorithm(path)[1]
    interpret_file(path)
    path.write_text(TEXT.replace('inplace="0" outofplace="1"', 'inplace="1" outofplace="1"'))
    assert not read_xml(path).in_place
    assert read_algorithm(path)[1]
    interpret_file(path)


def test_a_file_for_both_has_to_be_right_in_place_too(tmp_path: Path) -> None:
    """What is received over the input before that is added is lost."""
    steps = [
        Instruction("recv", None, ChunkRange("output", 0), 1),
        Instruction("reduce", ChunkRange("input", 0), ChunkRange("output", 0), 1),
    ]
    program = summing([block(*steps, of=1)], [block(send("input", 0), to=0)])
    path = tmp_path / "reduce.xml"
    text = to_xml_text(program, placement="out-of-place")
    path.write_text(text)
    interpret_file(path)
    path.write_text(text.replace('inplace="0"', 'inplace="1"'))
    with pytest.raises(ProgramError, match="2 times"):
        interpret_file(path)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_finds_the_root_by_its_buffers(tmp_path: Path, collective: str) -> None:
    """Only the root has an input, or an output; where several have, it alone receives, or sends, nothing."""
    path = tmp_path / "file.xml"
    program = lower(random_schedule(collective, 4, 2, 0, root=2), collective)
    text = to_xml_text(program)
    path.write_text(text)
    assert read_xml(path).layout.root == 2
    letter = "i" if collective == "broadcast" else "o"
    path.write_text(text.replace(f'{letter}_chunks="0"', f'{letter}_chunks="2"', 1))
    assert read_xml(path).layout.root == 2


def test_gpus_and_thread_blocks_may_stand_in_any_order(tmp_path: Path) -> None:
    """The runtimes go by id."""
    path = tmp_path / "ag.xml"
    gpus = re.findall(r"  <gpu.*?</gpu>\n", TEXT, flags=re.DOTALL)
    path.write_text(TEXT.replace("".join(gpus), "".join(gpus[::-1])))
    assert read_xml(path) == lower(ring_forest(3), "allgather")
    blocks = re.findall(r"    <tb.*?</tb>\n", TEXT, flags=re.DOTALL)[:3]
    path.write_text(TEXT.replace("".join(blocks), "".join(blocks[::-1]), 1))
    assert read_xml(path) == lower(ring_forest(3), "allgather")


LARGER = [
    to_xml_text(lower(random_schedule(collective, 3, 2, 5), collective))
    for collective in ("allgather", "reduce_scatter", "allreduce", "reduce")
]


@given(data=st.data())
@settings(max_examples=examples(150))
def test_garbled_files_never_escape_our_errors(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever a few changed characters make of a file, the outcome is a program that runs or one of our errors."""
    text = list(data.draw(st.sampled_from(LARGER)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.sampled_from('0123456789-<>"/ =siorcpyn'))
    path = tmp_path_factory.getbasetemp() / "garbled.xml"
    path.write_text("".join(text))
    with contextlib.suppress(ColloptError):
        interpret_file(path, interleavings=2)


def _nop(number: int, block: int, step: int) -> str:
    return (
        f'<step s="{number}" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="{block}" '
        f'deps="{step}" hasdep="0" />'
    )


def _moved(number: int) -> str:
    return WAITING.replace('s="1"', f's="{number}"')
