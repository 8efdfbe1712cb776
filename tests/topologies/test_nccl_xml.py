"""NCCL's and RCCL's topology files: GPUs, what joins them, and files that are broken or made to harm."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import plan
from collopt.errors import FileFormatError, TopologyError
from collopt.support.files import MAX_BYTES
from collopt.topologies import dgx1_v100, dgx_a100, mi300x
from collopt.topologies.importing.documents import Document
from collopt.topologies.importing.nccl_machine import MAX_ELEMENTS, MAX_VALUE, MAX_XML_DEPTH
from collopt.topologies.importing.nccl_xml import matches_nccl, read_nccl
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.network.topology import Topology
from collopt.topologies.switched.scale_out import Box, join_boxes
from nccl_texts import GPU, SWITCH, box_of, cpu, gpu, link, nic, pci, port, real_file, slot, switched, system, tag
from sample_sizes import examples


def joined(box: Box, boxes: int) -> Topology:
    """Join copies of a box on one network switch."""
    return join_boxes([box] * boxes, "joined", fabric_switch=lambda _box, _nic: "ib")


def pair(*, sm: int = 90, back: int = 2, **place: object) -> str:
    """Two GPUs with two NVLinks between them, as the first lists them."""
    return system(cpu(gpu(0, link(slot(1), 2), sm=sm), gpu(1, link(slot(0), back), sm=sm), **place))


def unlinked(*sm: int) -> str:
    """GPUs without NVLinks, by compute capability."""
    return system(cpu(*(gpu(number, sm=each) for number, each in enumerate(sm))))


def bare(count: int, **attributes: object) -> str:
    """A cloud's file: GPUs by class only."""
    return system(cpu(*(pci(slot(number), kind=GPU) for number in range(count)), **attributes))


def amd(gcn: str, **place: object) -> str:
    """Two GPUs of AMD with an xGMI link; their ``sm`` counts compute units."""
    links = [tag("gpu", link(slot(1 - n), name="xgmi"), dev=n, sm=104, **({"gcn": gcn} if gcn else {})) for n in (0, 1)]
    text = system(cpu(*(pci(slot(n), element, kind="0x120000", **place) for n, element in enumerate(links))), version=2)
    return text if gcn else text.replace(' sm="104"', "")


def rack(*more: str) -> str:
    """Two hosts with four GPUs each, in the reverse order of their ranks, on one NVSwitch."""
    return system(*(
        cpu(*(gpu(n, switched(), sm=100, rank=4 * (1 - host) + n) for n in range(4)), *more, host_hash=f"0x{host}a")
        for host in range(2)
    ))  # fmt: skip


SWITCHES = system(cpu(gpu(0, link("0000:f0:00.0", 10, SWITCH), link("0000:f1:00.0", 8, SWITCH)), gpu(1, switched())))
OUT_OF_ORDER = system(cpu(gpu(7, link(slot(3)), link(slot(5), 2)), gpu(3, link(slot(7))), gpu(5, link(slot(7), 2))))
NOWHERE = system(cpu(*(gpu(n, link(slot(n), 12), link(slot(9), 2), link(slot(1 - n))) for n in range(2))))
HEADED = '<?xml version="1.0" encoding="ISO-8859-1"?>\n<!-- von Jürgen -->\n'
BOTH = ("gpu0", "gpu1")

# Text, options, name of the box, its links, and what notes say, after "not" what none says.
BOXES: dict[str, tuple[str, dict[str, Any], str, dict[tuple[str, str], object] | None, str]] = {
    "NVSwitches become one": (
        SWITCHES, {}, "h100-2gpu", {("gpu0", "nvswitch"): 450, ("gpu1", "nvswitch"): 450},
        "3 NVSwitches became one, as in NCCL"),
    "line rates are the default": (
        pair(), {}, "h100-2gpu", {BOTH: 50}, "every NVLink of h100 is modeled with 25 GB/s in each direction, its"),
    "NCCL's figures are lower": (
        pair(), {"figures": "nccl"}, "h100-2gpu", {BOTH: Fraction("41.2")},
        "every NVLink of h100 is modeled with 20.6 GB/s in each direction, the bandwidth that NCCL plans with"),
    "GPUs are counted by their number, not by their place": (
        OUT_OF_ORDER, {}, "h100-3gpu", {("gpu0", "gpu2"): 25, ("gpu1", "gpu2"): 50}, ""),
    "an MI100 by its architecture": (amd("908"), {}, "mi100-2gpu", {BOTH: 46}, "every xGMI link of"),
    "an MI250 by an old name": (amd("910"), {}, "mi250-2gpu", {BOTH: 50}, ""),
    "an MI250 with features": (amd("gfx90a:sramecc+"), {}, "mi250-2gpu", {BOTH: 50}, ""),
    "an MI300X": (amd("gfx942"), {}, "mi300x-2gpu", {BOTH: 64}, ""),
    "an MI300A by its PCI device, with links that RCCL does not count": (
        amd("gfx942", device="0x74a0"), {}, "mi300a-2gpu", {BOTH: 128}, "2 xGMI links join each two mi300a"),
    "switches of one address, as RCCL's models have": (
        system(cpu(*(pci("0000:a1:00.0", gpu(n, switched())) for n in range(2)))), {}, "h100-2gpu", None,
        "1 repeated busid of PCIe switches (0000:a1:00.0 on line"),
    "a GPU that has lost its links": (
        system(cpu(gpu(0, switched()), gpu(1), gpu(2, switched(count=16)))), {}, "h100-3gpu", None,
        "gpu1: no NVLinks, which other GPUs of this box have"),
    "a GPU with fewer links": (
        system(cpu(gpu(0, switched()), gpu(1, switched(count=16)))), {}, "h100-2gpu",
        {("gpu0", "nvswitch"): 450, ("gpu1", "nvswitch"): 400}, "gpu1 has 16 of 18 NVLinks to the NVSwitches"),
    "elements that are not read": (
        pair().replace("<cpu", "<fpga><pin/></fpga><cpu", 1), {}, "h100-2gpu", None,
        "elements of unknown kinds were not read: 1 <fpga>"),
    "cards without direct access": (
        system(cpu(gpu(0, switched()), gpu(1, switched()), nic("0000:91:00.0", port(0, gdr=0)))), {}, "h100-2gpu", None,
        "gdr is 0 for network cards"),
    "a tray with Grace": (
        system(cpu(*(gpu(n, switched(), sm=100) for n in range(2)), arch="arm64")), {}, "gb200-2gpu",
        {("gpu0", "nvswitch"): 900, ("gpu1", "nvswitch"): 900}, ""),
    "a vendor that only links tell": (amd(""), {"gpu": "mi100"}, "mi100-2gpu", {BOTH: 46}, ""),
    "the file overrules the option": (
        pair(), {"gpu": "b200"}, "h100-2gpu", {BOTH: 50}, "ignored: gpu='b200', as the file itself says h100"),
    "an option of the same code counts": (pair(sm=103), {"gpu": "b200"}, "b300-2gpu", {BOTH: 100}, ""),
    "a GPU that the table lacks": (pair(sm=72), {"gpu": "v100"}, "v100-2gpu", {BOTH: 50}, "taken as the given v100"),
    "GPUs without links need no product": (unlinked(89, 89), {}, "sm89-2gpu", None, ""),
    "GPUs of different kinds without links": (unlinked(89, 86), {}, "mixed-2gpu", None, ""),
    "links that lead nowhere are left out": (NOWHERE, {}, "h100-2gpu", {BOTH: 25}, "lead from a GPU to itself"),
    "links to GPUs of other jobs are left out": (NOWHERE, {}, "h100-2gpu", {BOTH: 25}, "that are not in this file"),
    "PCIe is all that an A10 has": (bare(3), {"gpu": "a10g"}, "a10-3gpu", None, ""),
    "a single GPU": (system(cpu(gpu(0), nic("0000:09:00.0", port(0)))), {}, "h100-1gpu", {}, ""),
    "a rack on one NVSwitch": (rack(), {}, "b200-8gpu", {(f"gpu{n}", "nvswitch"): 900 for n in range(8)}, ""),
    "a header and comments": (HEADED + pair(), {}, "h100-2gpu", {BOTH: 50}, ""),
    "ranks in another order": (
        system(cpu(*(gpu(n, switched(), rank=1 - n) for n in range(2)))), {}, "h100-2gpu", None,
        "GPUs are in the order of dev, which the ranks of the dumped job contradict: gpu0 was its rank 1"),
    "ranks in order": (
        system(cpu(*(gpu(n, switched(), rank=3 + 6 * n) for n in range(2)))), {}, "h100-2gpu", None,
        "not which the ranks of the dumped job contradict"),
}  # fmt: skip


@pytest.mark.parametrize("case", BOXES)
def test_links_are_those_that_a_file_lists(case: str) -> None:
    """Every kind of file becomes a box with the name, links and notes computed by hand."""
    text, options, name, links, note = BOXES[case]
    box = box_of(text, **options)
    assert box.name == name
    assert links is None or {link[:2]: link.bandwidth for link in box.links} == links
    assert any(note.removeprefix("not ") in line for line in box.notes) != note.startswith("not ")


def test_nvswitches_have_the_abilities_of_their_generation() -> None:
    """Those of an H100 reduce, with loopback; those of an A100 have no such units."""
    box = box_of(SWITCHES)
    assert box.abilities == box.switches == ("nvswitch",)
    assert [(limit.switch, limit.loopback) for limit in box.limits] == [("nvswitch", True)]
    older = box_of(system(cpu(*(gpu(number, switched(count=12), sm=80) for number in range(2)))))
    assert (older.switches, older.abilities) == (("nvswitch",), ())


def test_cards_of_a_rack_stay_with_the_gpus_of_their_host() -> None:
    """GPUs are counted by rank; a single GPU has its card, too."""
    box = box_of(rack(nic("0000:20:00.0", port(0, 400000))))
    assert [card.near for card in box.nics] == [tuple(f"gpu{n}" for n in range(first, first + 4)) for first in (4, 0)]
    alone = box_of(BOXES["a single GPU"][0])
    assert alone.nics[0].near == ("gpu0",)
    assert joined(alone, 2).num_ranks == 2


@pytest.mark.parametrize(("product", "boxes"), [("v100", dgx1_v100), ("a100", dgx_a100)])
def test_known_boxes_of_eight_are_assumed_where_a_file_lists_pcie_only(product: str, boxes: Any) -> None:
    """The links are the catalogue's."""
    box = box_of(bare(8), gpu=product)
    assert sorted(joined(box, 1).links) == sorted(boxes().links)
    assert box.notes[0].startswith("assumed: ")


@pytest.mark.parametrize(
    ("name", "gpus", "links", "cards", "switches"),
    [
        ("nccl-topo-dump_h100-8gpu-8nic-vm.xml", "h100-8gpu", 8, 8, ("nvswitch",)),
        ("nccl-topo_azure-ncv4-a100pcie.xml", "a100-4gpu", 10, 1, ("cpu0", "cpu1", "cpu2", "cpu3")),
        ("rccl-topo_3gpu-pcie.xml", "mi210-3gpu", 4, 1, ("cpu0", "cpu1")),
        ("rccl-topo_mi100-4gpu.xml", "mi100-4gpu", 6, 1, ()),
        ("rccl-topo_mi100-8gpu-hypercube.xml", "mi100-8gpu", 24, 1, ()),
        ("rccl-topo_mi250x-16gcd-8nic.xml", "mi250-16gpu", 28, 8, ()),
        ("rccl-topo_mi300x-8gpu-8nic.xml", "mi300x-8gpu", 28, 8, ()),
    ],
)
@pytest.mark.parametrize("figures", ["line", "nccl"])
def test_real_dumps_are_read(
    name: str, gpus: str, links: int, cards: int, switches: tuple[str, ...], figures: str
) -> None:
    """All GPUs of each can reach each other, so there is a plan."""
    box = read_nccl(real_file(name), BoxOptions.of(figures=figures))
    assert (box.name, len(box.links), len(box.nics), box.switches) == (gpus, links, cards, switches)
    assert joined(box, 2).num_ranks == 2 * box.gpus
    assert plan(joined(box, 1), "allgather", trees_per_root=1).algbw > 0


@pytest.mark.parametrize(
    ("name", "product", "near"),
    [
        ("nccl-topo_aws-p4d-a100.xml", "a100", [("gpu0", "gpu1"), ("gpu2", "gpu3")]),
        ("nccl-topo_azure-ndv2-v100.xml", "v100", [("gpu0", "gpu1", "gpu2", "gpu3")]),
        ("nccl-topo_azure-ndv4-a100.xml", "a100", [("gpu0", "gpu1"), ("gpu0", "gpu1")]),
        ("nccl-topo_azure-ndv5-h100.xml", "h100", [("gpu0",), ("gpu1",)]),
    ],
)
def test_real_files_of_clouds_are_read_once_the_gpu_is_named(
    name: str, product: str, near: list[tuple[str, ...]]
) -> None:
    """What is assumed is said; the network cards are where the file has them."""
    box = read_nccl(real_file(name), BoxOptions.of(gpu=product, nic_bandwidth=25))
    assert [card.near for card in box.nics[:2]] == near
    assert any(note.startswith("assumed: ") for note in box.notes)
    assert joined(box, 2).num_ranks == 16


def test_rccls_mi300x_file_is_the_catalogues_mi300x() -> None:
    """With the network cards as well, each next to its own GPU."""
    box = read_nccl(real_file("rccl-topo_mi300x-8gpu-8nic.xml"), BoxOptions())
    assert sorted(joined(box, 2).links) == sorted(mi300x(boxes=2).links)


def hosts(*ranks: int, linked: bool) -> str:
    """A host for each rank, with a GPU number 0."""
    more = [switched()] if linked else []
    return system(*(cpu(gpu(0, *more, rank=rank), host_hash=f"0x{host}") for host, rank in enumerate(ranks)))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("\n" + pair(back=3), {}, "line 2: gpu0 lists count 2 to gpu1, but gpu1 on line 5 lists count 3 to"),
        (system(cpu(gpu(0, link(slot(1))), gpu(1))), {}, "gpu0 lists count 1 to gpu1, but gpu1 does not list gpu0;"),
        (pair(), {"gpu": "mi300x"}, "gpu is 'mi300x', but the GPUs of this file are NVIDIA's; leave out gpu"),
        (amd(""), {"gpu": "h100"}, "the GPUs of this file are AMD's"),
        (pair(sm=72), {}, "has GPUs that are not in the table of links (72)"),
        (system(cpu(gpu(0, link(slot(1)), sm=80), gpu(1, link(slot(0))))), {}, "the GPUs are of different kinds"),
        (system(cpu(gpu(0, link("nowhere", kind="")), gpu(1))), {}, "target 'nowhere' is no GPU of this file"),
        (bare(4), {"gpu": "h100"}, "the wiring of 4 h100 is unknown"),
        (hosts(0, 1, linked=False), {}, "the file has GPUs of 2 hosts, and no links that join all of them"),
        (hosts(3, 3, linked=True), {}, "rank 3 is also that of the GPU on line"),
        ("<topology version='2.0'/>", {}, "this is hwloc's description of a machine"),
        ('<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology/>', {}, "line 2: this is hwloc's"),
        ("<graphs version='1'/>", {}, "this is a result of NCCL's search"),
        ("<svg/>", {}, "the file starts with '<svg>'; expected <system>"),
    ],
)
def test_machines_that_cannot_be_are_refused(text: str, options: dict[str, Any], message: str) -> None:
    """Contradictions, unknown wiring and other kinds of XML are named."""
    assert matches_nccl(Document("topology.xml", text))
    with pytest.raises(FileFormatError) as caught:
        box_of(text, **options)
    assert message in str(caught.value)


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
        ("<!DOCTYPE system [<!ENTITY a 'aaaa'>]><system version='&a;'/>", r", line 1: .*document type \(<!DOCTYPE\)"),
        ("<system/>", "version of <system> is ''; expected 1"),
        ("<system version='1'/>", "the file names no GPU"),
        (system(cpu(cpu())), ", line 1: <cpu> stands in <cpu>; expected it in <system>"),
        (system(gpu(0)), "<pci> stands in <system>; expected it in <cpu> or <pci>"),
        (system(cpu(), cpu()), r", line 2: numaid '0' is also that of line 1; expected one of its own"),
        (system(cpu(gpu(0), gpu(1, busid=slot(0)))), r", line 3: busid '0000:00:00.0' is also that of line 1"),
        (system(cpu(gpu(1, busid="1"), gpu(1, busid="2"))), r", line 3: dev 1 is also that of the GPU on line 1"),
        (system(cpu(pci("1", tag("gpu", dev=0), tag("gpu", dev=1)))), "two <gpu> are in one <pci>"),
        (system(cpu(gpu(0, link(slot(1), 0)), gpu(1))), "count of <nvlink> is '0'"),
        (system(cpu(gpu(0, tag("nvlink", count=1, tclass=SWITCH)))), "<nvlink> has no target"),
        (
            system(cpu(gpu(0, link(slot(1)), link(slot(1))), gpu(1))),
            "gpu0 lists its links to '0000:01:00.0' here and on",
        ),
        (system(cpu(gpu(0), nic("1", port(0, "fast")))), "speed of <net> is 'fast'"),
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
        ("<system version='1'>" + "<x/>" * 10**6, f"more than {MAX_ELEMENTS} elements"),
        (f"<system version='{'1' * 10**6}'/>", f"'version' is too long; expected at most {MAX_VALUE} characters"),
        ("<system version='1'>" + "x" * MAX_BYTES, "more than 4194304 characters"),
        (system(cpu(*(gpu(n) for n in range(1500)))), "there are more than 1024 GPUs"),
        (system(cpu(gpu(0), *(nic(f"b{n}", port(n)) for n in range(1500)))), "more than 1024 network cards"),
        (
            system(cpu(*(gpu(n, switched()) for n in range(300)), *(nic(f"b{n}", port(n)) for n in range(300)))),
            "more than 65536 pairs of a network card and a GPU",
        ),
    ],
    ids=range(7),
)
def test_files_made_to_harm_are_refused(text: str, message: str) -> None:
    """The limits are checked before much time or memory is spent."""
    assert message in refusal(text)


def test_what_nccl_skips_is_skipped_with_all_that_is_in_it() -> None:
    """Elements of other names, which newer releases may have."""
    extra = "<gin><cpu/><pci><gpu/></pci></gin>"
    text = system(extra, cpu(gpu(0, extra, switched(), extra), extra, gpu(1, switched()))) + "<!-- end -->"
    assert box_of(text).links == box_of(text.replace(extra, "")).links


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
