"""Each limit of each MSCCL runtime, from both sides: what the lint of a written file refuses is not written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from runtime_forests import (
    allgather,
    block,
    copy,
    exchange,
    random_schedule,
    recv,
    send,
    star_forest,
    weighted_forest,
    with_blocks,
)

from collopt.errors import TooLargeError, UnsupportedError
from collopt.runtime import Program, lower, to_xml_text, without_receive_reduce
from collopt.runtime.msccl.limits import RUNTIMES
from collopt.schedules import Forest


def pair(*weights: int, **options: int) -> Program:
    """Two ranks, each with a tree of each weight."""
    trees = [(root, weight, [(root, 1 - root)]) for root in range(2) for weight in weights]
    return lower(Forest.from_paths(2, sum(weights), trees), "allgather", **options)


def with_nops(most: int) -> Program:
    """A thread block of so many steps, of which the last waits for three things, which takes two nops."""
    copies = [block(copy(chunk, chunk)) for chunk in range(3)]
    steps = [*[send("input", 0)] * (most - 3), send("output", 0, (0, 0), (1, 0), (2, 0), count=3)]
    receives = [recv(0)] * (most - 3)
    return allgather(
        3,
        [*copies, block(*steps, to=1), block(recv(3, count=3), of=1)],
        [block(copy(0, 3, count=3)), block(send("input", 0, count=3), to=0), block(*receives, recv(0, count=3), of=0)],
    )


def waiting_for(number: int) -> Program:
    """An exchange in which a step waits for a thread block of this number."""
    blocks = [block(recv(1), of=1), *[block()] * (number - 1), block(copy(0, 0))]
    return with_blocks(exchange(), 0, [*blocks, block(send("output", 0, (number, 0)), to=1)])


def with_idle_blocks(number: int, *channels: int) -> Program:
    """An exchange with so many thread blocks on rank 0, and idle ones on some channels."""
    program = exchange()
    blocks = list(program.ranks[0].thread_blocks)
    idle = [block(channel=channel) for channel in channels]
    return with_blocks(program, 0, [*blocks, *idle, *[block()] * (number - len(blocks) - len(idle))])


def crowded(peers: int, channels: int = 1) -> Program:
    """A star whose center sends to so many peers on one channel."""
    program = lower(star_forest(peers + 1), "allgather")
    ranks = [
        replace(rank, thread_blocks=tuple(replace(old, channel=old.channel % channels) for old in rank.thread_blocks))
        for rank in program.ranks
    ]
    return replace(program, ranks=tuple(ranks))


@pytest.mark.parametrize(
    ("program", "runtime", "limit", "words"),
    [
        *[
            (lambda most: pair(*[1] * most, max_steps=most), runtime, most, f"has {most + 1} steps; {runtime} takes")
            for runtime, most in (("msccl", 256), ("msccl-executor-nccl", 64), ("rccl", 64))
        ],
        *[
            (with_idle_blocks, runtime, most, f"rank 0 has {most + 1} thread blocks.* runs {most} at once.*forestcoll")
            for runtime, most in (("msccl", 108), ("msccl-executor-nccl", 108))
        ],
        (with_idle_blocks, "rccl", 64, "rank 0 has 65 thread blocks; rccl .* takes 64"),
        *[
            (lambda most: pair(*[1] * most, channels=most), runtime, 32, f"nchannels is 33; {runtime} .*has 32")
            for runtime in ("msccl", "msccl-executor-nccl")
        ],
        (lambda most: with_idle_blocks(5, most - 1), "rccl", 32, "nchannels is 33; rccl .*has 32"),
        (lambda most: pair(most, 1, max_count=most), "msccl", 71, "cnt is 72; expected 1 to 71.*max_count"),
        (with_nops, "rccl", 64, "rank 0 thread block 3 has 65 steps"),
        (waiting_for, "wide", 127, "waits for thread block 128; numbers up to 127 are kept"),
        (crowded, "msccl", 32, "33 thread blocks that send to a rank on channel 0"),
    ],
)
def test_the_limit_is_written_and_one_more_refused(
    program: Callable[[int], Program], runtime: str, limit: int, words: str
) -> None:
    """The refusal says the number, the limit and what to change."""
    options: dict[str, Any] = {"runtime": runtime}
    if runtime == "wide":
        options = {"max_thread_blocks": 1024}
    to_xml_text(program(limit), **options)
    with pytest.raises(TooLargeError, match=words):
        to_xml_text(program(limit + 1), **options)


def test_the_number_of_thread_blocks_can_be_set_to_the_gpu_at_hand() -> None:
    """It is 132 on an H100, 78 on an H20, but never more than the parser takes."""
    program = lower(star_forest(36), "allgather")
    assert len(program.ranks[0].thread_blocks) == 71
    to_xml_text(program, max_thread_blocks=71)
    with pytest.raises(TooLargeError, match="runs 70 at once"):
        to_xml_text(program, max_thread_blocks=70)


@pytest.mark.parametrize(
    ("program", "options", "words"),
    [
        (
            exchange(),
            {"runtime": "rccl", "max_thread_blocks": 132},
            "is 132; rccl takes from 1 to 64",
        ),
        (exchange(), {"max_thread_blocks": 0}, "max_thread_blocks is 0"),
        *[(exchange(), {"runtime": name}, "runtime is .*msccl, msccl-executor-nccl, rccl") for name in ("", None)],
        *[
            (lower(weighted_forest([1, 2, 0], 1, 0), "allgather"), {"runtime": runtime}, "shards have 0 to 2 chunks")
            for runtime in RUNTIMES
        ],
    ],
)
def test_other_refusals(program: Program, options: dict[str, Any], words: str) -> None:
    """Options, and shards of several sizes, whose places MSCCL works out from the number of ranks."""
    with pytest.raises(UnsupportedError, match=words):
        to_xml_text(program, **options)


def test_rccl_takes_no_step_that_receives_and_adds() -> None:
    """It would refuse to launch; the other runtimes take it."""
    program = lower(random_schedule("reduce_scatter", 3, 1, 0), "reduce_scatter")
    to_xml_text(program, runtime="msccl")
    with pytest.raises(UnsupportedError, match=r"receive and add, which rccl .* without_receive_reduce first"):
        to_xml_text(program, runtime="rccl")
    to_xml_text(without_receive_reduce(program), runtime="rccl")
