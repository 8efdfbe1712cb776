"""Execution traces: what is written, read, made of plans, and run."""

import gzip
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest
from wire_format import bytes_field, packed_field, varint, varint_field

import collopt
from collopt.errors import FileFormatError, ProgramError, UnsupportedError
from collopt.runtime import (
    Attribute,
    NodeKind,
    Trace,
    TraceNode,
    plan_traces,
    read_trace,
    replay_traces,
    simulate,
    write_trace,
)
from collopt.runtime.simulation import chakra_trace as reader
from collopt.topologies import complete, dgx_a100, mi250, ring, torus
from sample_files import sample

RING_TRACE, WORKLOAD = "chakra_ring_allreduce_8npus.0.et", "chakra_workload_all_gather_4npus_1MB.0.et"
GIB = Fraction(2**30, 10**9)


def message(
    kind: NodeKind, number: int, peer: int, size: int = 8, tag: int = 0, waits: tuple[int, ...] = ()
) -> TraceNode:
    """One send or receive."""
    end = "comm_dst" if kind == NodeKind.COMM_SEND else "comm_src"
    values = (Attribute("comm_size", "int64", size), Attribute(end, "int32", peer), Attribute("comm_tag", "int32", tag))
    return TraceNode(number, "", kind, waits, attributes=values)


@pytest.mark.parametrize("name", [RING_TRACE, WORKLOAD])
def test_files_of_astra_sim_are_written_as_they_were_read(name: str, tmp_path: Path) -> None:
    """Byte for byte, so nothing is lost or added."""
    path = sample(name)
    write_trace(read_trace(path), tmp_path / "again.et")
    assert (tmp_path / "again.et").read_bytes() == path.read_bytes()


def test_a_message_of_a_rank_to_itself_takes_no_time() -> None:
    """It passes no link."""
    nodes = message(NodeKind.COMM_SEND, 0, 0), message(NodeKind.COMM_RECV, 1, 0)
    assert replay_traces([Trace(nodes), Trace(())], ring(2)) == (0, 1)


def ring_trace() -> Trace:
    """What ASTRA-sim's example of a ring allreduce does on rank 0: 1 MiB, 8 ranks, 7 µs per addition."""
    nodes: list[TraceNode] = []

    def add(node: TraceNode) -> None:
        nodes.append(replace(node, number=len(nodes), waits=(len(nodes) - 1,) if nodes else ()))

    for step in range(14):
        add(message(NodeKind.COMM_SEND, 0, 1, 2**17))
        add(message(NodeKind.COMM_RECV, 0, 7, 2**17))
        if step < 7:
            add(TraceNode(0, "", NodeKind.COMP, duration=7))
    return Trace(tuple(nodes))


def rotated(trace: Trace, shift: int) -> Trace:
    """The same of another rank of eight."""

    def moved(attribute: Attribute) -> Attribute:
        names_rank = attribute.name in ("comm_src", "comm_dst")
        return attribute._replace(value=(int(attribute.value) + shift) % 8) if names_rank else attribute

    nodes = [replace(node, attributes=tuple(map(moved, node.attributes))) for node in trace.nodes]
    return replace(trace, nodes=tuple(nodes))


def test_the_ring_allreduce_of_astra_sim_takes_as_long_as_there() -> None:
    """90,174 cycles: 14 messages of 2941 ns, one after the other, and 7 additions of 7 µs between them."""
    traces = [rotated(ring_trace(), rank) for rank in range(8)]
    assert replay_traces(traces, ring(8, bandwidth=50 * GIB, latency="0.5")) == (90_174, 8 * 14)


def test_the_file_of_astra_sim_holds_that_ring_allreduce() -> None:
    """Node by node, but for names, and for attributes that make no difference; so it takes as long."""
    found, expected = read_trace(sample(RING_TRACE)), ring_trace()
    for node, made in zip(found.nodes, expected.nodes, strict=True):
        assert (node.number, node.kind, node.waits, node.duration) == (
            made.number,
            made.kind,
            made.waits,
            made.duration,
        )
        assert set(node.attributes) >= set(made.attributes)
    traces = [rotated(found, rank) for rank in range(8)]
    assert replay_traces(traces, ring(8, bandwidth=50 * GIB, latency="0.5")).nanoseconds == 90_174


def test_a_ring_allreduce_made_here_takes_as_long_as_that_of_astra_sim(tmp_path: Path) -> None:
    """The same ring, planned, written and read here, all data one way round and 7 µs for each addition."""
    topology = ring(8, bandwidth=50 * GIB, latency="0.5", bidirectional=False)
    plan = collopt.plan(topology, "allreduce", planner="ring")
    plan.export("chakra-et", tmp_path / "ring", size=2**20, reduce_us=7)
    traces = [read_trace(tmp_path / f"ring.{rank}.et") for rank in range(8)]
    assert replay_traces(traces, topology).nanoseconds == 90_174


@pytest.mark.parametrize(
    "collective", ["allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all"]
)
def test_traces_of_plans_send_all_the_data_and_finish(collective: str) -> None:
    """Each rank sends and receives as many bytes as the plan's transfers have, in messages that find each other."""
    topology = mi250(boxes=1)
    plan = collopt.plan(topology, collective, **({"root": 3} if collective in {"broadcast", "reduce"} else {}))
    traces = plan_traces(plan, 16 * 9 * 2**15, slices=2)
    run = simulate(plan, 16 * 9 * 2**15, 2)
    crossing = run.transfers.senders != run.transfers.receivers
    sent = [node.value("comm_size") for trace in traces for node in trace.nodes if node.kind == NodeKind.COMM_SEND]
    expected = run.transfers.amounts[crossing].sum() * run.transfers.unit * run.num_bytes
    assert sum(sent) == expected
    assert replay_traces(traces, topology).messages == 2 * crossing.sum()


def four_by_four() -> collopt.Topology:
    """The torus of the comparisons with ASTRA-sim."""
    return torus(4, 4, bandwidth=50 * GIB, latency="0.5")


@pytest.mark.parametrize("order", ["control", "data"])
def test_steps_take_as_long_as_in_astra_sim(order: Literal["control", "data"]) -> None:
    """589,940 cycles in ASTRA-sim (518bd51), but 745,189 without the order of steps."""
    plan = collopt.plan(four_by_four(), "allreduce", planner="bfb")
    traces = plan_traces(plan, "64M", order=order)
    assert replay_traces(traces, four_by_four()).nanoseconds == 589_940
    free = [Trace(tuple(replace(node, controls=()) for node in trace.nodes)) for trace in traces]
    assert replay_traces(free, four_by_four()).nanoseconds == (745_189 if order == "control" else 589_940)


@pytest.mark.parametrize(("collective", "slices", "cycles"), [
    ("allgather", 1, 1_251_000), ("allgather", 16, 1_104_445), ("all_to_all", 1, 1_251_000),
])  # fmt: skip
def test_rounds_take_as_long_as_in_astra_sim(collective: str, slices: int, cycles: int) -> None:
    """Of 64 MiB on a switch, in ASTRA-sim (518bd51)."""
    links = [(f"npu{rank}", "switch", 50 * GIB, "0.5") for rank in range(8)]
    ranks = [link[0] for link in links]
    switch = collopt.Topology.from_links(links, compute=ranks, switches=["switch"], bidirectional=True)
    traces = plan_traces(collopt.plan(switch, collective), "64M", slices=slices)
    assert replay_traces(traces, switch).nanoseconds == cycles


@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_simulations_with_switches_that_store_agree_with_replays(collective: str, slices: int) -> None:
    """On two boxes of four with rails; replays took as many cycles as ASTRA-sim (518bd51) in 77 of 77 cases."""
    inside = [(f"npu{rank}", f"box{rank // 4}", 300, "0.5") for rank in range(8)]
    rails = [(f"npu{rank}", f"rail{rank % 4}", 25, 1) for rank in range(8)]
    switches = [*(f"box{box}" for box in range(2)), *(f"rail{rail}" for rail in range(4))]
    boxes = collopt.Topology.from_links(
        [*inside, *rails], compute=[f"npu{rank}" for rank in range(8)], switches=switches, bidirectional=True
    )
    plan = collopt.plan(boxes, collective, planner="forestcoll")
    run = simulate(plan, "16M", slices, forwarding="store-and-forward", service="arrival")
    replay = replay_traces(plan_traces(plan, "16M", slices=slices), boxes)
    assert replay.microseconds == pytest.approx(run.microseconds, rel=2e-3)


@pytest.mark.parametrize("kind", ["switch", "ring"])
@pytest.mark.parametrize("collective", ["allgather", "all_to_all"])
def test_simulations_in_whole_nanoseconds_agree_with_replays(kind: str, collective: str) -> None:
    """Messages take 2 ns instead of 2.8; on a switch, ASTRA-sim (518bd51) takes 248 ns, and exact simulations 268."""
    ranks = [f"npu{rank}" for rank in range(24)]
    ends = (
        [(rank, "switch") for rank in ranks]
        if kind == "switch"
        else list(zip(ranks, ranks[1:] + ranks[:1], strict=True))
    )
    links = [(*pair, 900 * GIB, "0.1") for pair in ends]
    switches = ["switch"] if kind == "switch" else []
    network = collopt.Topology.from_links(links, compute=ranks, switches=switches, bidirectional=True)
    plan = collopt.plan(network, collective)
    run = simulate(plan, "64K", 1, forwarding="store-and-forward", service="arrival", clock="ns")
    assert replay_traces(plan_traces(plan, "64K"), network).microseconds == run.microseconds
    if kind == "switch":
        assert run.time * 1000 == 248


@pytest.mark.parametrize("slices", [4, 16])
@pytest.mark.parametrize("rates", [(50, 50, 50, 50, 50, 20), (50, 50, 25, 25), (100, 50, 50, 20, 20), (40, 30, 20)])
def test_messages_that_come_to_a_switch_at_one_time_are_served_as_in_replays(
    rates: tuple[int, ...], slices: int
) -> None:
    """On stars with slow links, the one that left first goes first."""
    names = [f"r{rank}" for rank in range(len(rates))]
    links = [(name, "hub", rate, 1) for name, rate in zip(names, rates, strict=True)]
    star = collopt.Topology.from_links(links, compute=names, switches=["hub"], bidirectional=True)
    plan = collopt.plan(star, "allreduce")
    run = simulate(plan, "32M", slices, forwarding="store-and-forward", service="arrival", clock="ns")
    replay = replay_traces(plan_traces(plan, "32M", slices=slices), star)
    assert run.microseconds == pytest.approx(replay.microseconds, rel=0.01)


def test_ranks_start_one_after_the_other_as_in_replays() -> None:
    """Which decides what a switch serves first of what comes at one time from two ranks."""
    links = [(rank, f"box{number // 3}", 200, 1) for number, rank in enumerate("abcd")]
    links += [(rank, "core", 12, 1) for rank in "abcd"]
    network = collopt.Topology.from_links(links, compute="abcd", switches=["box0", "box1", "core"], bidirectional=True)
    plan = collopt.plan(network, "allgather", planner="pat")
    run = simulate(plan, "64K", forwarding="store-and-forward", service="arrival", clock="ns")
    assert run.time * 1000 == replay_traces(plan_traces(plan, "64K"), network).nanoseconds


@pytest.mark.parametrize("is_direct", [False, True])
def test_the_export_says_that_others_choose_other_paths(caplog: pytest.LogCaptureFixture, is_direct: bool) -> None:
    """Of two spines, replays take the first only; on a ring of three, each message has one path."""
    leaves = [(rank, f"leaf{rank in 'cd'}", 50) for rank in "abcd"]
    spines = [(f"leaf{side}", f"spine{number}", 50) for side in (False, True) for number in range(2)]
    switches = ["leafFalse", "leafTrue", "spine0", "spine1"]
    network = (
        ring(3)
        if is_direct
        else collopt.Topology.from_links([*leaves, *spines], compute="abcd", switches=switches, bidirectional=True)
    )
    plan_traces(collopt.plan(network, "allgather"), "1M")
    assert ("do not take the path" in caplog.text) is not is_direct


def test_sends_over_a_link_start_in_turn() -> None:
    """Each turn comes after the turn before, and after what the send before it waits for; the first needs no turn."""
    row = collopt.Topology.from_links([("a", "b", 25), ("b", "c", 25)], compute="abc", bidirectional=True)
    plan = collopt.plan(row, "broadcast", root=0)
    nodes = plan_traces(plan, "1K", slices=3)[1].nodes
    receives, sends, turns = (
        [node.number for node in nodes if node.kind == kind]
        for kind in (NodeKind.COMM_RECV, NodeKind.COMM_SEND, NodeKind.COMP)
    )
    by_id = {node.number: node for node in nodes}
    assert [by_id[send].waits for send in sends] == [(receive,) for receive in receives]
    assert [by_id[send].controls for send in sends] == [(), (turns[0],), (turns[1],)]
    assert [by_id[turn].controls for turn in turns] == [(receives[0],), (receives[1], turns[0])]
    assert {(by_id[turn].waits, by_id[turn].duration) for turn in turns} == {((), 0)}


@pytest.mark.parametrize("collective", ["allgather", "allreduce", "all_to_all"])
def test_chunk_counts_say_the_same_as_bytes(collective: str) -> None:
    """Newer versions of ASTRA-sim work bytes out from them, of an allgather from those of one rank."""
    plan = collopt.plan(dgx_a100(boxes=1), collective)
    nodes = [node for trace in plan_traces(plan, 8 * 2**20, slices=4) for node in trace.nodes]
    told = 2**20 if collective == "allgather" else 8 * 2**20
    for node in nodes:
        if node.kind == NodeKind.COMP:
            continue
        total, count = node.value("total_chunk_cnt"), node.value("msg_chunk_cnt")
        assert total > 0
        assert total % 8 == told % total == 0
        chunk = told // (total // 8) if collective == "allgather" else told // total
        assert node.value("comm_size") == chunk * count
        assert 0 <= node.value("msg_chunk_idx") <= total - count


def test_chunk_counts_are_left_out_where_one_rank_has_a_part_of_a_chunk() -> None:
    """Newer versions of ASTRA-sim would take a remainder of the bytes of one rank for one of all."""
    plan = collopt.plan(ring(4), "allgather", planner="ring")
    whole, odd = (plan_traces(plan, size)[0].nodes[0].value("total_chunk_cnt") for size in (4 * 8, 8))
    assert (whole, odd) == (8, -1)


def test_bytes_that_chunks_do_not_divide_are_cut_alike_at_both_ends() -> None:
    """Sizes differ by a byte, chunk counts are -1, and sends still find their receives."""
    topology = ring(3)
    plan = collopt.plan(topology, "allgather")
    traces = plan_traces(plan, 1000, slices=7)
    nodes = [node for trace in traces for node in trace.nodes if node.kind != NodeKind.COMP]
    assert {node.value("total_chunk_cnt") for node in nodes} == {-1}
    assert len({node.value("comm_size") for node in nodes}) == 2
    assert sum(node.value("comm_size") for node in nodes if node.kind == NodeKind.COMM_SEND) == 2000
    assert replay_traces(traces, topology).messages == 42


def test_sums_are_sent_after_their_additions_and_turn_at_the_root() -> None:
    """In a row of three with the root in the middle, its sends wait for both additions."""
    pairs = [("a", "b", 1), ("b", "c", 1)]
    topology = collopt.Topology.from_links(pairs, compute="abc", bidirectional=True)
    star = collopt.schedules.Forest.from_paths(3, 1, [(1, 1, [(1, 0), (1, 2)])], root_weights=[0, 1, 0])
    both = collopt.schedules.Allreduce(replace(star, direction="reduce"), star)
    middle = plan_traces(collopt.planners.plan_of_schedule(topology, "allreduce", both), "1K", reduce_us=2)[1].nodes
    added = [node.number for node in middle if node.kind == NodeKind.COMP]
    sends = [node for node in middle if node.kind == NodeKind.COMM_SEND]
    assert len(added) == len(sends) == 2
    assert all(node.waits == tuple(added) for node in sends)
    assert {node.duration for node in middle if node.kind == NodeKind.COMP} == {2}


def test_every_kind_of_value_comes_back(tmp_path: Path) -> None:
    """Numbers at their limits, text, bytes, and what 0 and False are."""
    attributes = (
        Attribute("a", "int64", -(2**63)),
        Attribute("b", "uint64", 2**64 - 1),
        Attribute("c", "int32", 0),
        Attribute("d", "bool", False),
        Attribute("e", "string", "µ"),
        Attribute("f", "bytes", b"\0\xff"),
        Attribute("g", "double", 0.1),
        Attribute("h", "float", 0.5),
    )
    nodes = (
        TraceNode(0, "first", NodeKind.METADATA, attributes=attributes),
        TraceNode(300, "", NodeKind.COMP, (0,), (0,), 2**40),
    )
    trace = Trace(nodes, "", attributes)
    write_trace(trace, tmp_path / "one.et")
    assert read_trace(tmp_path / "one.et") == trace
    packed = gzip.compress((tmp_path / "one.et").read_bytes())
    (tmp_path / "two.et").write_bytes(packed)
    assert read_trace(tmp_path / "two.et") == trace
    (tmp_path / "two.et").write_bytes(packed[:-10])
    with pytest.raises(FileFormatError, match="is not an execution trace: it is cut short"):
        read_trace(tmp_path / "two.et")


def test_lists_and_unknown_fields_are_left_out(tmp_path: Path) -> None:
    """Ids may be packed or not, and what later schemas add does not matter."""
    listed = bytes_field(10, bytes_field(1, b"list") + bytes_field(10, bytes_field(1, b"\1\2")))
    node = varint_field(1, 5) + varint_field(3, 4) + listed + varint_field(99, 1) + bytes_field(8, b"")
    after = varint_field(1, 6) + varint_field(5, 5) + packed_field(4, [5, 5])
    (tmp_path / "a.et").write_bytes(b"".join(varint(len(part)) + part for part in (b"", node, after)))
    assert read_trace(tmp_path / "a.et").nodes == (TraceNode(5, "", 4), TraceNode(6, "", 0, (5,), (5, 5)))


def test_every_cut_and_every_changed_byte_is_read_or_refused(tmp_path: Path) -> None:
    """No file makes the reader raise anything but its own error."""
    write_trace(plan_traces(collopt.plan(ring(3), "broadcast", root=0), "1K")[0], tmp_path / "whole.et")
    whole = (tmp_path / "whole.et").read_bytes()
    broken = [whole[:end] for end in range(len(whole))]
    broken += [whole[:place] + bytes([value]) + whole[place + 1 :] for place in range(len(whole)) for value in (0, 255)]
    refused = 0
    for data in broken:
        (tmp_path / "broken.et").write_bytes(data)
        try:
            read_trace(tmp_path / "broken.et")
        except FileFormatError:
            refused += 1
    assert refused > len(broken) / 2


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((TraceNode(1, "", 4), TraceNode(1, "", 4)), "node 1 is there twice; expected ids of their own"),
        ((TraceNode(1, "", 4, (2,)),), "node 1 waits for node 2, which does not exist"),
    ],
)
def test_refuses_ids_that_make_no_sense(nodes: tuple[TraceNode, ...], message: str, tmp_path: Path) -> None:
    """Twice the same, or of nothing."""
    write_trace(Trace(nodes), tmp_path / "a.et")
    with pytest.raises(FileFormatError, match=message):
        read_trace(tmp_path / "a.et")


def test_messages_for_the_same_link_take_turns() -> None:
    """Two messages of 25 kB, 1 µs each, and of a computation beside them the longer."""
    topology = complete(2, bandwidth=25, latency="0.5")
    sends = [message(NodeKind.COMM_SEND, number, 1, 25_000, number) for number in range(2)]
    receives = [message(NodeKind.COMM_RECV, number, 0, 25_000, number) for number in range(2)]
    assert replay_traces([Trace(tuple(sends)), Trace(tuple(receives))], topology).nanoseconds == 2500
    beside = (*sends, TraceNode(2, "", NodeKind.COMP, duration=9), TraceNode(3, "", NodeKind.COMP, (2,)))
    assert replay_traces([Trace(beside), Trace(tuple(receives))], topology).nanoseconds == 9001


def test_links_serve_messages_as_they_come() -> None:
    """As ASTRA-sim's event queue would: the message of rank 1 comes when the second of rank 0 does, but left earlier.

    Links take 1 µs for 25 kB, and 0.1 µs more. At 1.1 µs the first message of rank 0 is in the switch, and at 2.1 µs,
    when it left it, both others.  That of rank 1 takes the port until 4.1 µs, and rank 2 has it at 4.2 µs and answers
    with 100 kB.
    """
    star = collopt.Topology.from_links(
        [(end, "s", 25, "0.1") for end in "abc"], compute="abc", switches="s", bidirectional=True
    )
    send, receive = NodeKind.COMM_SEND, NodeKind.COMM_RECV
    traces = [
        Trace((message(send, 0, 2, 25_000), message(send, 1, 2, 25_000, tag=1))),
        Trace((message(send, 0, 2, 50_000), message(receive, 1, 2, 100_000))),
        Trace(
            (
                message(receive, 0, 0, 25_000),
                message(receive, 1, 0, 25_000, tag=1),
                message(receive, 2, 1, 50_000),
                message(send, 3, 1, 100_000, waits=(2,)),
            )
        ),
    ]
    assert replay_traces(traces, star) == (4200 + 2 * 4100, 4)


def test_receives_may_start_after_their_message_came() -> None:
    """The message comes after 1 µs, the receive starts after 3 µs, and what waits for both lasts 1 µs."""
    pair = complete(2, bandwidth=25)
    busy = TraceNode(0, "", NodeKind.COMP, duration=3)
    late = message(NodeKind.COMM_RECV, 1, 0, 25_000, waits=(0,))
    traces = [
        Trace((message(NodeKind.COMM_SEND, 0, 1, 25_000),)),
        Trace((busy, late, TraceNode(2, "", NodeKind.COMP, (1,), duration=1))),
    ]
    assert replay_traces(traces, pair).nanoseconds == 4000


def test_latency_and_transfer_are_rounded_down_together() -> None:
    """0.7 ns and 1000.4 ns make 1001."""
    topology = complete(2, bandwidth=25, latency=Fraction(7, 10_000))
    traces = [Trace((message(NodeKind.COMM_SEND, 0, 1, 25_010),)), Trace((message(NodeKind.COMM_RECV, 0, 0, 25_010),))]
    assert replay_traces(traces, topology).nanoseconds == 1001


@pytest.mark.parametrize(
    ("given", "other", "error", "message_text"),
    [
        ((), None, UnsupportedError, "there are 1 traces; expected one for each of 2 ranks"),
        ((TraceNode(0, "", 7),), (), UnsupportedError, "node 0 of rank 0 is of kind COMM_COLL; expected sends"),
        ((TraceNode(0, "", 44),), (), UnsupportedError, "is of kind 44"),
        ((message(NodeKind.COMM_SEND, 0, 1),), (), ProgramError, "rank 0 sends 1 messages of 8 bytes .* receives 0"),
        ((message(NodeKind.COMM_SEND, 0, 2),), (), ProgramError, "has comm_dst 2; expected a whole number below 2"),
        ((TraceNode(0, "", 5),), (), ProgramError, "has comm_dst None"),
        (
            (message(NodeKind.COMM_RECV, 0, 1), message(NodeKind.COMM_SEND, 1, 1, waits=(0,))),
            (message(NodeKind.COMM_RECV, 0, 0), message(NodeKind.COMM_SEND, 1, 0, waits=(0,))),
            ProgramError,
            "4 nodes never start, because they wait in a cycle",
        ),
    ],
)
def test_refuses_traces_that_cannot_run(
    given: tuple[TraceNode, ...], other: tuple[TraceNode, ...] | None, error: type[Exception], message_text: str
) -> None:
    """With the rank, the node and what it has."""
    traces = [Trace(given)] if other is None else [Trace(given), Trace(other)]
    with pytest.raises(error, match=message_text):
        replay_traces(traces, ring(2))


@pytest.mark.parametrize(
    ("options", "message_text"),
    [
        ({"size": "1K", "slices": 0}, "slices is 0"),
        ({"size": "1K", "reduce_us": -1}, "reduce_us is -1; expected a whole number of at least 0"),
        (
            {"size": 5, "slices": 2},
            "5 bytes leave some messages empty; expected at least 16 bytes for 2 slices of each",
        ),
        ({"size": "1K", "slices": 2**22}, "are more than 4194304 messages"),
    ],
)
def test_refuses_plans_cut_too_finely(options: dict[str, object], message_text: str, tmp_path: Path) -> None:
    """And writes no file."""
    with pytest.raises(UnsupportedError, match=message_text):
        collopt.plan(ring(4), "allgather").export("chakra-et", tmp_path / "a", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [".", "..", "/", "a/..", Path()])
def test_refuses_names_that_would_make_hidden_files(
    path: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of files begin with what was given, so it has to be more than a folder."""
    (tmp_path / "here" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UnsupportedError, match="which names no file"):
        collopt.plan(ring(4), "allgather").export("chakra-et", path, size="1M")
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "here", tmp_path / "here" / "a"]


def test_a_packed_file_cannot_claim_to_hold_any_number_of_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kilobyte of gzip holds a million empty messages, of which the second is refused, or one as large."""
    path = tmp_path / "a.et"
    write_trace(Trace((TraceNode(1, "", 4), TraceNode(2, "", 4))), path)
    monkeypatch.setattr(reader, "MAX_NODES", 1)
    with pytest.raises(FileFormatError, match="it has more than 1 nodes"):
        read_trace(path)
    monkeypatch.undo()
    for data, words in (
        (bytes(1000), "node 0 is there twice"),
        (bytes(10**6), f"or has more than {reader.FREE_BYTES} bytes once unpacked"),
        (b"\0" + varint(reader.MAX_MESSAGE + 1), f"it has a message of {reader.MAX_MESSAGE + 1} bytes"),
    ):
        path.write_bytes(gzip.compress(data))
        with pytest.raises(FileFormatError, match=words):
            read_trace(path)
    monkeypatch.setattr(reader, "MAX_BYTES", 100)
    for data, words in (
        (gzip.compress(bytes(1000)), "or has more than 100 bytes once unpacked"),
        (bytes(101), "bytes"),
    ):
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=words):
            read_trace(path)


def test_a_trace_is_written_as_the_format_has_it(tmp_path: Path) -> None:
    """Fields by number, lists packed, 0 left out but for values of attributes, negative numbers as 64 bits."""
    values = (0, 127, 128, 2**63 - 1, -1, -(2**63))
    node = TraceNode(3, "n", NodeKind.COMP, (1, 300), (2,), 5, tuple(Attribute("v", "int64", each) for each in values))
    attributes = b"".join(bytes_field(10, bytes_field(1, b"v") + varint_field(9, each)) for each in values)
    message = varint_field(1, 3) + bytes_field(2, b"n") + varint_field(3, 4) + packed_field(4, [2])
    message += packed_field(5, [1, 300]) + varint_field(7, 5) + attributes
    write_trace(Trace((node,), ""), tmp_path / "a.et")
    assert (tmp_path / "a.et").read_bytes() == b"\0" + varint(len(message)) + message
    with pytest.raises(UnsupportedError, match="attribute 'v' is 2147483648; expected a value of int32"):
        write_trace(Trace((), "", (Attribute("v", "int32", 2**31),)), tmp_path / "b.et")


def test_the_files_of_all_ranks_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    """Traces of two plans side by side would wait for each other."""
    plan = collopt.plan(ring(4, bandwidth=25), "allgather")
    plan.export("chakra-et", tmp_path / "ag", size="1K")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == [f"ag.{rank}.et" for rank in range(4)]
    (tmp_path / "ag.2.et").unlink()
    (tmp_path / "ag.2.et").mkdir()
    with pytest.raises(OSError, match=r"not a regular file"):
        plan.export("chakra-et", tmp_path / "ag", size="1M")
    (tmp_path / "ag.2.et").rmdir()
    del before["ag.2.et"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
