"""Scores of schedules in files: those of our own exports are the plan's, and wrong files are told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import collopt
from collopt.errors import ColloptError, FileFormatError, TopologyError, UnsupportedError
from collopt.planners import Plan
from collopt.runtime import Attribute, Score, TraceNode, plan_traces, read_trace, score, write_trace
from collopt.runtime.simulation.chakra_trace import NodeKind
from collopt.topologies import Topology, complete, dgx_a100, hypercube, leaf_spine, rail, ring, torus
from sample_files import sample

RING = ring(4, bandwidth=25)
TORUS = torus(3, 3, bandwidth=25)


def plan_shares(plan: Plan) -> list[Fraction]:
    """Share of all data on each link, from the plan alone."""
    transfers = plan.schedule.transfers(plan.topology)
    loads = np.zeros(len(plan.topology.links), dtype=np.int64)
    np.add.at(loads, transfers.hop_links, transfers.amounts[transfers.hop_owners])
    return [load * transfers.unit for load in loads.tolist()]


def exported(plan: Plan, folder: Path, form: str) -> Path:
    """Write a plan in a form, of a size that all chunks divide; return the path to score."""
    path = folder / form
    if form == "plan":
        plan.save(path)
    elif form == "chakra-et":
        transfers = plan.schedule.transfers(plan.topology)
        plan.export(form, path, size=1024 * transfers.unit.denominator)
    else:
        plan.export(form, path)
    return path


OURS = [
    (RING, "forestcoll", "broadcast"),
    (RING, "forestcoll", "reduce"),
    (TORUS, "bfb", "allreduce"),
    (TORUS, "multitree", "reduce_scatter"),
    (TORUS, "multicommodity", "all_to_all"),
    (hypercube(3, bandwidth=25), "recursive-halving-doubling", "allreduce"),
    (rail(2, 2), "ring", "allreduce"),
    (dgx_a100(boxes=2), "hierarchical-ring", "allgather"),
]


@pytest.mark.parametrize(("network", "planner", "collective"), OURS, ids=lambda value: getattr(value, "name", value))
def test_our_own_exports_score_as_their_plan(network: Topology, planner: str, collective: str, tmp_path: Path) -> None:
    """In every form every link has exactly the plan's load, and so the bandwidth is the plan's."""
    root = {"root": 1} if collective in ("broadcast", "reduce") else {}
    plan = collopt.plan(network, collective, planner=planner, **root)
    for form in ("plan", "msccl-xml", "mscclpp-json", "chakra-et"):
        hints = root if form == "chakra-et" else {}
        found = score(exported(plan, tmp_path, form), network, sizes=["1M"], planner=planner, **hints)
        assert list(found.shares) == plan_shares(plan), form
        assert (found.algbw, found.gap) == (plan.algbw, plan.gap), form
        assert found.data.outcome == ("not checked" if form == "chakra-et" else "right"), found.data
        assert found.plan is not None
        assert found.plan.algbw == plan.algbw
        ((size, time, _, ours, least, _),) = found.times
        assert (size, ours) == (2**20, plan.simulate("1M"))
        assert least is not None
        assert time >= max(float(size / (plan.algbw * 1000)), least.microseconds) * (1 - 1e-12), form
        if form == "plan":
            assert time == ours


def test_sends_in_pieces_take_as_long_as_the_plan(tmp_path: Path) -> None:
    """Pieces follow each other along trees on a ring in a file as in the plan."""
    plan = collopt.plan(RING, "broadcast", root=0)
    for form in ("msccl-xml", "mscclpp-json"):
        found = score(exported(plan, tmp_path, form), RING, sizes=["1M"], slices=8)
        assert found.times[0].pieces == 8
        assert found.times[0].microseconds == found.times[0].plan_microseconds == plan.simulate("1M", slices=8)


def test_software_adds_to_all_times(tmp_path: Path) -> None:
    """Alpha adds to each hop of the file, of the plan and of the least time."""
    plan = collopt.plan(RING, "broadcast", root=0)
    path, costs = exported(plan, tmp_path, "msccl-xml"), collopt.topologies.RuntimeCosts(alpha=7)
    bare, added = (score(path, RING, sizes=[4096], slices=1, costs=each).times[0] for each in ("links", costs))
    assert added.microseconds - bare.microseconds == pytest.approx(21)
    assert bare.plan_microseconds is not None
    assert bare.bound is not None
    assert added.plan_microseconds == pytest.approx(bare.plan_microseconds + 21)
    assert added.bound is not None
    assert bare.bound.time < added.bound.time <= added.microseconds
    assert score(path, RING, costs="fused", sizes=[]).costs.label == "not calibrated"


def test_equal_routes_are_shared_by_the_rule_of_planners(tmp_path: Path) -> None:
    """Rings use both of two spines, though a file does not say which message goes where."""
    network = leaf_spine(3, 2, 2, oversubscription=2)
    plan = collopt.plan(network, "allgather", planner="ring")
    found = score(exported(plan, tmp_path, "msccl-xml"), network, sizes=[])
    assert found.algbw == plan.algbw
    assert "9 pairs of ranks, of which 5 have several shortest routes" in found.routes
    assert found.times == ()
    assert found.plan is None


# Lists of sends


def ring_sends(ranks: int, collective: str = "allgather") -> list[dict[str, object]]:
    """A ring in one direction."""
    rows: list[dict[str, object]] = []
    for step in range(ranks - 1):
        for rank in range(ranks):
            owner = (rank - step - (collective == "reduce_scatter")) % ranks
            rows.append({"step": step, "from": rank, "to": (rank + 1) % ranks, "owner": owner, "chunk": 0})
    return rows


def csv_of(rows: Sequence[dict[str, object]]) -> str:
    """Rows with a header."""
    return "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])


def score_sends(folder: Path, text: str, network: Topology = RING, **hints: object) -> Score:
    """Score a text."""
    path = folder / "sends"
    path.write_text(text, encoding="utf-8")
    return score(path, network, **{"sizes": ["1M"], **hints})  # type: ignore[arg-type]


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
def test_a_list_of_sends_is_executed(collective: str, tmp_path: Path) -> None:
    """A ring in one direction has half of the bandwidth of two."""
    found = score_sends(tmp_path, "# a ring\n" + csv_of(ring_sends(4, collective)), collective=collective)
    assert (found.data.outcome, found.algbw, found.gap) == ("right", Fraction(100, 3), Fraction(1, 2))
    assert found.times[0].microseconds == pytest.approx(2**20 / 33333.333)
    assert str(found) == f"a list of sends, {collective} on ring-4: data right, 33.33 GB/s, 50.00 % below the bound"


SWAP = [{"step": 0, "from": rank, "to": 1 - rank, "chunk": "0-1"} for rank in range(2)]


@pytest.mark.parametrize(
    ("collective", "rows", "hints"),
    [
        ("allreduce", [{**row, "op": "add"} for row in SWAP], {}),
        ("all_to_all", [{**row, "owner": rank, "target": 1 - rank} for rank, row in enumerate(SWAP)], {}),
        ("allgather", [{**row, "owner": rank} for rank, row in enumerate(SWAP)], {}),
        ("reduce_scatter", [{**row, "owner": 1 - rank} for rank, row in enumerate(SWAP)], {}),
        ("broadcast", SWAP[1:], {"root": 1}),
        ("reduce", SWAP[:1], {"root": 1}),
    ],
)
def test_every_collective_has_lists_of_sends(
    collective: str, rows: list[dict[str, object]], hints: dict[str, object], tmp_path: Path
) -> None:
    """Two ranks exchange their data in one step, at the bound."""
    found = score_sends(tmp_path, csv_of(rows), complete(2, bandwidth=25), collective=collective, **hints)
    assert (found.data.outcome, found.gap) == ("right", 0)


def test_a_sum_waits_for_all_of_its_parts(tmp_path: Path) -> None:
    """Rank 0 sends on what two steps have brought it."""
    text = "step,from,to,chunk,op\n0,1,0,0,add\n1,2,0,0,add\n2,0,1,0,copy\n2,0,2,0,copy\n"
    network = Topology.from_links([("0", "1", 25, 1), ("0", "2", 25, 7)], compute="012", bidirectional=True, name="V")
    found = score_sends(tmp_path, text, network, collective="allreduce", sizes=[1000])
    assert found.data.outcome == "right"
    # 40 ns on each link, and the latency of the slower one twice.
    assert found.times[0].microseconds == pytest.approx(14.08)


WRONG_LISTS = [
    ("allgather", ring_sends(4)[:-1], "rank 0 never gets chunk 0 of the shard of rank 1"),
    (
        "allgather",
        ring_sends(4)[4:],
        "in step 1 rank 0 sends chunks 0 to 0 of the shard of rank 3, but does not have them by then",
    ),
    (
        "reduce_scatter",
        ring_sends(4, "reduce_scatter")[1:],
        "rank 3 never adds chunk 0 of rank 0 to the shard of rank 3",
    ),
    (
        "allreduce",
        [{"step": 0, "from": rank, "to": 1, "chunk": 0, "op": "copy"} for rank in (0, 2)],
        "in step 0 rank 1 is sent two values of chunk 0 to keep",
    ),
]


@pytest.mark.parametrize(("collective", "rows", "reason"), WRONG_LISTS)
def test_wrong_lists_are_told(collective: str, rows: list[dict[str, object]], reason: str, tmp_path: Path) -> None:
    """The score has loads, but neither gap nor times."""
    found = score_sends(tmp_path, csv_of(rows), collective=collective)
    assert found.data.outcome == "wrong"
    assert reason in found.data.reason
    assert found.algbw is not None
    assert (found.gap, found.times) == (None, ())


REFUSED_LISTS = [
    ("step,from,to\n0,0,1\n", {}, "is no list of sends: its first line is not a header with step, from, to, chunk"),
    ("step,from,to,chunk,where\n0,0,1,0,1\n", {}, "column 'where' is not known"),
    ("step,from,to,chunk,owner\n", {}, "has no sends"),
    ("step,from,to,chunk,owner\n0,0,1,0\n", {}, "line 2 has 4 entries; expected 5"),
    ("step,from,to,chunk\n0,0,1,0\n", {}, "line 2 has no owner, which allgather needs"),
    ("step,from,to,chunk,owner,target\n0,0,1,0,0,1\n", {}, "line 2 has a target, which allgather does not have"),
    ("step,from,to,chunk,owner\n0,0,4,0,0\n", {}, "to of line 2 is '4'; expected a rank from 0 to 3"),
    ("step,from,to,chunk,owner\n0,1,1,0,0\n", {}, "line 2 is from rank 1 to itself"),
    ("step,from,to,chunk,owner\n-1,0,1,0,0\n", {}, "step of line 2 is '-1'"),
    ("step,from,to,chunk,owner\n0,0,1,3-1,0\n", {}, "chunk of line 2 is '3-1'"),
    ("step,from,to,chunk,owner,op\n0,0,1,0,0,add\n", {}, "op of line 2 is 'add'; expected copy in allgather"),
    ("step,from,to,chunk\n0,0,1,0\n", {"collective": "allreduce"}, "op of line 2 is None; expected copy or add"),
    ("step,from,to,chunk\n0,0,1,0\n", {"collective": None}, "does not say of which collective"),
    ("step,from,to,chunk\n0,0,1,0\n", {"collective": "broadcast"}, "does not say from or to which root"),
    ("step,from,to,chunk\n0,0,1,0\n", {"collective": "all_to_allv"}, "lists are not for all_to_allv"),
    ("step,from,to,chunk,owner\n0,0,1,0,0\n", {"root": 1}, "allgather has no root"),
]


@pytest.mark.parametrize(("text", "hints", "message"), REFUSED_LISTS)
def test_lists_that_say_nothing_are_refused(text: str, hints: dict[str, object], message: str, tmp_path: Path) -> None:
    """The message names the line and the column."""
    with pytest.raises(FileFormatError, match="sends") as refusal:
        score_sends(tmp_path, text, **{"collective": "allgather", **hints})
    assert message in str(refusal.value)


# Files of runtimes


def test_a_wrong_msccl_file_is_told(tmp_path: Path) -> None:
    """Two chunks are in each other's places."""
    path = exported(collopt.plan(RING, "allgather"), tmp_path, "msccl-xml")
    text = path.read_text(encoding="utf-8")
    first = text.index('type="r"')
    at = text.index('dstoff="', first)
    path.write_text(text[:at] + text[at:].replace('dstoff="0"', 'dstoff="1"', 1), encoding="utf-8")
    found = score(path, RING)
    assert found.data.outcome == "wrong"
    assert found.gap is None


DEADLOCK = '<algo name="both" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="0">\n'


def test_a_deadlock_is_told(tmp_path: Path) -> None:
    """Both ranks receive before they send."""
    steps = "".join(
        f'<step s="{number}" type="{kind}" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{place}" cnt="1" depid="-1" '
        'deps="-1" hasdep="0"/>\n'
        for number, (kind, place) in enumerate((("r", "{other}"), ("s", "{rank}"), ("cpy", "{rank}")))
    )
    gpus = "".join(
        f'<gpu id="{rank}" i_chunks="1" o_chunks="2" s_chunks="0">\n<tb id="0" send="{1 - rank}" recv="{1 - rank}" '
        f'chan="0">\n{steps.format(rank=rank, other=1 - rank)}</tb>\n</gpu>\n'
        for rank in range(2)
    )
    path = tmp_path / "deadlock.xml"
    path.write_text(f"{DEADLOCK}{gpus}</algo>\n", encoding="utf-8")
    found = score(path, complete(2, bandwidth=25))
    assert found.data.outcome == "wrong"
    assert "deadlocks" in found.data.reason
    assert (found.link_loads, found.algbw, found.shares, found.busiest_links) == (None, None, (), ())
    assert "for ever" in found.routes


def test_wrong_mscclpp_plans_are_told(tmp_path: Path) -> None:
    """Data lands in the wrong place, or all GPUs wait for data before they send any."""
    path = exported(collopt.plan(RING, "allgather"), tmp_path, "mscclpp-json")
    text = path.read_text(encoding="utf-8")
    document = json.loads(text)
    blocks = document["gpus"][0]["threadblocks"]
    flat = [each for block in blocks for outer in block["ops"] for each in (outer, *outer.get("ops", ()))]
    put = next(each for each in flat if each["name"] in ("put", "pws"))
    put["dst_buff"][0]["index"] ^= 1
    path.write_text(json.dumps(document), encoding="utf-8")
    found = score(path, RING)
    assert found.data.outcome == "wrong"
    assert found.algbw == Fraction(200, 3)
    document = json.loads(text)
    for gpu in document["gpus"]:
        for operation in (each for block in gpu["threadblocks"] for each in block["ops"] if each["name"] == "pipeline"):
            operation["ops"].sort(key=lambda each: each["name"] != "sem_acquire")
    path.write_text(json.dumps(document), encoding="utf-8")
    stuck = score(path, RING)
    assert stuck.data.outcome == "wrong"
    assert "deadlocks" in stuck.data.reason
    assert stuck.link_loads is None


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast"])
def test_switches_that_add_up_and_copy_have_the_loads_of_the_plan(collective: str, tmp_path: Path) -> None:
    """Each link carries a chunk once, and the switch sends copies back to their senders."""
    network = collopt.topologies.dgx_h100(boxes=1)
    root = 2 if collective == "broadcast" else None
    plan = collopt.plan(network, collective, root=root, planner="nvls" if root is None else "auto")
    found = score(exported(plan, tmp_path, "mscclpp-json"), network, sizes=["64M"], planner=plan.planner)
    assert list(found.shares) == plan_shares(plan)
    assert (found.algbw, found.gap, found.data.outcome) == (plan.algbw, plan.gap, "right")
    assert found.routes == "switches that add up or copy"
    assert found.times[0].plan_microseconds is not None
    assert found.times[0].microseconds == pytest.approx(found.times[0].plan_microseconds, rel=0.02)
    assert score(exported(plan, tmp_path, "plan"), network, sizes=[]).shares == found.shares


# Traces


def test_traces_that_move_too_little_are_wrong(tmp_path: Path) -> None:
    """Nothing says which bytes they are, but there are too few; half of the ring's sends are missing."""
    path = exported(collopt.plan(RING, "allgather"), tmp_path, "chakra-et")
    right = score(path, RING, sizes=[])
    assert right.data.outcome == "not checked"
    assert "which" in right.data.reason
    found = score(path, RING, num_bytes=2**20)
    assert found.data.outcome == "wrong"
    assert found.data.reason.endswith("bytes are sent in all; allgather of 1048576 bytes on 4 ranks needs 3145728")
    assert score(f"{path}.2.et", RING, sizes=[]).shares == right.shares


@pytest.mark.parametrize("collective", ["allreduce", "all_to_all", "broadcast", "reduce"])
def test_every_rank_has_to_take_part(collective: str, tmp_path: Path) -> None:
    """Bytes that a rank needs, or that others need of it, cannot be fewer in any schedule."""
    root = {"root": 1} if collective in ("broadcast", "reduce") else {}
    plan = collopt.plan(RING, collective, **root)
    path = exported(plan, tmp_path, "chakra-et")
    right = score(path, RING, sizes=[], **root)
    assert right.data.outcome == "not checked"
    found = score(path, RING, num_bytes=2**20, **root)
    assert found.data.outcome == "wrong"
    assert " takes in " in found.data.reason or " gives away " in found.data.reason


def test_traces_of_unequal_shards_are_not_wrong(tmp_path: Path) -> None:
    """Their bound is another than that for equal ones, which traces cannot say."""
    plan = collopt.plan(RING, "allgather", weights=[1, 0, 0, 0])
    path = tmp_path / "t"
    plan.export("chakra-et", path, size=2**20)
    found = score(path, RING, sizes=["1M"])
    assert found.algbw == plan.algbw
    assert found.data.outcome == "not checked"
    wide = collopt.plan(RING, "reduce_scatter", weights=[1, 1, 0, 0])
    wide.export("chakra-et", path, size=2**20)
    assert score(path, RING, sizes=[]).data.outcome == "not checked"


def test_traces_that_beat_the_bound_miss_data(tmp_path: Path) -> None:
    """Ranks of a path send enough bytes, but not over the link that all data has to cross."""
    path_of_4 = Topology.from_links(
        [("a", "b", 100), ("b", "c", 1), ("c", "d", 100)], compute="abcd", bidirectional=True, name="path"
    )
    for rank in range(4):
        peer = rank ^ 1
        ends = {NodeKind.COMM_SEND: "comm_dst", NodeKind.COMM_RECV: "comm_src"}
        nodes = tuple(
            TraceNode(
                number,
                "",
                kind,
                attributes=(
                    Attribute("comm_size", "int64", 4000),
                    Attribute(name, "int32", peer),
                    Attribute("comm_tag", "int32", 0),
                ),
            )
            for number, (kind, name) in enumerate(ends.items())
        )
        write_trace(collopt.runtime.Trace(nodes), tmp_path / f"t.{rank}.et")
    found = score(tmp_path / "t", path_of_4, num_bytes=1000, collective="allreduce")
    assert found.data.outcome == "wrong"
    assert "would beat the bound" in found.data.reason
    shards = score(tmp_path / "t", path_of_4, num_bytes=1000, collective="allgather", sizes=["1M"])
    assert (shards.data.outcome, shards.bound, shards.gap) == ("not checked", None, None)
    assert "shards differ in size, or data is missing" in shards.remark


def test_sends_without_receives_are_told(tmp_path: Path) -> None:
    """Nodes that wait for each other are found too."""
    path = exported(collopt.plan(RING, "allgather"), tmp_path, "chakra-et")
    file = tmp_path / "chakra-et.0.et"
    trace = read_trace(file)
    kept = tuple(node for node in trace.nodes if node.kind != NodeKind.COMM_RECV)
    write_trace(replace(trace, nodes=tuple(replace(node, waits=()) for node in kept)), file)
    found = score(path, RING)
    assert found.data.outcome == "wrong"
    assert "expected equally many" in found.data.reason
    circle = tuple(replace(node, controls=(trace.nodes[-1].number,)) for node in trace.nodes)
    write_trace(replace(trace, nodes=circle), file)
    assert "wait for each other" in score(path, RING).data.reason


def test_traces_that_do_not_say_what_they_are_need_hints(tmp_path: Path) -> None:
    """Bytes in all are needed for shares; without the collective there is no bound."""
    plan = collopt.plan(RING, "allgather")
    for rank, trace in enumerate(plan_traces(plan, "1M")):
        write_trace(replace(trace, attributes=()), tmp_path / f"t.{rank}.et")
    with pytest.raises(UnsupportedError, match="how many bytes in all"):
        score(tmp_path / "t", RING)
    found = score(tmp_path / "t", RING, num_bytes="1M", sizes=["1M"])
    assert (found.algbw, found.bound, found.gap, found.collective) == (plan.algbw, None, None, None)
    assert "there is no bound" in found.remark
    assert found.times[0].plan_microseconds is None
    assert score(tmp_path / "t", RING, num_bytes="1M", collective="allgather").gap == 0
    with pytest.raises(UnsupportedError, match="do not say which root"):
        score(tmp_path / "t", RING, num_bytes="1M", collective="broadcast")
    with pytest.raises(FileFormatError, match=r"t\.4\.et does not exist"):
        score(tmp_path / "t", complete(5))
    with pytest.raises(FileFormatError, match=r"t\.3\.et is there, but the network has 3 ranks"):
        score(tmp_path / "t", complete(3))


# Requests


def test_links_in_a_table(tmp_path: Path) -> None:
    """One row per link, the busiest at 1."""
    found = score(exported(collopt.plan(RING, "allgather", planner="blink"), tmp_path, "msccl-xml"), RING, sizes=[])
    frame = found.to_frame()
    assert len(frame) == len(RING.links)
    assert frame["busy"].max() == 1
    assert frame["share"].tolist() == pytest.approx([float(share) for share in found.shares])
    assert {place for place, busy in enumerate(frame["busy"]) if busy == 1} == set(found.busiest_links)
    assert repr(found).startswith("<Score MSCCL XML, allgather on ring-4: data right, ")


def test_the_ring_of_another_project() -> None:
    """A file of msccl-tools has an allreduce for calls in place."""
    found = score(sample("msccl_ring_allreduce_8npus.xml"), ring(8, bandwidth=25), sizes=["1M"])
    assert found.data.outcome == "right", found.data
    assert "in place" in found.data.reason
    assert found.gap == Fraction(1, 2)


def test_files_that_are_not_the_schedule_of_this_network_are_refused(tmp_path: Path) -> None:
    """The file or the argument is named."""
    plan = collopt.plan(RING, "allgather")
    xml, saved = exported(plan, tmp_path, "msccl-xml"), exported(plan, tmp_path, "plan")
    collopt.topologies.write_topology(RING, tmp_path / "net.json")
    (tmp_path / "bad.xml").write_text("<algo nchannels='1'>")
    (tmp_path / "far.csv").write_text("step,from,to,owner,chunk\n0,0,2,0,0\n")
    node = TraceNode(0, "all", NodeKind.COMM_COLL, attributes=(Attribute("comm_size", "int64", 8),))
    for rank in range(4):
        write_trace(collopt.runtime.Trace((node,)), tmp_path / f"t.{rank}.et")
    box = collopt.topologies.dgx_h100(boxes=1)
    nvls = tmp_path / "nvls.json"
    collopt.plan(box, "allreduce").export("mscclpp-json", nvls)
    cases: list[tuple[Path, object, dict[str, object], type[ColloptError], str]] = [
        (tmp_path / "net.json", RING, {}, FileFormatError, "is a topology file, not a schedule"),
        (tmp_path / "nothing", RING, {}, FileFormatError, "does not exist"),
        (tmp_path / "bad.xml", RING, {}, FileFormatError, r"bad\.xml"),
        (
            tmp_path / "far.csv",
            RING,
            {"collective": "allgather"},
            UnsupportedError,
            "every path there in ring-4 passes",
        ),
        (tmp_path / "t", RING, {"num_bytes": 8}, UnsupportedError, "is of kind COMM_COLL"),
        (nvls, box.without_abilities(), {}, UnsupportedError, "a switch channel of 8 ranks, and 0 switches of"),
        (xml, RING, {"collective": "allreduce"}, UnsupportedError, "is of allgather, not allreduce"),
        (xml, RING, {"num_bytes": "1M"}, UnsupportedError, "num_bytes is 1048576, but MSCCL XML says so itself"),
        (xml, TORUS, {}, UnsupportedError, "is for 4 ranks, but torus-3x3 has 9"),
        (saved, TORUS, {}, TopologyError, "."),
        (xml, 4, {}, UnsupportedError, "the topology is 4"),
        (xml, RING, {"sizes": "1M"}, UnsupportedError, "the sizes are '1M'"),
        (xml, RING, {"sizes": [0]}, ColloptError, "0"),
        (xml, RING, {"slices": 0}, UnsupportedError, "slices is 0"),
        (xml, RING, {"slices": 2**40}, ColloptError, "events; expected at most"),
        (xml, RING, {"planner": "nobody"}, ColloptError, "there is no planner 'nobody'"),
        (xml, RING, {"collective": "all"}, ColloptError, "there is no collective 'all'"),
    ]
    for path, network, options, error, message in cases:
        with pytest.raises(error, match=message):
            score(path, network, **options)  # type: ignore[arg-type]
    assert score(xml, RING, collective="allgather", sizes=[]).gap == 0
