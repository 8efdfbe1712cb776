"""Races, unwritten reads and unwritten outputs, and orders that only exist through other ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runtime_forests import allgather, block, copy, recv, send

from collopt.errors import ProgramError
from collopt.runtime import ChunkRange, Dependency, Instruction, Program, check_program, run_program
from collopt.runtime.programs.interpret import run_interleaving


def _forwarding(*depends: tuple[int, int]) -> Program:
    """Rank 1 sends its own chunk from the output, into which it copied it."""
    return allgather(
        1,
        [block(recv(1), of=1), block(copy(0, 0)), block(send("input", 0), to=1)],
        [block(recv(0), of=0), block(copy(0, 1)), block(send("output", 1, *depends), to=0)],
    )


def test_a_send_of_copied_data_has_to_wait_for_the_copy() -> None:
    """With the dependency it passes, without it the message names both steps and the chunk."""
    run_program(_forwarding((1, 0)))
    with pytest.raises(
        ProgramError, match="rank 1 thread block 1 step 0 writes output chunk 1 and rank 1 thread block 2"
    ):
        check_program(_forwarding())
    with pytest.raises(ProgramError, match=r"race"):
        check_program(_forwarding((0, 0)))


def test_a_race_is_what_some_interleaving_gets_wrong() -> None:
    """The race above is real: among a few runs some give other data than others."""
    outcomes = set()
    for seed in range(20):
        try:
            run_interleaving(_forwarding(), seed=seed)
            outcomes.add("right")
        except ProgramError:
            outcomes.add("wrong")
    assert outcomes == {"right", "wrong"}


def test_two_writes_of_one_chunk_race() -> None:
    """A chunk that is received and copied at the same time."""
    program = allgather(
        1,
        [block(recv(1), of=1), block(copy(0, 0), copy(0, 1)), block(send("input", 0), to=1)],
        [block(recv(0), of=0), block(copy(0, 1)), block(send("input", 0), to=0)],
    )
    with pytest.raises(ProgramError, match=r"race: .*writes output chunk 1.*writes it"):
        check_program(program)


def test_overwriting_has_to_wait_for_the_reader() -> None:
    """Rank 0's scratch is used twice; the second receive has to wait until the first data has been copied on."""

    def program(*waits: tuple[int, int]) -> Program:
        out = [
            Instruction("copy", ChunkRange("scratch", 0), ChunkRange("output", 2 + chunk), 1, (Dependency(0, chunk),))
            for chunk in range(2)
        ]
        return allgather(
            2,
            [
                block(recv(0, buffer="scratch"), recv(0, *waits, buffer="scratch"), of=1),
                block(*out),
                block(copy(0, 0, count=2)),
                block(send("input", 0, count=2), to=1),
            ],
            [
                block(recv(0, count=2), of=0),
                block(copy(0, 2, count=2)),
                block(send("input", 0), send("input", 1), to=0),
            ],
            scratch=1,
        )

    run_program(program((1, 0)))
    for in_place in (False, True):
        with pytest.raises(ProgramError, match=r"race: .*reads scratch chunk 0.*writes it"):
            check_program(replace(program(), in_place=in_place))


def test_a_race_can_be_about_the_last_of_several_chunks() -> None:
    """One step writes two chunks, and another one reads the second of them."""
    blocks = [
        block(recv(2, count=2), of=1),
        block(copy(0, 0, count=2)),
        block(send("input", 0), send("output", 1), to=1),
    ]
    other = [block(recv(0), recv(1), of=0), block(copy(0, 2, count=2)), block(send("input", 0, count=2), to=0)]
    with pytest.raises(ProgramError, match=r"race: .*writes output chunk 1 and .*reads it"):
        check_program(allgather(2, blocks, other))


def test_an_order_through_another_rank_counts() -> None:
    """Rank 1 reads what it copied after an answer from rank 0 that was asked for after the copy."""

    def program(*answers_after: tuple[int, int]) -> Program:
        return allgather(
            2,
            [
                block(recv(3), of=1),
                block(send("input", 0, *answers_after), to=1, channel=1),
                block(recv(2), of=1, channel=1),
                block(copy(0, 0, count=2)),
                block(send("input", 1), to=1, channel=3),
            ],
            [
                block(copy(0, 2), send("input", 1), to=0),
                block(recv(0), send("output", 2), of=0, to=0, channel=1),
                block(recv(1), of=0, channel=3),
                block(copy(1, 3)),
            ],
        )

    run_program(program((0, 0)))
    with pytest.raises(ProgramError, match=r"race: rank 1 .*output chunk 2"):
        check_program(program())


def test_a_send_does_not_wait_for_its_receive() -> None:
    """The receive of a buffered transfer may be late, so what comes before it at the receiver orders nothing.

    Rank 1 copies, then receives on channel 0; rank 0 sends on channel 0, then on channel 1; rank 1 receives that and
    reads the copy.  If sends waited for their receives the copy would come first.
    """
    program = allgather(
        2,
        [
            block(send("input", 0), to=1),
            block(send("input", 1, (0, 0)), to=1, channel=1),
            block(recv(2), of=1, channel=1),
            block(recv(3), of=1, channel=2),
            block(copy(0, 0, count=2)),
        ],
        [
            block(copy(0, 2), recv(0), of=0),
            block(recv(1), send("output", 2), of=0, to=0, channel=1),
            block(send("input", 1), to=0, channel=2),
            block(copy(1, 3)),
        ],
    )
    with pytest.raises(ProgramError, match=r"race: rank 1 .*output chunk 2"):
        check_program(program)


def test_refuses_reading_what_nobody_wrote() -> None:
    """Scratch that is sent before anything is in it."""
    program = allgather(
        1,
        [block(recv(1), of=1), block(copy(0, 0)), block(send("scratch", 0), to=1)],
        [block(recv(0), of=0), block(copy(0, 1)), block(send("input", 0), to=0)],
        scratch=1,
    )
    with pytest.raises(ProgramError, match="rank 0 thread block 2 step 0 reads scratch chunk 0"):
        check_program(program)


def test_refuses_output_that_stays_unwritten() -> None:
    """Rank 0 forgets its own chunk."""
    program = allgather(
        1,
        [block(recv(1), of=1), block(send("input", 0), to=1)],
        [block(recv(0), of=0), block(copy(0, 1)), block(send("input", 0), to=0)],
    )
    with pytest.raises(ProgramError, match="rank 0 never writes output chunk 0 of 2"):
        check_program(program)


def test_input_and_output_in_place_are_one_memory_on_every_rank() -> None:
    """What rank 1 sends from its input is chunk 1 of its output, which nothing keeps from being overwritten."""
    overwriting = Instruction("copy", ChunkRange("output", 0), ChunkRange("output", 1), 1, (Dependency(0, 0),))
    program = allgather(
        1,
        [block(recv(1), of=1), block(copy(0, 0)), block(send("input", 0), to=1)],
        [block(recv(0), of=0), block(overwriting), block(send("input", 0), to=0)],
    )
    check_program(program)
    with pytest.raises(ProgramError, match=r"race: rank 1 .* in-place chunk 1 "):
        check_program(replace(program, in_place=True))
