"""Small examples of the internal functions of `collopt.runtime`."""

from __future__ import annotations

import numpy as np
from mscclpp_plans import to_execution_plan

import collopt
from collopt.runtime.lowering.flow_transfers import ScratchAllocator
from collopt.runtime.lowering.lower import lower
from collopt.runtime.msccl.limits import dialect_of, runtime_limits
from collopt.runtime.mscclpp.interpret import run_execution_plan
from collopt.runtime.mscclpp.thread_blocks import merge_blocks
from collopt.runtime.nccl.graph import ring_channels
from collopt.runtime.programs.transformations import packed, replicated
from collopt.schedules import Forest
from collopt.schedules.timing.event_loop import Network, heap_pop, heap_push, run_events
from collopt.schedules.timing.message_times import piece_times
from collopt.topologies import LINKS_ONLY, complete, ring

PAIR = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])


def test_replicas_have_smaller_chunks_and_channels_of_their_own() -> None:
    """Three replicas of a program of one channel have three channels, and three times the steps."""
    assert str(replicated(lower(PAIR, "allgather"), 3)) == (
        "allgather: allgather on 2 ranks, 6 chunks, 18 steps, 3 channels"
    )


def test_packing_joins_until_few_thread_blocks_are_left() -> None:
    """A rank that sends, receives and copies takes three thread blocks, or as few as one."""
    program = lower(PAIR, "allgather")
    assert [len(packed(program, most, 64).ranks[0].thread_blocks) for most in (3, 2, 1)] == [3, 2, 1]


def test_scratch_slots_are_taken_from_the_smallest_gap() -> None:
    """A request gets the smallest gap that it fits into, or new places at the end."""
    slots = ScratchAllocator()
    assert (slots.allocate(2), slots.allocate(3)) == (0, 2)
    slots.free(0, 2)
    assert (slots.allocate(1), slots.allocate(2), slots.size) == (0, 5, 7)


def test_heap_has_its_least_entry_first() -> None:
    """Entries are ordered by time, then by code."""
    times, codes = np.empty((2, 3), dtype=np.int64)
    for size, time in enumerate([5, 2, 3]):
        heap_push(times, codes, 0, size, time, 10 * time)
    assert codes[0] == 20
    heap_pop(times, codes, 0, 3)
    assert codes[0] == 30


def test_second_link_is_passed_without_a_stop() -> None:
    """Two pieces of 5 ticks each cross two links of delay 1."""
    two_hops, none = np.array([0, 1]), np.empty(0, dtype=np.int64)
    network = Network(np.array([0, 2]), two_hops, two_hops * 0 + 5, two_hops * 0 + 1, two_hops[:1], none, none, 2)
    timeline = run_events(network, 2)
    assert timeline.starts.tolist() == [[0, 5], [1, 6]]
    assert timeline[1:] == (12, 0)


def test_two_ranks_exchange_their_halves() -> None:
    """Each tree of a forest makes one transfer per edge."""
    both = PAIR.transfers(ring(2))
    assert [column.tolist() for column in (both.senders, both.receivers, both.firsts)] == [[0, 1], [1, 0], [0, 1]]
    assert both.unit == 1 / 2


def test_times_of_pieces_are_exact() -> None:
    """Halves of 300 bytes over 25 GB/s, that is of 6 ns, and a latency of 10 ns."""
    pair = complete(2, bandwidth=25, latency="0.01")
    times = piece_times(PAIR.transfers(pair), pair, 600, 2, LINKS_ONLY)
    assert (times.tick * 500, times.ticks.tolist(), times.delays.tolist()) == (1, [3, 3], [5, 5])


def test_times_on_links_are_rounded_down_to_whole_nanoseconds() -> None:
    """155 bytes over 25 GB/s, 6.2 ns, and a latency of 10.9 ns take 17 ns together."""
    pair = complete(2, bandwidth=25, latency="0.0109")
    times = piece_times(PAIR.transfers(pair), pair, 620, 2, LINKS_ONLY, "ns")
    assert (times.tick * 1000, times.ticks.tolist(), times.delays.tolist()) == (1, [6, 6], [11, 11])


def test_lightest_thread_blocks_are_merged() -> None:
    """The two lightest become one until there are few enough."""
    assert merge_blocks([9, 1, 8, 2], 3) == [[0], [1, 3], [2]]


def test_execution_plan_puts_every_slice() -> None:
    """Two ranks put one chunk each, in four slices."""
    assert run_execution_plan(to_execution_plan(lower(PAIR, "allgather")), slices=4).puts == 8


def test_runtimes_differ_by_version() -> None:
    """RCCL launches fused steps before ROCm 6.1, and has no MSCCL from ROCm 7.13 on."""
    assert runtime_limits("rccl").max_thread_blocks == 64
    assert [dialect_of("rccl", version).launches_fused for version in ("6.0", "6.1")] == [True, False]
    assert dialect_of("rccl", "7.13").absent == "RCCL has no MSCCL from ROCm 7.13 on"


def test_rings_of_a_plan_start_at_the_lowest_rank() -> None:
    """A ring plan uses both directions."""
    plan = collopt.plan(ring(4), "allgather", planner="ring")
    assert ring_channels(plan) == ((0, 1, 2, 3), (0, 3, 2, 1))
