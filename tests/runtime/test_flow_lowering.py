"""All-to-all(v) schedules as programs: right data whatever the order, scratch that is used again, errors in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from runtime_flows import flows, random_flow, ring_flow
from runtime_forests import write_xml
from runtime_rounds import run_in_rounds

import collopt
from collopt.errors import CertificateError, ProgramError, UnsupportedError
from collopt.runtime import (
    ChunkRange,
    Dependency,
    Program,
    check_program,
    interpret_file,
    lower,
    read_xml,
    run_program,
    to_xml_text,
)
from collopt.runtime.msccl.export import export_msccl_xml
from collopt.runtime.programs.interpret import run_interleaving
from collopt.schedules import FlowSchedule, Forest
from collopt.topologies import Topology, dgx1_v100, dgx_a100, fat_tree, hypercube, mi250, ring, torus
from sample_sizes import examples
from slow_cases import slow_where

TOPOLOGIES = {
    "ring": ring(5, bandwidth=25),
    "one-way ring": ring(4, bidirectional=False),
    "torus": torus(3, 3, bandwidth=10),
    "hypercube": hypercube(3),
    "DGX-1": dgx1_v100(),
    "two DGX A100": dgx_a100(boxes=2),
    "MI250": mi250(boxes=1),
    "fat tree": fat_tree(4),
}
RUNTIMES = {"msccl": 256, "msccl-executor-nccl": 64, "rccl": 64}
LARGE = 2**31 - 1


def collective_of(schedule: FlowSchedule) -> str:
    """What the schedule is for."""
    return "all_to_all" if len(np.unique(schedule.traffic)) == 1 else "all_to_allv"


def steps_of(program: Program) -> list[tuple[int, int, int]]:
    """Places of all steps that wait for something."""
    return [
        (rank.rank, block, step)
        for rank in program.ranks
        for block, code in enumerate(rank.thread_blocks)
        for step, instruction in enumerate(code.instructions)
        if instruction.depends
    ]


def without_waits(program: Program, rank: int, block: int, step: int) -> Program:
    """Return the program with one step that waits for nothing."""
    blocks = list(program.ranks[rank].thread_blocks)
    steps = list(blocks[block].instructions)
    steps[step] = replace(steps[step], depends=())
    blocks[block] = replace(blocks[block], instructions=tuple(steps))
    ranks = list(program.ranks)
    ranks[rank] = replace(ranks[rank], thread_blocks=tuple(blocks))
    return replace(program, ranks=tuple(ranks))


@given(schedule=flows(), most=st.integers(1, 9), max_steps=st.integers(1, 9), channels=st.integers(1, 3))
@settings(max_examples=examples(80))
def test_random_flows_bring_everything_where_it_belongs(
    schedule: FlowSchedule, most: int, max_steps: int, channels: int
) -> None:
    """Through switches and other ranks, in any order of thread blocks, with buffers of one transfer."""
    program = lower(schedule, collective_of(schedule), max_count=most, max_steps=max_steps, channels=channels)
    report = run_program(program, interleavings=3, fifo_depth=1)
    # What goes from rank to rank, switches passed over, goes once.
    assert report.chunks_sent == int((schedule.weights * schedule.num_transfers).sum())
    assert all(
        len(block.instructions) <= max_steps and all(step.count <= most for step in block.instructions)
        for rank in program.ranks
        for block in rank.thread_blocks
    )


@pytest.mark.slow
@given(schedule=flows(), unit=st.integers(0, 7), slices=st.integers(1, 4), most=st.sampled_from([1, 3, LARGE]))
@settings(max_examples=examples(40))
def test_random_flows_run_in_rounds(schedule: FlowSchedule, unit: int, slices: int, most: int) -> None:
    """Sizes that do not divide by the chunks, in several slices."""
    program = lower(schedule, collective_of(schedule), max_count=most, max_steps=LARGE)
    run_in_rounds(program, unit * sum(program.layout.parts), slices)


@pytest.mark.parametrize("name", slow_where(TOPOLOGIES, lambda name: name in ("DGX-1", "MI250", "fat tree")))
def test_plans_run_and_are_written_for_every_runtime(tmp_path: Path, name: str) -> None:
    """As a program, in rounds, and from the file of each runtime, which says the same as the program."""
    topology = TOPOLOGIES[name]
    plan = collopt.plan(topology, "all_to_all")
    program = lower(plan.schedule, "all_to_all")
    run_program(program, interleavings=2)
    run_in_rounds(program, 7 * topology.num_ranks**2, 2)
    for runtime, max_steps in RUNTIMES.items():
        path = tmp_path / f"{runtime}.xml"
        export_msccl_xml(plan, path, runtime=runtime)
        assert interpret_file(path, interleavings=2).interleavings == 2
        assert read_xml(path) == lower(plan.schedule, "all_to_all", max_steps=max_steps, topology=topology)


@pytest.mark.parametrize("name", ["ring", "DGX-1", "two DGX A100"])
def test_plans_for_traffic_run(name: str) -> None:
    """Unequal parts, some of them empty."""
    topology: Topology = TOPOLOGIES[name]
    traffic = np.random.default_rng(3).integers(0, 4, (topology.num_ranks,) * 2)
    traffic[1, 1] += 1
    plan = collopt.plan(topology, "all_to_allv", traffic=traffic)
    program = lower(plan.schedule, "all_to_allv")
    run_program(program, interleavings=2)
    run_in_rounds(program, 5 * sum(program.layout.parts), 3)


def test_chunks_that_go_the_same_way_go_together() -> None:
    """On a one-way ring of 4, a rank sends two parts that have further to go as one, and passes them on apart."""
    program = lower(ring_flow(4), "all_to_all")
    (sending,) = (block for block in program.ranks[0].thread_blocks if block.send_peer is not None)
    assert [(step.source, step.count) for step in sending.instructions] == [
        (ChunkRange("input", 2), 2),
        (ChunkRange("input", 1), 1),
        (ChunkRange("scratch", 1), 1),
        (ChunkRange("scratch", 0), 1),
        (ChunkRange("scratch", 2), 1),
    ]


def test_scratch_is_used_again() -> None:
    """A ring of 8 passes on 21 parts through each rank, of which no more than 11 are there at a time."""
    schedule = ring_flow(8)
    passing = int((schedule.weights * (schedule.num_transfers - 1)).sum()) // 8
    program = lower(schedule, "all_to_all")
    assert passing == 21
    assert {rank.scratch_chunks for rank in program.ranks} == {11}
    assert program.scratch_chunks == 11
    assert str(program).endswith("11 scratch chunks")
    assert "scratch" not in str(lower(collopt.plan(dgx_a100(boxes=1), "all_to_all").schedule, "all_to_all"))


@given(schedule=flows(max_ranks=4), choice=st.integers(0, 10**6))
@settings(max_examples=examples(45))
def test_a_missing_wait_is_found_where_it_matters(schedule: FlowSchedule, choice: int) -> None:
    """What the check lets pass without its waits, as another path orders the steps, leaves the right data in any order.

    The machine is not told what the check says, so either could give the other away.
    """
    program = lower(schedule, collective_of(schedule))
    waiting = steps_of(program)
    assume(waiting)
    broken = without_waits(program, *waiting[choice % len(waiting)])
    refusal = ""
    try:
        check_program(broken)
    except ProgramError as error:
        refusal = str(error)
    assert any(word in refusal for word in ("race", "reads scratch", "deadlocks")) or not refusal
    if not refusal:
        for seed in range(4):
            run_interleaving(broken, seed=seed)


def test_a_place_that_is_filled_before_it_was_read_is_a_race() -> None:
    """The receive that uses scratch again has to wait for the send before; so has the send for its receive."""
    program = lower(ring_flow(5), "all_to_all")
    found = set()
    for rank, block, step in steps_of(program):
        kind = program.ranks[rank].thread_blocks[block].instructions[step].kind
        with pytest.raises(ProgramError, match=r"race: rank \d .* scratch chunk \d"):
            check_program(without_waits(program, rank, block, step))
        found.add(kind)
    assert found == {"send", "recv"}


def test_nothing_to_send_is_a_program_of_copies() -> None:
    """Ranks that keep all they have."""
    schedule = FlowSchedule.from_paths(np.diag(np.array([2, 0, 3])), 2, [])
    program = lower(schedule, "all_to_allv")
    assert run_program(program).transfers == 0
    assert program.num_instructions == 2


def test_several_waits_of_a_step_are_steps_of_a_file(tmp_path: Path) -> None:
    """They come back as waits, and count towards the limit of steps."""
    program = lower(collopt.plan(mi250(boxes=1), "all_to_all").schedule, "all_to_all")
    waits = [len(step.depends) for rank in program.ranks for block in rank.thread_blocks for step in block.instructions]
    assert max(waits) > 1
    write_xml(program, tmp_path / "a.xml")
    assert read_xml(tmp_path / "a.xml") == program
    assert (tmp_path / "a.xml").read_text().count("nop") == sum(max(0, wait - 1) for wait in waits)


def test_plans_with_more_waits_than_steps_fit_get_more_channels(tmp_path: Path) -> None:
    """The exporter counts the steps that only wait."""
    schedule = random_flow(4, 0, 8, most=None, chunks_per_unit=400)
    plan = collopt.plan(ring(4), "all_to_all")
    export_msccl_xml(replace(plan, schedule=schedule), tmp_path / "a.xml", runtime="rccl")
    assert interpret_file(tmp_path / "a.xml", interleavings=1).chunks_sent > 0


def test_the_file_counts_the_chunks_of_one_rank() -> None:
    """MSCCL's chunks per loop are those of a rank's input, which is what microsoft/msccl compares i_chunks with."""
    program = lower(ring_flow(3), "all_to_all")
    text = to_xml_text(program, runtime="msccl")
    assert 'coll="alltoall" inplace="0"' in text
    assert 'nchunksperloop="3"' in text
    assert '<gpu id="0" i_chunks="3" o_chunks="3" s_chunks="1">' in text


@pytest.mark.parametrize("placement", ["in-place", "both"])
def test_files_are_for_calls_out_of_place(placement: str) -> None:
    """And so are programs."""
    program = lower(ring_flow(3), "all_to_all")
    with pytest.raises(UnsupportedError, match="expected 'out-of-place'"):
        to_xml_text(program, placement=placement)
    with pytest.raises(ProgramError, match="in-place all_to_all"):
        check_program(replace(program, in_place=True))


def test_files_have_equal_parts() -> None:
    """No MSCCL runtime has a call with unequal ones that takes an algorithm."""
    program = lower(random_flow(3, 0, 1), "all_to_allv")
    with pytest.raises(UnsupportedError, match="all parts are of one size"):
        to_xml_text(program)


def test_wrong_data_is_told_by_both_its_ranks() -> None:
    """Two receives that are exchanged bring the wrong parts."""
    program = lower(ring_flow(3), "all_to_all")
    first = program.ranks[0]
    (block,) = (block for block in first.thread_blocks if block.recv_peer is not None)
    targets = [step.target for step in block.instructions if step.target and step.target.buffer == "output"]
    changed = [
        replace(step, target=targets[1 - targets.index(step.target)]) if step.target in targets else step
        for step in block.instructions
    ]
    blocks = tuple(
        replace(each, instructions=tuple(changed)) if each is block else each for each in first.thread_blocks
    )
    broken = replace(program, ranks=(replace(first, thread_blocks=blocks), *program.ranks[1:]))
    with pytest.raises(ProgramError, match=r"rank 0 ends with chunk 0 from rank \d for rank 0 in output chunk"):
        run_program(broken)


def change(schedule: FlowSchedule, **arrays: object) -> FlowSchedule:
    """Return the schedule with other arrays."""
    return replace(schedule, **arrays)  # type: ignore[arg-type]


def test_schedules_are_for_their_collectives() -> None:
    """Paths for nothing else, and nothing else for an all-to-all."""
    forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    with pytest.raises(UnsupportedError, match="allgather was requested, but the schedule is a FlowSchedule"):
        lower(ring_flow(3), "allgather")
    with pytest.raises(UnsupportedError, match="all_to_all was requested, but the schedule is a Forest"):
        lower(forest, "all_to_all")
    with pytest.raises(UnsupportedError, match="expected all_to_allv"):
        lower(random_flow(3, 0, 1), "all_to_all")


def test_too_many_transfers_are_refused() -> None:
    """Before anything is written down."""
    schedule = FlowSchedule.from_paths(np.array([[0, 1], [0, 0]]), 2**40, [(2**40, (0, 1), (0,))])
    with pytest.raises(UnsupportedError, match="plan with fewer chunks per unit"):
        lower(schedule, "all_to_allv")
    with pytest.raises(CertificateError, match="could overflow the 64-bit sums"):
        lower(change(schedule, traffic=np.array([[0, 2**40], [0, 0]])), "all_to_allv")


def test_waits_are_of_other_blocks() -> None:
    """A block's own order needs no dependency."""
    program = lower(random_flow(5, 1, 2), "all_to_allv")
    for rank, block, step in steps_of(program):
        waits: tuple[Dependency, ...] = program.ranks[rank].thread_blocks[block].instructions[step].depends
        assert len({wait.thread_block for wait in waits}) == len(waits)
        assert block not in {wait.thread_block for wait in waits}
