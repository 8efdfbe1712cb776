"""The reference machine: right data passes, wrong data and deadlocks are told in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runtime_flows import ring_flow
from runtime_forests import (
    allgather,
    block,
    copy,
    exchange,
    random_forest,
    random_schedule,
    recv,
    ring_forest,
    send,
    star_forest,
    summing,
    with_block,
    with_step,
    write_xml,
)

from collopt.errors import ProgramError
from collopt.runtime import (
    ChunkRange,
    Instruction,
    Program,
    interpret_file,
    lower,
    run_program,
)
from collopt.runtime.programs.interpret import run_interleaving
from collopt.schedules import Forest


@pytest.mark.parametrize(
    "forest",
    [ring_forest(2), ring_forest(7, 3), star_forest(6), random_forest(8, 5, 0), random_forest(5, 40, 3, max_weight=20)],
    ids=["pair", "ring", "star", "random", "weights"],
)
def test_runs_lowered_forests(forest: Forest) -> None:
    """And reports how much it did."""
    program = lower(forest, "allgather")
    run_program(replace(program, in_place=True), interleavings=1)
    report = run_program(program)
    assert report.interleavings == 8
    assert report.steps == program.num_instructions
    # Every chunk reaches every rank but its own once.
    assert report.chunks_sent == program.chunks_per_loop * (forest.num_ranks - 1)


def test_refuses_swapped_chunks() -> None:
    """Statically nothing is wrong with two chunks that change places; the data is."""
    program = lower(star_forest(3, weight=1), "allgather")
    swapped = with_step(program, 1, 0, 0, lambda step: replace(step, target=ChunkRange("output", 2)))
    swapped = with_step(swapped, 1, 1, 0, lambda step: replace(step, target=ChunkRange("output", 0)))
    with pytest.raises(ProgramError, match="rank 1 ends with chunk 0 of rank 2 in output chunk 0; expected chunk 0 of"):
        run_program(swapped)


def test_refuses_a_wrong_source_offset() -> None:
    """The right number of chunks from the wrong place."""
    program = lower(random_forest(3, 2, 0), "allgather")
    number = next(n for n, old in enumerate(program.ranks[0].thread_blocks) if old.send_peer is not None)
    shifted = with_step(
        program, 0, number, 0, lambda step: replace(step, source=ChunkRange("input", 1 - step.source.start))
    )
    with pytest.raises(ProgramError, match="in output chunk"):
        run_program(shifted)


def test_a_deadlock_is_told_as_who_waits_for_whom() -> None:
    """Both ranks receive before they send; the checks are not asked here."""
    program = allgather(
        1,
        [block(recv(1), send("input", 0), to=1, of=1), block(copy(0, 0))],
        [block(recv(0), send("input", 0), to=0, of=0), block(copy(0, 1))],
    )
    expected = (
        r"rank 0 thread block 0 step 0 \(recv from rank 1\) waits for rank 1 thread block 0 step 0 "
        r"\(recv from rank 0\) waits for rank 0 thread block 0 step 0"
    )
    with pytest.raises(ProgramError, match=expected):
        run_interleaving(program, seed=0)


def test_a_full_connection_blocks_its_sender() -> None:
    """Two sends each before the receives: a FIFO of two is enough, one of one is not."""
    steps = [send("input", 0), send("input", 1)]
    program = allgather(
        2,
        [block(*steps, recv(2), recv(3), to=1, of=1), block(copy(0, 0, count=2))],
        [block(*steps, recv(0), recv(1), to=0, of=0), block(copy(0, 2, count=2))],
    )
    run_interleaving(program, seed=0, fifo_depth=2)
    with pytest.raises(ProgramError, match=r"step 1 \(send to rank 1\) waits for rank 1"):
        run_interleaving(program, seed=0, fifo_depth=1)


@pytest.mark.parametrize(
    ("rank", "number", "message"),
    [(1, 2, "waits for something that never happens"), (1, 0, "never receives")],
    ids=["no send", "no receive"],
)
def test_unpaired_transfers_are_found_at_the_latest_when_run(rank: int, number: int, message: str) -> None:
    """A receive without a send hangs, a send without a receive is left over."""
    program = with_block(exchange(), rank, number, lambda old: replace(old, instructions=()))
    with pytest.raises(ProgramError, match=message):
        run_interleaving(program, seed=0)


def test_counts_that_disagree_are_found_at_the_latest_when_run() -> None:
    """Two chunks sent, one received."""
    program = allgather(
        2,
        [block(recv(2), of=1), block(copy(0, 0, count=2)), block(send("input", 0, count=2), to=1)],
        [block(recv(0, count=2), of=0), block(copy(0, 2, count=2)), block(send("input", 0, count=2), to=0)],
    )
    with pytest.raises(ProgramError, match="receives 1 chunks but 2 were sent"):
        run_interleaving(program, seed=0)


@pytest.mark.parametrize("collective", ["reduce_scatter", "reduce", "allreduce"])
def test_a_missing_contribution_is_told(collective: str) -> None:
    """A rank that receives a sum and forgets its own part of it, or passes on only its own."""
    program = lower(random_schedule(collective, 4, 2, 3), collective)
    rank, number, step = _first(program, "recv_reduce")
    broken = with_step(program, rank, number, step, lambda old: replace(old, kind="recv", source=None))
    with pytest.raises(ProgramError, match=rf"ends with chunk \d+ of ranks .* without {rank} in output chunk"):
        run_program(broken)


def _first(program: Program, kind: str) -> tuple[int, int, int]:
    return next(
        (rank.rank, number, step)
        for rank in program.ranks
        for number, thread_block in enumerate(rank.thread_blocks)
        for step, instruction in enumerate(thread_block.instructions)
        if instruction.kind == kind
    )


def test_a_sum_sent_before_it_is_complete_is_found() -> None:
    """Rank 1 sends its partial sum before the last contribution is in: a race, and some runs get it wrong."""
    program = lower(random_schedule("reduce", 5, 1, 11), "reduce")
    rank, number, step = next(
        (rank.rank, number, step)
        for rank in program.ranks
        for number, thread_block in enumerate(rank.thread_blocks)
        for step, instruction in enumerate(thread_block.instructions)
        if instruction.kind == "send" and instruction.depends
    )
    broken = with_step(program, rank, number, step, lambda old: replace(old, depends=()))
    with pytest.raises(ProgramError, match="race"):
        run_program(broken)
    messages = {_outcome(broken, seed) for seed in range(40)}
    assert "right" in messages
    assert all("garbage" in message or "without" in message for message in messages - {"right"})
    assert len(messages) > 1


def _outcome(program: Program, seed: int) -> str:
    try:
        run_interleaving(program, seed=seed)
    except ProgramError as error:
        return str(error)
    return "right"


def test_in_place_memory_is_one() -> None:
    """A sum that begins in the output by a receive destroys the input there; out of place it is right."""
    steps = [
        Instruction("recv", None, ChunkRange("output", 0), 1),
        Instruction("reduce", ChunkRange("input", 0), ChunkRange("output", 0), 1),
    ]
    program = summing([block(*steps, of=1)], [block(send("input", 0), to=0)])
    run_program(program)
    with pytest.raises(ProgramError, match=r"rank 0 ends with chunk 0 of ranks 1 \(2 times\) without 0"):
        run_program(replace(program, in_place=True))


def test_a_local_reduce_adds() -> None:
    """What is received into scratch is added afterwards."""
    steps = [
        Instruction("recv", None, ChunkRange("scratch", 0), 1),
        Instruction("copy", ChunkRange("input", 0), ChunkRange("output", 0), 1),
        Instruction("reduce", ChunkRange("scratch", 0), ChunkRange("output", 0), 1),
    ]
    program = summing([block(*steps, of=1)], [block(send("input", 0), to=0)], scratch=1)
    run_program(program)
    run_program(replace(program, in_place=True))


def test_interprets_files(tmp_path: Path) -> None:
    """What was written to a file runs as it did before."""
    path = tmp_path / "ag.xml"
    program = lower(random_forest(4, 3, 0), "allgather")
    write_xml(program, path)
    assert interpret_file(path) == run_program(program)


def test_a_file_for_calls_out_of_place_is_not_run_in_place(tmp_path: Path) -> None:
    """In place an all-to-all would write to what it has still to send."""
    path = tmp_path / "a2a.xml"
    program = lower(ring_flow(3), "all_to_all")
    write_xml(program, path)
    assert interpret_file(path) == run_program(program)
    with pytest.raises(ProgramError, match="in-place"):
        run_program(replace(program, in_place=True))


def test_interprets_files_that_are_wrong(tmp_path: Path) -> None:
    """An offset that is off by one in the file is found."""
    path = tmp_path / "ag.xml"
    write_xml(lower(ring_forest(2, 1), "allgather"), path)
    text = path.read_text()
    assert 'type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1"' in text
    path.write_text(
        text.replace(
            'type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1"',
            'type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0"',
        )
    )
    with pytest.raises(ProgramError, match=r"race|never writes"):
        interpret_file(path)
