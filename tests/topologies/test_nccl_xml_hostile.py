"""NCCL's topology files that are broken, or made to harm."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError, TopologyError
from collopt.topologies.importing.documents import MAX_BYTES, Document
from collopt.topologies.importing.nccl_machine import MAX_ELEMENTS, MAX_VALUE, MAX_XML_DEPTH
from collopt.topologies.importing.nccl_xml import matches_nccl, read_nccl
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.switched.scale_out import join_boxes
from nccl_texts import GPU, SWITCH, box_of, cpu, gpu, link, nic, pci, port, slot, switched, system, tag
from sample_sizes import examples

WHOLE = system(
    cpu(
        pci("0000:a0:00.0", gpu(0, switched()), nic("0000:b0:00.0", port(0), port(1, guid="0x1"))),
        gpu(1, switched(), link(slot(2), 2)),
        gpu(2, link(slot(1), 2), tag("c2c", bw=32000, count=14)),
    ),
    cpu(pci("0000:c0:00.0", gpu(3, link(slot(4))), speed="2.5 GT/s", width=1), numaid=1, vendor="AuthenticAMD"),
    cpu(gpu(4, link(slot(3)), link("x", 3, "0x068001")), tag("nic", port(2)), numaid=2),
)
"""Something of everything."""

OPTIONS = (
    BoxOptions(),
    BoxOptions.of(gpu="h100", figures="nccl", nic_bandwidth=25),
    BoxOptions.of(gpu="a10", pcie_bandwidth=12),
)


def refusal(text: str) -> str:
    """The message with which a text is refused: one line, not long."""
    with pytest.raises(FileFormatError) as error:
        box_of(text)
    message = str(error.value)
    assert message.isprintable()
    assert len(message) < 400
    assert message.startswith("topo.xml")
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<system", r", line 1: the file is not well-formed XML \(unclosed token\); is it cut short\?"),
        ("<system version='1'>\n\n<cpu numaid='0'>", r", line 3: the file is not well-formed XML \(no element found\)"),
        ("<system version='1'>\n</cpu>", r", line 2: .*mismatched tag"),
        ("<system version='1'>&nbsp;</system>", ", line 1: .*undefined entity"),
        ("<system version='1' version='1'/>", "duplicate attribute"),
        ("<system version='1'/><system version='1'/>", "junk after document element"),
        ("<system version='1'>\x01</system>", "invalid token"),
        ("\n <?xml version='1.0'?><system version='1'/>", ", line 2: .*declaration not at start"),
        ("<!DOCTYPE system [<!ENTITY a 'aaaa'>]><system version='&a;'/>", r", line 1: .*document type \(<!DOCTYPE\)"),
        ("<!DOCTYPE system SYSTEM 'file:///etc/passwd'><system version='1'/>", "document type"),
        ("<system/>", "version of <system> is ''; expected 1"),
        ("<system version='3'/>", "version of <system> is '3'; expected 1"),
        ("<system version='1'/>", "the file names no GPU"),
        (system(cpu(cpu())), ", line 1: <cpu> stands in <cpu>; expected it in <system>"),
        (system(gpu(0)), "<pci> stands in <system>; expected it in <cpu> or <pci>"),
        (system(cpu(pci("1", tag("net")))), "<net> stands in <pci>; expected it in <nic>"),
        (system(cpu(numaid="a")), "numaid of <cpu> is 'a'; expected a whole number from -1 to 255"),  # type: ignore[arg-type]
        (system(cpu(), cpu()), r", line 2: numaid '0' is also that of line 1; expected one of its own"),
        (system(cpu(gpu(0), gpu(1, busid=slot(0)))), r", line 3: busid '0000:00:00.0' is also that of line 1"),
        (system(cpu(pci(""))), "<pci> has no busid"),
        (system(cpu(gpu(1, busid="1"), gpu(1, busid="2"))), r", line 3: dev 1 is also that of the GPU on line 1"),
        (system(cpu(gpu(-1), gpu(1))), "dev of <gpu> is '-1'; expected a whole number from 0"),
        (system(cpu(pci("1", tag("gpu", dev=0), tag("gpu", dev=1)))), "two <gpu> are in one <pci>"),
        (system(cpu(gpu(0, sm=-90), gpu(1, sm=-90))), "sm of <gpu> is '-90'"),
        (system(cpu(gpu(0, link(slot(1), -2)), gpu(1))), "count of <nvlink> is '-2'; expected a whole number from 1"),
        (system(cpu(gpu(0, link(slot(1), 0)), gpu(1))), "count of <nvlink> is '0'"),
        (system(cpu(gpu(0, link(slot(1), "9" * 200)), gpu(1))), "count of <nvlink> is '999"),
        (system(cpu(gpu(0, link(slot(1), "1e3")), gpu(1))), "count of <nvlink> is '1e3'"),
        (system(cpu(gpu(0, link(slot(1), "١")), gpu(1))), "count of <nvlink> is '١'"),
        (system(cpu(gpu(0, tag("nvlink", count=1, tclass=SWITCH)))), "<nvlink> has no target"),
        (
            system(cpu(gpu(0, link(slot(1)), link(slot(1))), gpu(1))),
            "gpu0 lists its links to '0000:01:00.0' here and on",
        ),
        (system(cpu(gpu(0, tag("c2c", bw=-1, count=1)))), "bw of <c2c> is '-1'"),
        (system(cpu(gpu(0), nic("1", port(0, "fast")))), "speed of <net> is 'fast'"),
        (system(cpu(gpu(0), nic("1", port(0, 10**15)))), "speed of <net> is '1000000000000000'"),
        (system(cpu(gpu(0), gpu(1), vendor="AuthenticAMD", familyid="x"), cpu(gpu(2), numaid=1)), "familyid of <cpu>"),
    ],
)
def test_broken_files_are_refused_in_one_sentence_with_their_line(text: str, message: str) -> None:
    """What is wrong, where, and what was expected."""
    assert re.search(message, refusal(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "<system version='1'><cpu numaid='0'>" + "<pci busid='1'>" * 10**5,
            f"more than {MAX_XML_DEPTH} elements stand inside",
        ),
        ("<system version='1'><x>" + "<x>" * 10**5, f"more than {MAX_XML_DEPTH} elements stand inside"),
        ("<system version='1'>" + "<x/>" * 10**6, f"more than {MAX_ELEMENTS} elements"),
        (f"<system version='{'1' * 10**6}'/>", f"'version' is too long; expected at most {MAX_VALUE} characters"),
        (f"<system {'v' * 10**6}='1'/>", f"is too long; expected at most {MAX_VALUE} characters"),
        ("<system " + " ".join(f"a{n}=''" for n in range(10**5)) + "/>", "version of <system> is ''"),
        ("<system version='1'>" + "x" * MAX_BYTES, "more than 4194304 characters"),
        ("<!--" + " " * (MAX_BYTES - 10) + "-->", "more than 4194304 characters"),
        (system(cpu(*(gpu(n) for n in range(1500)))), "there are more than 1024 GPUs"),
        (system(cpu(gpu(0), *(nic(f"b{n}", port(n)) for n in range(1500)))), "more than 1024 network cards"),
        (
            system(cpu(*(gpu(n, switched()) for n in range(300)), *(nic(f"b{n}", port(n)) for n in range(300)))),
            "more than 65536 pairs of a network card and a GPU",
        ),
    ],
    ids=range(11),
)
def test_files_made_to_harm_are_refused(text: str, message: str) -> None:
    """Before they cost much time or memory."""
    assert message in refusal(text)


def test_what_nccl_skips_is_skipped_with_all_that_is_in_it() -> None:
    """Elements of other names, which newer releases may have."""
    extra = "<gin><cpu/><pci><gpu/></pci></gin>"
    text = system(extra, cpu(gpu(0, extra, switched(), extra), extra, gpu(1, switched()))) + "<!-- end -->"
    assert box_of(text).links == box_of(text.replace(extra, "")).links


def test_what_the_fuzzing_starts_from_is_sound() -> None:
    """Else all that it makes would be refused."""
    box = box_of(WHOLE)
    assert (box.gpus, len(box.nics)) == (5, 2)
    assert {"nvswitch", "cpu0", "cpu1", "cpu2", "pcie0"} == set(box.switches)


@settings(max_examples=examples(300))
@given(st.data())
def test_changed_files_are_read_or_refused(data: st.DataObject) -> None:
    """Attributes taken from elsewhere, elements dropped or doubled, text cut out: never another error."""
    text = WHOLE
    for _ in range(data.draw(st.integers(1, 5))):
        text = data.draw(st.sampled_from(CHANGES))(text, data)
    read_and_join(text)


def read_and_join(text: str) -> None:
    """Read a text in several ways; what is read makes a network, or is refused for a reason."""
    document = Document("topo.xml", text)
    matches_nccl(document)
    refusals = []
    for options in OPTIONS:
        try:
            box = read_nccl(document, options)
            join_boxes([box, box], "two", fabric_switch=lambda _box, _nic: "ib")
        except FileFormatError as error:
            refusals.append(str(error))
        except TopologyError as error:
            if "is unknown; give nic_bandwidth" not in str(error):
                raise
    assert all(refusal.isprintable() for refusal in refusals)


def set_value(text: str, data: st.DataObject) -> str:
    """Give an attribute another value."""
    values = ["", "-1", "0", "1", "7", "18", "1e9", "9" * 30, "é", SWITCH, "0x068001", "0x060400", "0x02", GPU, slot(1)]
    place = data.draw(st.sampled_from(list(re.finditer(r'"[^"]*"', text)) or [None]))
    value = data.draw(st.sampled_from(values) | st.text(max_size=5))
    return text if place is None else f'{text[: place.start()]}"{value}"{text[place.end() :]}'


def copy_part(text: str, data: st.DataObject) -> str:
    """Put one element, or one attribute, in the place of another, beside it, or nowhere."""
    parts = list(re.finditer(data.draw(st.sampled_from([r"<[^>]*>", r"<(\w+)[^<]*</\1>", r' \w+="[^"]*"'])), text))
    if not parts:
        return text
    target, source = (data.draw(st.sampled_from(parts)) for _ in range(2))
    kept = data.draw(st.sampled_from(["", target.group()]))
    return text[: target.start()] + kept + data.draw(st.sampled_from(["", source.group()])) + text[target.end() :]


def cut(text: str, data: st.DataObject) -> str:
    """Leave out some characters."""
    begin, end = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
    return text[:begin] + text[end if data.draw(st.booleans()) else begin + 1 :]


CHANGES = (set_value, copy_part, cut)

NAMES = st.sampled_from(["cpu", "pci", "gpu", "nvlink", "xgmi", "c2c", "nic", "net", "pcilink"])
FIELDS = st.dictionaries(
    st.sampled_from(
        ["numaid", "busid", "class_", "dev", "sm", "gcn", "target", "count", "tclass", "bw", "speed", "rank"]
    ),
    st.sampled_from(["0", "1", "2", "90", "0x03", "0x068000", "a", "b", ""]),
)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(
    st.recursive(
        st.builds(lambda name, fields: tag(name, **fields), NAMES, FIELDS),
        lambda inner: st.builds(
            lambda name, fields, parts: tag(name, *parts, **fields), NAMES, FIELDS, st.lists(inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_trees_of_known_elements_are_read_or_refused(inside: str) -> None:
    """Whatever stands in whatever."""
    read_and_join(system(inside))
    read_and_join(system(cpu(inside, gpu(0), gpu(1))))


@settings(max_examples=examples(200))
@given(st.text(st.sampled_from("<>/=\"' &;!?-[]system=version1cpu\n\x00é\ud800")) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Also where it does not look like XML."""
    read_and_join(text)
