"""FAST's schedules as programs: exactly the bytes they say, stage after stage, in scratch that is used again."""

from __future__ import annotations

from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mscclpp_plans import to_execution_plan
from runtime_forests import write_xml
from runtime_rounds import run_in_rounds

import collopt
from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import (
    Program,
    RankProgram,
    check_program,
    interpret_file,
    interpret_mscclpp,
    lint_file,
    lower,
    read_xml,
    run_program,
)
from collopt.runtime.lowering import flows as staged_transfers
from collopt.schedules import AllToAllvSchedule
from sample_sizes import examples

LARGE = 2**31 - 1


def scheduled(traffic: npt.ArrayLike, sizes: list[int], **options: object) -> AllToAllvSchedule:
    """What FAST makes of a matrix on servers of these sizes."""
    return collopt.schedule_all_to_allv(traffic, servers=len(sizes), gpus_per_server=sizes, **options)


@st.composite
def exchanges(draw: st.DrawFn) -> AllToAllvSchedule:
    """Even or skewed matrices, with rows and columns of zeros, on equal and unequal servers, with fewer NICs too."""
    sizes = draw(
        st.one_of(
            st.lists(st.integers(1, 4), min_size=1, max_size=4),
            st.builds(lambda n, m: [m] * n, st.integers(1, 4), st.integers(1, 4)),
            st.just([4, 4, 2]),
        )
    )
    ranks = sum(sizes)
    chance = np.random.default_rng(draw(st.integers(0, 2**30)))
    if draw(st.booleans()):
        traffic = chance.integers(0, 12, (ranks, ranks))
    else:
        traffic = np.minimum(chance.pareto(0.8, (ranks, ranks)), 200).astype(np.int64)
    for rank in draw(st.lists(st.integers(0, ranks - 1), max_size=2)):
        traffic[rank] = 0
        traffic[:, rank] = 0
    traffic[0, -1] += 1
    nics = [[(gpu + 1) % 2 for gpu in range(size)] for size in sizes]
    options = draw(st.sampled_from([{}, {"stages": "fewest"}, {"max_stage_bytes": 7}, {"nics": nics}]))
    return scheduled(traffic * draw(st.sampled_from([1, 6])), sizes, **options)


def hops_of(schedule: AllToAllvSchedule) -> int:
    """Bytes that all ranks send to each other in all phases."""
    return int(schedule.to_frame()["bytes"].sum())


def unit_of(program: Program, schedule: AllToAllvSchedule) -> int:
    """Bytes of a chunk."""
    unit, rest = divmod(int(schedule.traffic.sum()), program.chunks_per_loop)
    assert rest == 0
    return unit


@pytest.mark.slow
@given(schedule=exchanges(), most=st.integers(1, 9), channels=st.integers(1, 2), instances=st.integers(1, 2))
@settings(max_examples=examples(40))
def test_everything_arrives_by_way_of_the_schedule(
    schedule: AllToAllvSchedule, most: int, channels: int, instances: int
) -> None:
    """In any order of thread blocks, with buffers of one transfer, and as many bytes as the schedule moves."""
    program = lower(schedule, "all_to_allv", max_steps=20, max_count=most, channels=channels, instances=instances)
    report = run_program(program, interleavings=2, fifo_depth=1)
    total = int(schedule.traffic.sum())
    assert report.chunks_sent * total == hops_of(schedule) * program.chunks_per_loop
    shards = np.array(program.layout.shards).reshape(schedule.traffic.shape)
    np.testing.assert_array_equal(shards * total, schedule.traffic * program.chunks_per_loop)


@pytest.mark.slow
@given(schedule=exchanges(), unit=st.integers(0, 5), slices=st.integers(1, 3))
@settings(max_examples=examples(40))
def test_stages_run_in_rounds(schedule: AllToAllvSchedule, unit: int, slices: int) -> None:
    """Multiples of the traffic, in several slices."""
    program = lower(schedule, "all_to_allv", max_steps=LARGE, max_count=LARGE)
    run_in_rounds(program, unit * sum(program.layout.parts), slices)


def follows(rank: RankProgram) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """All steps of a rank that come before each, by order in blocks and waits; programs have few enough of them."""
    direct = {
        (block, step): {(wait.thread_block, wait.step) for wait in each.depends} | {(block, step - 1)} - {(block, -1)}
        for block, blocks in enumerate(rank.thread_blocks)
        for step, each in enumerate(blocks.instructions)
    }
    before: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for site in TopologicalSorter(direct).static_order():
        before[site] = direct[site].union(*(before[each] for each in direct[site]))
    return before


@given(schedule=exchanges(), most=st.sampled_from([3, LARGE]))
@settings(max_examples=examples(50))
def test_stages_follow_one_another(schedule: AllToAllvSchedule, most: int) -> None:
    """Whatever a rank sends to, or receives from, other servers has one order, since each stage has one partner."""
    program = lower(schedule, "all_to_allv", max_count=most, max_steps=LARGE)
    assert program.num_channels == 1
    for rank in program.ranks:
        before = follows(rank)
        home = schedule.homes[rank.rank]
        for sends in (True, False):
            peers = [each.send_peer if sends else each.recv_peer for each in rank.thread_blocks]
            between = [
                (block, step)
                for block, peer in enumerate(peers)
                if peer is not None and schedule.homes[peer] != home
                for step in range(len(rank.thread_blocks[block].instructions))
            ]
            assert all(one in before[other] or other in before[one] for one, other in combinations(between, 2))


def partners_in_order(schedule: AllToAllvSchedule, program: Program, rank: int) -> list[int]:
    """Servers that a rank sends to, one after the other, as its program says."""
    before = follows(program.ranks[rank])
    blocks = program.ranks[rank].thread_blocks
    between = [
        site
        for site in before
        if blocks[site[0]].send_peer is not None and schedule.homes[blocks[site[0]].send_peer] != schedule.homes[rank]
    ]
    between.sort(key=lambda site: sum(other in before[site] for other in between))
    peers = [int(schedule.homes[blocks[block].send_peer]) for block, _ in between]
    return [peer for peer, last in zip(peers, [None, *peers], strict=False) if peer != last]


def test_stages_come_in_the_order_of_the_schedule() -> None:
    """Every GPU of a server sends to the same ones, in the order of the stages."""
    schedule = scheduled(np.random.default_rng(5).integers(20, 60, (8, 8)), [2, 2, 2, 2])
    program = lower(schedule, "all_to_allv", max_count=LARGE)
    for rank in range(8):
        wanted = [stage.partners[rank // 2] for stage in schedule.stages if stage.partners[rank // 2] >= 0]
        merged = [peer for peer, last in zip(wanted, [None, *wanted], strict=False) if peer != last]
        assert partners_in_order(schedule, program, rank) == merged


def test_a_chunk_is_the_largest_amount_that_all_pieces_are_multiples_of() -> None:
    """Bytes of one pair, dealt out to two GPUs, make two chunks; those that stay count too."""
    traffic = np.zeros((4, 4), dtype=np.int64)
    traffic[0, 2] = 600
    assert lower(scheduled(traffic, [2, 2]), "all_to_allv").chunks_per_loop == 2
    traffic[3, 3] = 100
    assert lower(scheduled(traffic, [2, 2]), "all_to_allv").chunks_per_loop == 7
    traffic[1, 1] = 1
    assert lower(scheduled(traffic, [2, 2]), "all_to_allv", max_count=LARGE).chunks_per_loop == 701


def test_pieces_go_by_proxy_and_peer() -> None:
    """Half of what one GPU has for one other goes by two more; the proxy and the peer have it in scratch."""
    traffic = np.zeros((4, 4), dtype=np.int64)
    traffic[0, 2] = 6
    program = lower(scheduled(traffic, [2, 2]), "all_to_allv")
    sent = [
        (rank.rank, block.send_peer, step.source.buffer)
        for rank in program.ranks
        for block in rank.thread_blocks
        for step in block.instructions
        if step.kind == "send" and step.source
    ]
    assert sorted(sent) == [(0, 1, "input"), (0, 2, "input"), (1, 3, "scratch"), (3, 2, "scratch")]
    assert [rank.scratch_chunks for rank in program.ranks] == [0, 1, 0, 1]
    assert str(program).endswith("1 scratch chunks")


def test_scratch_is_used_again() -> None:
    """Short stages of the same traffic take a fraction of the scratch of long ones, not more places each."""
    traffic = np.zeros((8, 8), dtype=np.int64)
    traffic[::2, ::2] = 64
    whole = scheduled(traffic, [2, 2, 2, 2])
    short = scheduled(traffic, [2, 2, 2, 2], max_stage_bytes=4)
    sizes = []
    for schedule in (whole, short):
        program = lower(schedule, "all_to_allv")
        sizes.append(program.scratch_chunks * unit_of(program, schedule))
        # Two stages' worth as a proxy and two as a peer, and gaps.
        assert sizes[-1] <= 4 * int(schedule.stage_bytes.max())
    assert sizes[1] * 8 <= sizes[0]


@pytest.mark.slow
@given(schedule=exchanges())
@settings(max_examples=examples(50))
def test_scratch_is_bounded(schedule: AllToAllvSchedule) -> None:
    """By what passes a rank for others, and by few stages."""
    program = lower(schedule, "all_to_allv", max_count=LARGE)
    frame = schedule.to_frame()
    passing = np.zeros(schedule.num_ranks, dtype=np.int64)
    np.add.at(
        passing, frame.loc[frame["phase"] == "balance", "destination"], frame.loc[frame["phase"] == "balance", "bytes"]
    )
    np.add.at(
        passing,
        frame.loc[frame["phase"] == "redistribute", "source"],
        frame.loc[frame["phase"] == "redistribute", "bytes"],
    )
    unit = unit_of(program, schedule)
    for rank in program.ranks:
        assert rank.scratch_chunks * unit <= min(passing[rank.rank], 8 * schedule.stage_bytes.max(initial=0))


def test_a_missing_wait_between_scratch_and_stage_is_found() -> None:
    """The proxy's send has to come after what it sends."""
    traffic = np.zeros((4, 4), dtype=np.int64)
    traffic[0, 2] = 6
    program = lower(scheduled(traffic, [2, 2]), "all_to_allv")
    proxy = program.ranks[1]
    blocks = tuple(
        replace(block, instructions=tuple(replace(step, depends=()) for step in block.instructions))
        for block in proxy.thread_blocks
    )
    ranks = (program.ranks[0], replace(proxy, thread_blocks=blocks), *program.ranks[2:])
    with pytest.raises(ProgramError, match="rank 1"):
        check_program(replace(program, ranks=ranks))


@pytest.mark.parametrize("runtime", ["msccl", "msccl-executor-nccl", "rccl"])
def test_even_traffic_is_an_all_to_all_for_files(tmp_path: Path, runtime: str) -> None:
    """Equal parts have a file; other parts are refused, as executors take sizes at run time."""
    even = scheduled(np.full((6, 6), 12), [2, 2, 2])
    program = lower(even, "all_to_all", max_steps=30, instances=2)
    path = tmp_path / "even.xml"
    write_xml(program, path, runtime=runtime)
    assert lint_file(path, runtime).runs
    interpret_file(path, interleavings=2)
    assert read_xml(path) == program
    (tmp_path / "even.json").write_text(to_execution_plan(lower(even, "all_to_all", max_steps=5)).text)
    interpret_mscclpp(tmp_path / "even.json", interleavings=1)
    with pytest.raises(UnsupportedError, match="all parts are of one size: plan all_to_all, or run the plan through"):
        write_xml(lower(even, "all_to_allv"), tmp_path / "uneven.xml", runtime=runtime)


@pytest.mark.parametrize("sizes", [[2, 2], [4, 4, 2], [3, 2]])
def test_too_many_chunks_are_refused_with_what_to_change(monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> None:
    """And the change that the message names is enough."""
    monkeypatch.setattr(staged_transfers, "MAX_CHUNKS", 2**12)
    traffic = np.random.default_rng(1).integers(0, 10**6, (sum(sizes),) * 2)
    with pytest.raises(UnsupportedError, match=r"chunks; expected at most 4096: schedule larger units") as caught:
        lower(scheduled(traffic, sizes), "all_to_allv")
    assert "\n" not in str(caught.value)
    multiple = int(str(caught.value).rpartition(" ")[2])
    rounded = -(-traffic // multiple) * multiple
    assert lower(scheduled(rounded, sizes), "all_to_allv").chunks_per_loop <= 2**12


def test_single_servers_and_single_gpus_have_no_proxies() -> None:
    """Everything goes directly, from input to output."""
    traffic = np.random.default_rng(2).integers(1, 9, (4, 4))
    for sizes in ([4], [1, 1, 1, 1]):
        program = lower(scheduled(traffic, sizes), "all_to_allv")
        run_program(program, interleavings=2)
        assert program.scratch_chunks == 0
