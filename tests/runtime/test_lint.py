"""Linting MSCCL files: each thing that can be wrong, what it is called, and that anything at all can be read."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import random_schedule, ring_forest

from collopt.errors import UnsupportedError
from collopt.runtime import lower, to_xml_text
from collopt.runtime.msccl.linter import lint_file
from collopt.runtime.programs.findings import LintReport
from sample_sizes import examples

AZURE = "msccl-executor-nccl"
TEXT = to_xml_text(lower(ring_forest(3), "allgather"))
WAIT = 'depid="0" deps="0" hasdep="0"'
HANDMADE = """<algo name="two" proto="Simple" nchannels="1" nchunksperloop="{chunks}" ngpus="2" coll="{coll}" {place}
 minBytes="0" maxBytes="1048576">
{gpus}</algo>
"""


def lint(folder: Path, text: str | bytes, runtime: str = AZURE, version: str | None = None) -> LintReport:
    """What becomes of a text."""
    path = folder / "file.xml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return lint_file(path, runtime, version)


def two_ranks(coll: str, chunks: int, sizes: str, *steps: str, place: str = 'inplace="0" outofplace="1"') -> str:
    """A file in which both ranks do the same with each other, one thread block; `@` is the rank, `^` the other one."""
    lines = []
    for rank in "01":
        body = [f'<step s="{number}" {step} depid="-1" deps="-1" hasdep="0"/>\n' for number, step in enumerate(steps)]
        block = f'<tb id="0" send="^" recv="^" chan="0">\n{"".join(body)}</tb>\n'
        element = f'<gpu id="@" {sizes}>\n{block}</gpu>\n'
        lines.append(element.replace("@", rank).replace("^", str(1 - int(rank))))
    text = HANDMADE.format(coll=coll, chunks=chunks, gpus="".join(lines), place=place)
    return text.replace("\n minBytes", " minBytes")


def test_a_good_file_has_no_findings(tmp_path: Path) -> None:
    """And the report says which calls it is for, and how to have it picked up."""
    report = lint(tmp_path, TEXT)
    assert (report.verdict, report.runs, report.findings) == ("accepted", True, ())
    assert report.summary == "allgather on 3 ranks, out of place, from 0 to 1099511627776 bytes"
    assert report.environment == {"NCCL_MSCCL_ENABLE": "1", "MSCCL_ALGO_DIR": str(tmp_path)}
    assert str(report) == f"{tmp_path / 'file.xml'}: accepted by msccl-executor-nccl 2.23.4"
    assert lint(tmp_path, TEXT, "msccl").findings == ()
    assert lint(tmp_path, TEXT, "msccl").environment["MSCCL_XML_FILES"] == str(tmp_path / "file.xml")
    assert lint(tmp_path, TEXT, "rccl").environment["RCCL_MSCCL_FORCE_ENABLE"] == "1"


@pytest.mark.parametrize(
    ("old", "new", "verdict", "message"),
    [
        (' chan="0"', f' chan="0{" " * 300}"', "wrong data", "longer than 255 characters"),
        ('nchunksperloop="3"', 'nchunksperloop="4"', "wrong data", "expected a positive multiple of its 3 ranks"),
        ('send="-1" recv="2"', 'send="1" recv="2"', "wrong data", "both send to rank 1 on channel 0"),
        ('hasdep="1"', 'hasdep="0"', "hangs", 'has no hasdep="1" and never signals'),
        (WAIT, 'depid="7" deps="0" hasdep="0"', "hangs", "thread block 7 step 0 of rank"),
        (WAIT, 'depid="0" deps="7" hasdep="0"', "hangs", "which does not exist"),
        (WAIT, 'depid="-1" deps="-1" hasdep="0"', "wrong data", "race"),
        (WAIT, 'depid="-3" deps="-1" hasdep="0"', "wrong data", "depid and deps are -3 and -1, read as -1 for none"),
        (WAIT, 'depid="0" deps="-1" hasdep="0"', "accepted", "waits for the first signal of thread block 0"),
    ],
)  # fmt: skip
def test_one_change_decides_what_becomes_of_a_file(
    tmp_path: Path, old: str, new: str, verdict: str, message: str
) -> None:
    """For the executor of Azure."""
    assert old in TEXT
    report = lint(tmp_path, TEXT.replace(old, new) if old == "algo" else TEXT.replace(old, new, 1))
    assert (report.verdict, message in str(report)) == (verdict, True), report


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('chan="0"', 'chan="0x0"', "chan '0x0' is read as 0"),
        ('step s="1"', 'step s="2"', "steps are numbered by their position: this is 1"),
        ('i_chunks="1"', 'i_chunks="3"', "i_chunks is 3, but the buffer has 1 chunks"),
        ("</gpu>", "<future/></gpu>", "<future> is an element that the parsers ignore"),
        (' chan="0"', ' chan="0" chan="5"', "chan appears twice; the first one is used"),
        (' chan="0"', ' chan="0"' + " " * 20, ""),
        ("</algo>", "</algo><algo></algo>", "there is more than one <algo>; the parsers use the first"),
        ("</algo>", "</algo><note/>", "outside of <algo>, <note> is an element that the parsers ignore"),
        ("<gpu", '<gpu id="3"><tb/></gpu><gpu', "there is a gpu element with id 3, which none of the 3 ranks reads"),
        ('inplace="0"', 'inplace="2"', "inplace is 2 and read as 1; expected 0 or 1"),
        ("<gpu", "<!-- a comment --><gpu", ""),
        (
            "</tb>",
            f'<step s="2" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" {WAIT}/></tb>',
            "ends with a nop",
        ),
        ('name="allgather"', 'name="caf\xe9 &amp;"', ""),
    ],
)
def test_harmless_oddities_are_notes(tmp_path: Path, old: str, new: str, message: str) -> None:
    """The file runs."""
    assert old in TEXT
    report = lint(tmp_path, TEXT.replace(old, new, 1))
    assert report.runs, report
    assert message in str(report)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("5.4", "ignored"), ("5.5", "accepted"), ("6.0", "accepted"), ("6.1", "rejected"), ("6.4.2", "rejected"),
     (None, "rejected"), ("7.13", "rejected"), ("8.0", "rejected")],
)  # fmt: skip
def test_releases_of_rocm_decide_about_fused_steps(tmp_path: Path, version: str | None, verdict: str) -> None:
    """The kernels that run them left with 6.1; MSCCL came with 5.5 and left with 7.13."""
    text = to_xml_text(lower(random_schedule("reduce_scatter", 3, 1, 0), "reduce_scatter"))
    report = lint(tmp_path, text, "rccl", version)
    assert report.verdict == verdict
    assert ("RCCL has" in str(report)) == (version in ("5.4", "7.13", "8.0"))


@pytest.mark.parametrize(("version", "channels"), [("6.0", 32), ("6.1", 64), ("6.2", 128)])
def test_releases_of_rocm_decide_about_channels(tmp_path: Path, version: str, channels: int) -> None:
    """Files with more are passed over."""
    for number, verdict in ((channels, "accepted"), (channels + 1, "ignored")):
        text = TEXT.replace('nchannels="1"', f'nchannels="{number}"')
        assert lint(tmp_path, text, "rccl", version).verdict == verdict


@pytest.mark.parametrize(
    ("runtime", "version", "message"),
    [
        ("nccl", None, "expected one of msccl, msccl-executor-nccl, rccl"),
        ("rccl", "2.21.5", "expected a release of ROCm, such as 6.4"),
        ("rccl", "new", "expected a release of ROCm"),
        ("msccl", "2.13", "the one known of msccl is 2.12.12"),
        (AZURE, 2.23, "expected text"),
    ],
)
def test_unknown_runtimes_and_versions_are_refused(
    tmp_path: Path, runtime: str, version: str | None, message: str
) -> None:
    """With those that are known."""
    with pytest.raises(UnsupportedError, match=message):
        lint(tmp_path, TEXT, runtime, version)


IN_PLACE = 'inplace="1" outofplace="0"'

CHAIN = """<algo name="chain" proto="LL" nchannels="1" nchunksperloop="1" ngpus="3" coll="allreduce" \
inplace="0" outofplace="1" minBytes="0" maxBytes="0">
<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu>
<gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0"><tb id="0" send="2" recv="0" chan="0">
<step s="0" type="rrs" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb><tb id="1" send="0" recv="2" chan="0">
<step s="0" type="rcs" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu>
<gpu id="2" i_chunks="1" o_chunks="1" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="rrcs" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu>
</algo>
"""


def test_a_chain_of_fused_steps_runs_where_they_are_launched(tmp_path: Path) -> None:
    """As generators for NVIDIA write them: receive-reduce-send there, receive-copy-send back."""
    assert lint(tmp_path, CHAIN).runs
    assert lint(tmp_path, CHAIN, "rccl", "6.0").runs
    assert lint(tmp_path, CHAIN, "rccl", "6.1").verdict == "rejected"
    wrong = CHAIN.replace('type="rrs"', 'type="rcs"')
    assert lint(tmp_path, wrong).verdict == "wrong data"


@pytest.mark.parametrize(
    ("proto", "count", "verdict"), [("Simple", 2, "accepted"), ("Simple", 3, "hangs"), ("LL", 3, "accepted")]
)
def test_ranks_may_send_first_what_connections_hold(tmp_path: Path, proto: str, count: int, verdict: str) -> None:
    """Two chunks, or with the other protocols eight, where a chunk can be of any size; a note says so."""
    steps = (
        f'type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="{count}"',
        f'type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="{count}"',
    )
    sizes = f'i_chunks="{count}" o_chunks="{count}" s_chunks="0"'
    text = two_ranks("allreduce", count, sizes, *steps).replace("Simple", proto)
    report = lint(tmp_path, text.replace('maxBytes="1048576"', 'maxBytes="0"'))
    assert report.verdict == verdict
    held = f"the {2 if proto == 'Simple' else 8} chunks that a connection holds, no more"
    assert (f"ranks send before they receive, which needs {held}" in str(report)) == report.runs
    assert ("deadlocks" in str(report)) != report.runs


@pytest.mark.parametrize(
    ("runtime", "largest", "verdict"),
    [
        (AZURE, 8 * 2**19, "accepted"),
        (AZURE, 8 * 2**19 + 1, "hangs"),
        ("rccl", 8 * 2**19, "accepted"),
        (AZURE, 0, "hangs"),
    ],
)
def test_a_step_of_many_small_chunks_is_one_transfer(tmp_path: Path, runtime: str, largest: int, verdict: str) -> None:
    """Eight chunks of 512 KiB are two transfers, as many as a connection holds; larger ones are more."""
    steps = (
        'type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="8"',
        'type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="8"',
        'type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="8"',
        'type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="8"',
    )
    text = two_ranks("allreduce", 8, 'i_chunks="8" o_chunks="8" s_chunks="8"', *steps)
    report = lint(tmp_path, text.replace('maxBytes="1048576"', f'maxBytes="{largest}"'), runtime)
    assert report.verdict == verdict
    assert ("needs the 2 times 4 chunks that a connection holds" in str(report)) == report.runs


@pytest.mark.parametrize(("runtime", "chunk"), [("msccl", 2**31), (AZURE, 2**31), ("rccl", 2**30)])
def test_sizes_of_too_many_rounds_are_noted(tmp_path: Path, runtime: str, chunk: int) -> None:
    """The kernel counts rounds of 32 KiB in 16 bits; files are written for the sizes below."""
    program = lower(ring_forest(3), "allgather")
    for most, noted in ((None, False), (3 * chunk + 2, True)):
        report = lint(tmp_path, to_xml_text(program, runtime=runtime, protocol="LL", max_bytes=most), runtime)
        assert report.runs
        assert (f"calls of more than {3 * chunk} bytes hang with LL" in str(report)) == noted
        assert report.windows[0].end >= 3 * chunk


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("runtime", ["msccl", AZURE])
def test_what_hangs_over_a_network_is_told(tmp_path: Path, collective: str, runtime: str) -> None:
    """Kernel and proxy differ with Simple, so that files are written with LL unless all is in one box."""
    program = lower(random_schedule(collective, 4, 1, 0, root=1), collective)
    path, simple = tmp_path / "file.xml", to_xml_text(program, runtime=runtime, protocol="Simple")
    path.write_text(to_xml_text(program, runtime=runtime))
    assert ' proto="LL" ' in path.read_text()
    assert lint_file(path, runtime, gpus_per_box=2).runs
    path.write_text(simple)
    for size, verdict in ((None, "accepted"), (4, "accepted"), (2, "hangs")):
        report = lint_file(path, runtime, gpus_per_box=size)
        assert (report.verdict, "with proto Simple hangs over a network" in str(report)) == (verdict, size != 4), report
    assert "boxes of 3 GPUs do not divide the 4 ranks; the last box has 1" in str(
        lint_file(path, runtime, gpus_per_box=3)
    )
    with pytest.raises(UnsupportedError, match="gpus_per_box is 0; expected a whole number of at least 1"):
        lint_file(path, runtime, gpus_per_box=0)


SWAP = (
    'type="s" srcbuf="{s}" srcoff="{at}" dstbuf="o" dstoff="@" cnt="1"',
    'type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="^" cnt="1"',
)


def split(text: str) -> str:
    """Give the second step of each block a block of its own, so that both can go on at once."""
    text = text.replace('recv="0" chan', 'recv="-1" chan').replace('recv="1" chan', 'recv="-1" chan')
    for rank in "01":
        old = '<step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="' + str(1 - int(rank))
        block = f'</tb><tb id="1" send="-1" recv="{1 - int(rank)}" chan="0">'
        text = text.replace(old, block + old.replace('s="1"', 's="0"'))
    return text


def test_an_allgather_in_place_may_leave_out_the_input(tmp_path: Path) -> None:
    """Its own shard is in the output from the start; out of place it is not."""
    steps = [step.format(s="o", at="@") for step in SWAP]
    sizes = 'i_chunks="0" o_chunks="2" s_chunks="0"'
    assert lint(tmp_path, split(two_ranks("allgather", 2, sizes, *steps, place=IN_PLACE))).runs
    assert lint(tmp_path, split(two_ranks("allgather", 2, sizes, *steps, place=IN_PLACE)), "msccl").runs
    report = lint(tmp_path, split(two_ranks("allgather", 2, sizes, *steps)))
    assert (report.verdict, "reads output chunk" in str(report)) == ("wrong data", True)


def test_a_reduce_scatter_in_place_may_work_in_its_input(tmp_path: Path) -> None:
    """Out of place that would spoil the caller's data."""
    steps = (
        'type="s" srcbuf="i" srcoff="^" dstbuf="i" dstoff="^" cnt="1"',
        'type="rrc" srcbuf="i" srcoff="@" dstbuf="i" dstoff="@" cnt="1"',
    )
    text = two_ranks("reducescatter", 2, 'i_chunks="2" o_chunks="0" s_chunks="0"', *steps, place=IN_PLACE)
    for rank in "01":
        text = text.replace(f'send="{rank}" recv="{rank}"', f'send="{rank}" recv="-1"')
        old = f'<step s="1" type="rrc" srcbuf="i" srcoff="{1 - int(rank)}"'
        text = text.replace(old, f'</tb><tb id="1" send="-1" recv="{rank}" chan="0">{old.replace("1", "0", 1)}')
    report = lint(tmp_path, text)
    assert report.runs, report
    assert lint(tmp_path, text.replace(IN_PLACE, 'inplace="0" outofplace="1"')).verdict == "wrong data"


SPOIL = (
    '<step s="1" type="cpy" srcbuf="i" srcoff="@" dstbuf="i" dstoff="^" cnt="1" depid="{0}" deps="{0}" hasdep="0"/>\n'
)


def test_accesses_in_place_are_checked_for_races(tmp_path: Path) -> None:
    """What a rank has sent may be overwritten, in the input too, but not before."""
    sent = (
        '<step s="0" type="s" srcbuf="i" srcoff="^" dstbuf="i" dstoff="^" cnt="1" depid="-1" deps="-1" hasdep="{}"/>\n'
    )
    add = (
        '<step s="0" type="rrc" srcbuf="i" srcoff="@" dstbuf="i" dstoff="@" cnt="1" depid="-1" deps="-1" hasdep="0"/>\n'
    )
    for waits, verdict in ((True, "accepted"), (False, "wrong data")):
        gpus, spoil = "", SPOIL.format(0 if waits else -1)
        for rank in "01":
            blocks = (
                f'<tb id="0" send="^" recv="-1" chan="0">\n{sent.format(int(waits))}</tb>\n'
                f'<tb id="1" send="-1" recv="^" chan="0">\n{add}{spoil}</tb>\n'
            )
            element = f'<gpu id="@" i_chunks="2" o_chunks="0" s_chunks="0">\n{blocks}</gpu>\n'
            gpus += element.replace("@", rank).replace("^", str(1 - int(rank)))
        text = HANDMADE.format(coll="reducescatter", chunks=2, gpus=gpus, place=IN_PLACE)
        report = lint(tmp_path, text.replace("\n minBytes", " minBytes"))
        assert (report.verdict, "in place, race: rank 0 thread block" in str(report)) == (verdict, not waits), report


def test_ranks_that_send_first_are_checked_for_races(tmp_path: Path) -> None:
    """Even where what is read early goes nowhere."""
    steps = (
        'type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1"',
        'type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"',
    )
    early = (
        '<tb id="1" send="-1" recv="-1" chan="0">\n<step s="0" type="cpy" srcbuf="o" srcoff="0" dstbuf="s" dstoff="0" '
        'cnt="1" depid="-1" deps="-1" hasdep="0"/>\n</tb>\n'
    )
    text = two_ranks("allreduce", 1, 'i_chunks="1" o_chunks="1" s_chunks="1"', *steps)
    assert lint(tmp_path, text).runs
    assert "out of place, race: rank 0 thread block 1" in str(lint(tmp_path, text.replace("</gpu>", f"{early}</gpu>")))


def test_two_ranks_that_leave_all_as_it_is_in_place_exchange_nothing(tmp_path: Path) -> None:
    """Each copies its own shard onto itself, which is no allgather."""
    steps = ('type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="@" cnt="1"',)
    report = lint(tmp_path, two_ranks("allgather", 2, 'i_chunks="1" o_chunks="2" s_chunks="0"', *steps, place=IN_PLACE))
    assert (report.verdict, "rank 0 neither reads nor writes" in str(report)) == ("wrong data", True), report


def test_chunks_that_only_the_file_has_are_not_there(tmp_path: Path) -> None:
    """The parsers believe the file, and the kernel goes by the size of the buffer."""
    copy = 'type="cpy" srcbuf="i" srcoff='
    assert f'{copy}"0"' in TEXT
    report = lint(tmp_path, TEXT.replace('i_chunks="1"', 'i_chunks="3"').replace(f'{copy}"0"', f'{copy}"1"', 1))
    assert (report.verdict, "of i are outside of the 1 that rank 0 has there" in str(report)) == ("wrong data", True)


def test_thread_blocks_beyond_what_runs_at_once_hang(tmp_path: Path) -> None:
    """The limit is the GPU's, and can be given."""
    path = tmp_path / "file.xml"
    path.write_text(TEXT)
    assert lint_file(path, AZURE, max_thread_blocks=3).runs
    report = lint_file(path, AZURE, max_thread_blocks=1)
    assert (report.verdict, "the GPU runs 1 at once" in str(report)) == ("hangs", True)
    with pytest.raises(UnsupportedError, match="max_thread_blocks is 0"):
        lint_file(path, AZURE, max_thread_blocks=0)


@pytest.mark.parametrize(("collective", "size"), [("broadcast", "i_chunks"), ("reduce", "o_chunks")])
def test_a_root_is_known_by_its_sizes_or_by_who_sends_to_whom(tmp_path: Path, collective: str, size: str) -> None:
    """Some generators write the sizes of a root for all ranks; others leave ranks idle."""
    text = to_xml_text(lower(random_schedule(collective, 3, 1, 0, root=1), collective))
    assert lint(tmp_path, text).runs
    chunks = re.findall(rf'{size}="([1-9]\d*)"', text)
    assert len(chunks) == 1
    assert lint(tmp_path, text.replace(f'{size}="0"', f'{size}="{chunks[0]}"')).runs


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\0", b"<", b"<algo", b"<!--", b"\xff\xfe<", b"<algo/>", b"<algo></algo>", b'<algo a="', b"</algo>",
        b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><algo/>', b"<a" * 1000, b'"' * 1000,
    ],
)  # fmt: skip
def test_anything_can_be_read(tmp_path: Path, text: bytes) -> None:
    """And is rejected."""
    assert lint(tmp_path, text).verdict == "rejected"


@settings(max_examples=examples(150))
@given(
    st.integers(0, len(TEXT) - 1), st.integers(0, 30), st.text(st.sampled_from('<>"=/ -019isobxgpu\t\n\0é'), max_size=8)
)
def test_no_damage_makes_it_stumble(tmp_path_factory: pytest.TempPathFactory, start: int, cut: int, put: str) -> None:
    """Any bytes may go, and any come, and there is a verdict for every runtime."""
    text = TEXT[:start] + put + TEXT[start + cut :]
    folder = tmp_path_factory.mktemp("damaged")
    for runtime in ("msccl", AZURE, "rccl"):
        assert lint(folder, text, runtime).verdict in ("accepted", "rejected", "ignored", "hangs", "wrong data")


@pytest.mark.parametrize(
    "text",
    [
        "<algo>" * 20_000,
        '<algo x="' + "y" * 2_000_000,
        "<algo" + ' x=""' * 50_000 + ">",
        TEXT.replace("<gpu", "<gpu <!-- " * 100_000, 1),
        TEXT.replace("</tb>", "<step/>" * 20_000 + "</tb>", 1),
        TEXT.replace('nchunksperloop="3"', f'nchunksperloop="{2**31 - 1}"'),
        TEXT.replace('ngpus="3"', f'ngpus="{2**31 - 1}"'),
        TEXT.replace('s_chunks="0"', f's_chunks="{2**31 - 1}"'),
    ],
    ids=["deep", "long", "wide", "comments", "steps", "chunks", "ranks", "scratch"],
)
def test_hostile_files_take_no_memory_beyond_their_size(tmp_path: Path, text: str) -> None:
    """Nothing is nested by calls or expanded, and numbers in a file size no arrays."""
    tracemalloc.start()
    lint(tmp_path, text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 * len(text) + 20_000_000
