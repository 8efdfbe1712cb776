"""Programs as values: equality, digests and what they print."""

from __future__ import annotations

from dataclasses import replace

from runtime_forests import exchange, ring_forest, with_step

from collopt.runtime import ChunkRange, lower


def test_programs_that_differ_only_in_name_are_equal() -> None:
    """The name is for people."""
    program = exchange()
    renamed = replace(program, name="other")
    assert renamed == program
    assert renamed.digest == program.digest
    assert hash(renamed) == hash(program)


def test_any_change_of_a_step_changes_the_digest() -> None:
    """Caches and the agreement between ranks go by the digest."""
    program = lower(ring_forest(3, 2), "allgather")
    changed = [
        with_step(program, 0, 0, 0, lambda step: replace(step, count=2)),
        with_step(program, 0, 0, 0, lambda step: replace(step, target=ChunkRange("scratch", step.target.start))),
        with_step(program, 0, 2, 1, lambda step: replace(step, depends=())),
        replace(program, chunks_per_loop=9),
    ]
    digests = {program.digest, *(other.digest for other in changed)}
    assert len(digests) == 1 + len(changed)


def test_a_program_counts_its_steps_and_channels() -> None:
    """Two ranks, each with a receive, a copy and a send on channel 0."""
    program = exchange()
    assert program.num_instructions == 6
    assert program.num_channels == 1
    assert "2 ranks" in str(program)
