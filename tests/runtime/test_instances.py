"""Programs that do everything several times at once, each time on a part of all data."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_flows import flows, ring_flow
from runtime_forests import ring_forest, schedules
from runtime_rounds import run_in_rounds
from runtime_steps import reversed_steps, step_schedules

import collopt
from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import (
    ChunkRange,
    Program,
    interpret_file,
    interpret_mscclpp,
    lint_file,
    lower,
    read_mscclpp,
    read_xml,
    run_program,
    without_receive_reduce,
)
from collopt.runtime.lowering import lower as lowering
from collopt.runtime.mscclpp.execution_plan import flat
from collopt.runtime.mscclpp.export import least_operations
from collopt.runtime.mscclpp.lower import PlanOptions, common_count
from collopt.runtime.programs.transformations import packed, replicated
from collopt.schedules import AnyStepSchedule, FlowSchedule, Send, StepSchedule, TreeSchedule
from collopt.topologies import Topology, dgx1_v100, dgx_a100, hypercube, ring, torus
from sample_sizes import examples
from slow_cases import slow_where

RUNTIMES = ("msccl", "msccl-executor-nccl", "rccl")
IN_PLACE = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce")


def check(program: Program, single: Program, instances: int, channels: int = 1) -> None:
    """Run a program in any order with buffers of one transfer, out of place and in place; look at its size."""
    report = run_program(program, interleavings=2, fifo_depth=1)
    if str(program.collective) in IN_PLACE:
        run_program(replace(program, in_place=True), interleavings=2, fifo_depth=1)
    assert program.chunks_per_loop == instances * single.chunks_per_loop
    assert program.num_channels == instances * single.num_channels >= channels
    assert report.chunks_sent == instances * run_program(single, interleavings=1).chunks_sent
    for rank, before in zip(program.ranks, single.ranks, strict=True):
        assert len(rank.thread_blocks) == instances * len(before.thread_blocks)
        assert rank.scratch_chunks == instances * before.scratch_chunks


@given(
    case=schedules(),
    instances=st.integers(2, 4),
    channels=st.integers(1, 2),
    most=st.integers(1, 9),
    unfused=st.booleans(),
)
@settings(max_examples=examples(40))
def test_trees_are_shared_by_instances(
    case: tuple[TreeSchedule, str], instances: int, channels: int, most: int, unfused: bool
) -> None:
    """Every collective, with channels, with steps that are split afterwards, and with blocks that are joined."""
    single = lower(*case, channels=channels, max_count=most)
    program = lower(*case, channels=channels, max_count=most, instances=instances)
    check(program, single, instances)
    assert program.num_instructions == instances * single.num_instructions
    if unfused:
        program = without_receive_reduce(program)
    run_program(packed(program, 3, 10**6), interleavings=2, fifo_depth=1)


@given(case=step_schedules(), instances=st.integers(2, 4), most=st.integers(1, 9))
@settings(max_examples=examples(30))
@pytest.mark.slow
def test_steps_are_shared_by_instances(case: tuple[AnyStepSchedule, str], instances: int, most: int) -> None:
    """Of several shards as well, which are then sent one by one; only an allreduce has no borders between them."""
    program = lower(*case, max_count=most, instances=instances)
    single = lower(*case, max_count=most)
    check(program, single, instances)
    if case[1] == "allreduce":
        assert program.num_instructions == instances * single.num_instructions


@pytest.mark.slow
@given(schedule=flows(), instances=st.integers(2, 4), most=st.integers(1, 9))
@settings(max_examples=examples(30))
def test_flows_are_shared_by_instances(schedule: FlowSchedule, instances: int, most: int) -> None:
    """With scratch that is used again."""
    program = lower(schedule, "all_to_allv", max_count=most, instances=instances)
    report = run_program(program, interleavings=2, fifo_depth=1)
    assert report.chunks_sent == instances * int((schedule.weights * schedule.num_transfers).sum())
    run_in_rounds(program, 5 * sum(program.layout.parts), 2)


@given(case=schedules(), instances=st.integers(2, 3), elements=st.integers(0, 40), slices=st.integers(1, 2))
@settings(max_examples=examples(40))
def test_instances_run_in_rounds(case: tuple[TreeSchedule, str], instances: int, elements: int, slices: int) -> None:
    """On sizes that do not divide by the chunks."""
    program = lower(*case, instances=instances)
    whole = (
        elements
        if str(program.collective) in ("allreduce", "broadcast", "reduce")
        else elements * sum(program.layout.parts)
    )
    run_in_rounds(program, whole, slices, in_place=True)


def test_a_transfer_of_several_shards_is_cut_between_them() -> None:
    """Recursive halving sends three shards at once that are for others; an instance sends its parts one by one."""
    doubling = StepSchedule.from_sends(
        8,
        1,
        [
            Send(step, root, 0, 1, (rank, rank ^ 2**step))
            for step in range(3)
            for rank in range(8)
            for root in range(8)
            if root >> step == rank >> step
        ],
    )
    sizes = [
        Counter(
            step.count
            for each in lower(reversed_steps(doubling), "reduce_scatter", instances=instances).ranks[0].thread_blocks
            if each.send_peer is not None and each.channel == 0
            for step in each.instructions
        )
        for instances in (1, 2)
    ]
    assert sizes == [Counter({1: 4, 3: 1}), Counter({1: 7})]


@pytest.mark.parametrize(
    ("topology", "collective", "planner"),
    [
        (ring(4, bandwidth=25), "allgather", "ring"),
        pytest.param(dgx1_v100(), "allreduce", "forestcoll", marks=pytest.mark.slow),
        (dgx1_v100(), "broadcast", "blink"),
        (torus(2, 2, bandwidth=10), "reduce_scatter", "bfb"),
        pytest.param(hypercube(3), "allreduce", "recursive-halving-doubling", marks=pytest.mark.slow),
        (ring(4, bandwidth=25), "reduce", "forestcoll"),
        pytest.param(dgx_a100(boxes=1), "all_to_all", "shortest-paths", marks=pytest.mark.slow),
        (torus(3, 2, bandwidth=10), "all_to_all", "multicommodity"),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else None,
)
def test_files_have_instances(tmp_path: Path, topology: Topology, collective: str, planner: str) -> None:
    """XML of three dialects and MSCCL++: written, accepted, read back, and run with correct data."""
    plan = collopt.plan(
        topology, collective, planner=planner, **({"root": 1} if collective in ("broadcast", "reduce") else {})
    )
    for runtime in RUNTIMES:
        path = tmp_path / f"{runtime}.xml"
        plan.to_msccl_xml(path, runtime=runtime, instances=3)
        assert lint_file(path, runtime).runs
        assert interpret_file(path, interleavings=2).interleavings == 2
        plan.to_msccl_xml(tmp_path / "single.xml", runtime=runtime)
        assert read_xml(path).num_channels == 3 * read_xml(tmp_path / "single.xml").num_channels
        assert read_xml(path).chunks_per_loop == 3 * read_xml(tmp_path / "single.xml").chunks_per_loop
    path = tmp_path / "plan.json"
    plan.to_mscclpp_json(path, instances=2)
    interpret_mscclpp(path, interleavings=2)
    plan.to_mscclpp_json(tmp_path / "single.json")
    more, single = (read_mscclpp(each).gpus[0] for each in (path, tmp_path / "single.json"))
    assert more.output_chunks == 2 * single.output_chunks


def test_blocks_are_joined_where_instances_make_too_many(tmp_path: Path) -> None:
    """Fifteen thread blocks of an A100's all-to-all make 120; the GPU runs 108."""
    plan = collopt.plan(dgx_a100(boxes=1), "all_to_all")
    blocks = [len(rank.thread_blocks) for rank in lower(plan.schedule, "all_to_all", instances=8).ranks]
    assert max(blocks) == 120
    plan.to_msccl_xml(tmp_path / "a.xml", instances=8)
    assert max(len(rank.thread_blocks) for rank in read_xml(tmp_path / "a.xml").ranks) == 108
    interpret_file(tmp_path / "a.xml", interleavings=2)


@pytest.mark.parametrize(
    ("runtime", "options", "message"),
    [
        ("msccl", {"instances": 40}, "instances is 40, each with channels of its own; msccl has 32"),
        (
            "rccl",
            {"instances": 12},
            "instances is 12: rank 0 has 84 thread blocks; rccl of ROCm 7.12 takes 64, in rccl; expected fewer",
        ),
        ("msccl", {"instances": 20, "channels": 2}, "channels is 2, but no connection of this plan has more than 1"),
        ("msccl", {"instances": 0}, "instances is 0; expected a whole number of at least 1"),
        (
            "msccl",
            {"instances": 2, "max_thread_blocks": 1},
            "rank 0 has 7 thread blocks, which wait for each other, and the GPU runs 1 at once, in msccl",
        ),
    ],
)
def test_what_goes_beyond_a_runtime_is_refused(
    tmp_path: Path, runtime: str, options: dict[str, int], message: str
) -> None:
    """Instances are named only where a single one would fit; no file is left."""
    plan = collopt.plan(dgx_a100(boxes=1), "all_to_all")
    with pytest.raises(UnsupportedError) as caught:
        plan.to_msccl_xml(tmp_path / "a.xml", runtime=runtime, **options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a.xml").exists()


def test_what_goes_beyond_mscclpp_is_refused(tmp_path: Path) -> None:
    """In the same way."""
    plan = collopt.plan(ring(4, bandwidth=25), "allgather")
    with pytest.raises(UnsupportedError, match=r"^instances is 64: .*; expected fewer instances, such as 2"):
        plan.to_mscclpp_json(tmp_path / "a.json", instances=64, max_thread_blocks=3)
    with pytest.raises(UnsupportedError, match=r"^channels is 99, but no connection"):
        plan.to_mscclpp_json(tmp_path / "a.json", channels=99, instances=2)
    assert not (tmp_path / "a.json").exists()


def test_refuses_what_cannot_be_replicated() -> None:
    """A step of several shards, too many steps, and what is no number."""
    program = lower(ring_forest(3), "allgather")
    assert replicated(program, 1) is program
    both = program.ranks[0].thread_blocks[0]
    wide = replace(both, instructions=(replace(both.instructions[0], target=ChunkRange("output", 0), count=2),))
    ranks = (replace(program.ranks[0], thread_blocks=(wide,)), *program.ranks[1:])
    with pytest.raises(ProgramError, match="output chunks 0 to 1, which are not of one shard"):
        replicated(replace(program, ranks=ranks), 2)
    with pytest.raises(
        UnsupportedError, match=r"instances is 100000000, which makes .* expected at most 4194304 steps"
    ):
        lower(ring_forest(3), "allgather", instances=10**8)
    with pytest.raises(UnsupportedError, match="instances is True"):
        lower(ring_flow(3), "all_to_all", instances=True)


@pytest.mark.parametrize("instances", [1000, 10**30])
def test_instances_that_no_thread_block_of_mscclpp_has_room_for_are_never_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instances: int
) -> None:
    """A look at one is enough, and at as many as have thread blocks of their own."""
    plan = collopt.plan(ring(4, bandwidth=25), "allgather")

    def make(program: Program, instances: int) -> Program:
        assert instances < 1000
        return replicated(program, instances)

    monkeypatch.setattr(lowering, "replicated", make)
    with pytest.raises(
        UnsupportedError, match=rf"^instances is {instances}: rank 0 needs at least \d+ operations, 108"
    ):
        plan.to_mscclpp_json(tmp_path / "a.json", instances=instances)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("collective", "boxes"),
    slow_where(product(("allgather", "allreduce", "all_to_all"), (1, 2)), lambda case: case == ("allreduce", 2)),
)
def test_what_mscclpp_has_room_for_is_never_refused_unseen(tmp_path: Path, collective: str, boxes: int) -> None:
    """What is counted of a single program is no more than what a file of several holds."""
    plan = collopt.plan(ring(4, bandwidth=25), collective)
    numbers = [rank * boxes // 4 for rank in range(4)]
    for instances, slice_bytes in product((1, 3), (None, 2**20)):
        plan.to_mscclpp_json(tmp_path / "a.json", instances=instances, boxes=numbers, slice_bytes=slice_bytes)
        gpus = read_mscclpp(tmp_path / "a.json").gpus
        written = [sum(len([*flat(block)]) for block in gpu.thread_blocks) for gpu in gpus]
        single = lower(plan.schedule, collective, max_steps=16)
        unit = None if slice_bytes is None else common_count(single)
        for operations, least in zip(written, least_operations(single, PlanOptions(numbers), unit), strict=True):
            assert 0 < instances * sum(least) <= operations


def test_the_instances_that_a_refusal_names_fit(tmp_path: Path) -> None:
    """As many as have thread blocks of their own, and one more for MSCCL is too many."""
    plan = collopt.plan(ring(3, bandwidth=25), "allgather")
    for write, most, fits, beyond in ((plan.to_mscclpp_json, 16, 3, 999), (plan.to_msccl_xml, 16, 3, 32)):
        with pytest.raises(UnsupportedError, match=r"expected fewer instances, such as \d+, which fits$") as caught:
            write(tmp_path / "a", instances=beyond, max_thread_blocks=most)
        named = int(str(caught.value).split("such as ")[1].partition(",")[0])
        assert fits <= named < beyond
        write(tmp_path / "a", instances=named, max_thread_blocks=most)


def test_few_ways_to_merge_replicas_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes as long as writing a file of so many."""
    made = []

    def make(program: Program, instances: int) -> Program:
        made.append(instances)
        return replicated(program, instances)

    monkeypatch.setattr(lowering, "replicated", make)
    plan = collopt.plan(ring(3, bandwidth=25), "allgather")
    with pytest.raises(UnsupportedError, match=r"instances is 24: .* such as"):
        plan.to_mscclpp_json(tmp_path / "a.json", instances=24, max_thread_blocks=3)
    assert made.count(24) <= 2


def test_sizes_of_replicas_need_not_be_right_for_one(tmp_path: Path) -> None:
    """Four replicas have four times the slices, of which a pipeline counts 65535."""
    plan, path = collopt.plan(ring(4, bandwidth=25), "allgather"), tmp_path / "a.json"
    plan.to_mscclpp_json(path, slice_bytes=16)
    largest = 4 * read_mscclpp(path).max_bytes - 4 * 2**10
    plan.to_mscclpp_json(path, slice_bytes=16, instances=4, max_bytes=largest)
    assert read_mscclpp(path).max_bytes == largest
