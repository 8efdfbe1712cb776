"""Each limit of each runtime, from both sides."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from runtime_forests import (
    allgather,
    block,
    copy,
    exchange,
    random_schedule,
    recv,
    ring_forest,
    send,
    star_forest,
    weighted_forest,
    with_blocks,
)

from collopt.errors import UnsupportedError
from collopt.runtime import Program, lower, to_xml_text, without_receive_reduce
from collopt.runtime.msccl.limits import RUNTIMES, check_limits, runtime_limits
from collopt.schedules import ALLGATHER, REDUCE_SCATTER, Forest

RCCL = runtime_limits("rccl")


def pair(chunks: int) -> Forest:
    """Two ranks with `chunks` trees of weight 1 each."""
    return Forest.from_paths(2, chunks, [(root, 1, [(root, 1 - root)]) for root in range(2) for _ in range(chunks)])


@pytest.mark.parametrize(("runtime", "most"), [("msccl", 256), ("msccl-executor-nccl", 64), ("rccl", 64)])
def test_steps_of_one_thread_block(runtime: str, most: int) -> None:
    """The limit itself passes, one more is refused with what to do."""
    to_xml_text(lower(pair(most), "allgather", max_steps=most), runtime=runtime)
    too_long = lower(pair(most + 1), "allgather", max_steps=most + 1)
    with pytest.raises(UnsupportedError, match=f"has {most + 1} steps, {runtime} takes {most}; .*max_steps={most}"):
        to_xml_text(too_long, runtime=runtime)
    to_xml_text(lower(pair(most + 1), "allgather", max_steps=most), runtime=runtime)


def test_nops_count_as_steps() -> None:
    """62 sends and one that waits for three things: with its two nops that makes 65."""

    def program(sends: int) -> Program:
        own = [block(copy(0, 0)) for _ in range(3)]
        last = send("output", 0, (0, 0), (1, 0), (2, 0))
        return allgather(1, [*own, block(*[send("input", 0)] * (sends - 1), last, to=1)], [block()])

    check_limits(program(62), RCCL)
    with pytest.raises(UnsupportedError, match="rank 0 thread block 3 has 65 steps"):
        check_limits(program(63), RCCL)


@pytest.mark.parametrize(("runtime", "most"), [("msccl", 108), ("msccl-executor-nccl", 108), ("rccl", 64)])
def test_thread_blocks_of_one_rank(runtime: str, most: int) -> None:
    """All blocks have to run at once."""
    program = exchange()
    blocks = list(program.ranks[0].thread_blocks)
    idle = block()
    fits = with_blocks(program, 0, blocks + [idle] * (most - 3))
    to_xml_text(fits, runtime=runtime)
    refusal = (
        f"rank 0 has {most + 1} thread blocks, {runtime} runs {most} at once; .*'forestcoll' with trees_per_root=1"
    )
    with pytest.raises(UnsupportedError, match=refusal):
        to_xml_text(with_blocks(program, 0, blocks + [idle] * (most - 2)), runtime=runtime)


def test_the_number_of_thread_blocks_can_be_set_to_the_gpu_at_hand() -> None:
    """132 SMs of an H100, 78 of an H20, but never more than the parser takes."""
    program = lower(star_forest(36), "allgather")
    assert len(program.ranks[0].thread_blocks) == 71
    with pytest.raises(UnsupportedError, match="runs 70 at once"):
        to_xml_text(program, max_thread_blocks=70)
    to_xml_text(program, max_thread_blocks=71)
    with pytest.raises(UnsupportedError, match=r"max_thread_blocks is 132; rccl takes from 1 to 64"):
        to_xml_text(program, runtime="rccl", max_thread_blocks=132)
    with pytest.raises(UnsupportedError, match="max_thread_blocks is 0"):
        to_xml_text(program, max_thread_blocks=0)


@pytest.mark.parametrize("runtime", ["msccl", "msccl-executor-nccl"])
def test_channels(runtime: str) -> None:
    """Thirty-two."""
    to_xml_text(lower(pair(32), "allgather", channels=32), runtime=runtime)
    with pytest.raises(UnsupportedError, match=f"33 channels, {runtime} has 32"):
        to_xml_text(lower(pair(33), "allgather", channels=33), runtime=runtime)


def test_channels_of_rccl_are_counted_not_their_blocks() -> None:
    """One block on channel 32 is one too many, although blocks are left."""
    program = exchange()
    idle = [*program.ranks[0].thread_blocks, block(channel=31)]
    to_xml_text(with_blocks(program, 0, idle), runtime="rccl")
    with pytest.raises(UnsupportedError, match="33 channels, rccl has 32"):
        to_xml_text(with_blocks(program, 0, [*idle, block(channel=32)]), runtime="rccl")


def test_chunks_of_one_step() -> None:
    """71 pass, 72 do not."""
    trees = [(root, weight, [(root, 1 - root)]) for root in range(2) for weight in (71, 1)]
    to_xml_text(lower(Forest.from_paths(2, 72, trees), "allgather"))
    trees = [(root, weight, [(root, 1 - root)]) for root in range(2) for weight in (72, 1)]
    with pytest.raises(UnsupportedError, match="moves 72 chunks, MSCCL takes 71; lower it with max_count=71"):
        to_xml_text(lower(Forest.from_paths(2, 73, trees), "allgather", max_count=72))


def test_connections_of_one_channel() -> None:
    """32 peers per direction and channel; the refusal names the direction."""
    program = lower(star_forest(33), "allgather")
    to_xml_text(program)
    crowded = lower(star_forest(34), "allgather")
    ranks = [
        replace(rank, thread_blocks=tuple(replace(old, channel=0) for old in rank.thread_blocks))
        for rank in crowded.ranks
    ]
    with pytest.raises(UnsupportedError, match="rank 0 sends to 33 peers on channel 0"):
        to_xml_text(replace(crowded, ranks=tuple(ranks)))


def test_xml_elements_of_one_rank() -> None:
    """A parser keeps 4095: 1 + 2 ranks + blocks + steps."""

    def program(copies: int) -> Program:
        # The receive and the send, and as many copies of single chunks in blocks of 256 as asked for.
        blocks = [
            block(*(copy(chunk, chunk) for chunk in range(first, min(first + 256, copies))))
            for first in range(0, copies, 256)
        ]
        return allgather(copies, [block(recv(copies), of=1), block(send("input", 0), to=1), *blocks], [block()])

    # 1 + 2 + (2 + 16) blocks + 2 transfers leave 4072 for copies.
    check_limits(program(4072), runtime_limits("msccl"))
    with pytest.raises(UnsupportedError, match="rank 0 needs 4096 XML elements, MSCCL's parser keeps 4095"):
        check_limits(program(4073), runtime_limits("msccl"))


def test_awaited_thread_blocks() -> None:
    """Blocks are awaited by an int8, so 127 is the last that can be."""

    def program(target: int) -> Program:
        blocks = [block(copy(0, 0)) for _ in range(target + 1)]
        return allgather(1, [*blocks, block(send("output", 0, (target, 0)), to=1)], [block()])

    wide = runtime_limits("msccl-executor-nccl")
    check_limits(program(127), wide, max_thread_blocks=1024)
    with pytest.raises(UnsupportedError, match="waits for thread block 128, MSCCL can name blocks 0 to 127"):
        check_limits(program(128), wide, max_thread_blocks=1024)


@pytest.mark.parametrize("runtime", ["nccl", "", None, ["rccl"]])
def test_unknown_runtimes_are_refused_with_the_known_ones(runtime: object) -> None:
    """Whatever is asked for."""
    with pytest.raises(UnsupportedError, match=re.escape("expected one of msccl, msccl-executor-nccl, rccl")):
        runtime_limits(runtime)


def test_collectives_are_spelt_as_each_runtime_wants_them() -> None:
    """microsoft/msccl and its descendants differ."""
    assert RUNTIMES["msccl"].collectives[REDUCE_SCATTER] == "reduce_scatter"
    assert RUNTIMES["rccl"].collectives[REDUCE_SCATTER] == "reducescatter"
    assert {limits.collectives[ALLGATHER] for limits in RUNTIMES.values()} == {"allgather"}


def test_rccl_takes_no_step_that_receives_and_adds() -> None:
    """It would refuse to launch; the other runtimes take it."""
    program = lower(random_schedule("reduce_scatter", 3, 1, 0), "reduce_scatter")
    to_xml_text(program, runtime="msccl")
    with pytest.raises(UnsupportedError, match=r"receives and adds, which rccl .* without_receive_reduce first"):
        to_xml_text(program, runtime="rccl")
    to_xml_text(without_receive_reduce(program), runtime="rccl")


@pytest.mark.parametrize("runtime", list(RUNTIMES))
def test_shards_of_one_size(runtime: str) -> None:
    """MSCCL works out where a shard is from the number of ranks."""
    program = lower(weighted_forest([1, 2, 0], 1, 0), "allgather")
    with pytest.raises(UnsupportedError, match=f"shards have 0 to 2 chunks; in {runtime} all shards are of one size"):
        to_xml_text(program, runtime=runtime)


def test_a_ring_of_many_ranks_fits() -> None:
    """Three blocks and 3 (N - 1) steps or so."""
    to_xml_text(lower(ring_forest(64), "allgather"), runtime="rccl")
