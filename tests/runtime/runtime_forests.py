"""Forests made by hand and at random, and small programs, for the tests of the runtime."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from collopt.runtime import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock, to_xml_text
from collopt.schedules import Allreduce, Forest, TreeSchedule

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce")
Tree = tuple[int, int, list[tuple[int, ...]]]


def ring_forest(ranks: int, trees_per_root: int = 1) -> Forest:
    """Each root's data goes once around the ring, all of it on one tree."""
    return Forest.from_paths(
        ranks,
        trees_per_root,
        [
            (root, trees_per_root, [((root + hop) % ranks, (root + hop + 1) % ranks) for hop in range(ranks - 1)])
            for root in range(ranks)
        ],
    )


def star_forest(ranks: int, weight: int = 1) -> Forest:
    """Every root sends to every other rank itself, through a switch numbered after the ranks."""
    return Forest.from_paths(
        ranks,
        weight,
        [(root, weight, [(root, ranks, rank) for rank in range(ranks) if rank != root]) for root in range(ranks)],
    )


def random_forest(ranks: int, trees_per_root: int, seed: int, max_weight: int = 1) -> Forest:
    """Random spanning trees with random weights of at most `max_weight`."""
    chance = random.Random(seed)
    trees: list[Tree] = []
    for root in range(ranks):
        left = trees_per_root
        while left:
            weight = min(left, chance.randint(1, max_weight))
            left -= weight
            trees.append((root, weight, _random_tree(chance, ranks, root)))
    chance.shuffle(trees)
    return Forest.from_paths(ranks, trees_per_root, trees)


def weighted_forest(
    root_weights: list[int], trees_per_root: int, seed: int, max_weight: int = 3, direction: str = "broadcast"
) -> Forest:
    """Random spanning trees for shards of these relative sizes."""
    chance = random.Random(seed)
    trees: list[Tree] = []
    for root, size in enumerate(root_weights):
        left = trees_per_root * size
        while left:
            weight = min(left, chance.randint(1, max_weight))
            left -= weight
            trees.append((root, weight, _random_tree(chance, len(root_weights), root)))
    chance.shuffle(trees)
    forest = Forest.from_paths(len(root_weights), trees_per_root, trees)
    return replace(forest, root_weights=np.array(root_weights), direction=direction)


def random_schedule(collective: str, ranks: int, trees_per_root: int, seed: int, root: int = 0) -> TreeSchedule:
    """Random trees for a collective, with equal shards where it has several."""
    weights = [1] * ranks
    if collective in ("broadcast", "reduce"):
        weights = [int(rank == root) for rank in range(ranks)]
    if collective == "allreduce":
        # Different trees, and another number of them, on the way back.
        return allreduce_at(weights, trees_per_root, seed)
    direction = "reduce" if collective.startswith("reduce") else "broadcast"
    return weighted_forest(weights, trees_per_root, seed, direction=direction)


def allreduce_at(root_weights: list[int], trees_per_root: int, seed: int) -> Allreduce:
    """Random trees that add up parts of these relative sizes at their roots, and others that spread them."""
    return Allreduce(
        weighted_forest(root_weights, trees_per_root, seed, direction="reduce"),
        weighted_forest(root_weights, trees_per_root + 1, seed + 1),
    )


def ring_allreduce_at_one_rank() -> Allreduce:
    """All data of a ring of four is added up at rank 2, half of it along each of two trees, and goes back likewise."""
    trees = [(2, 1, [(2, 3), (3, 0), (0, 1)]), (2, 1, [(2, 1), (1, 0), (0, 3)])]
    spread = replace(Forest.from_paths(4, 2, trees), root_weights=np.array([0, 0, 1, 0]))
    return Allreduce(replace(spread, direction="reduce"), spread)


@st.composite
def schedules(draw: st.DrawFn, max_ranks: int = 5, max_trees: int = 4) -> tuple[TreeSchedule, str]:
    """Random trees and the collective that they are for, some with unequal shards or with ranks without one."""
    collective = draw(st.sampled_from(COLLECTIVES))
    ranks, trees, seed = draw(st.integers(2, max_ranks)), draw(st.integers(1, max_trees)), draw(st.integers(0, 2**32))
    if collective not in ("broadcast", "reduce") and draw(st.booleans()):
        weights = draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks).filter(any))
        if collective == "allreduce":
            return allreduce_at(weights, trees, seed), collective
        direction = "broadcast" if collective == "allgather" else "reduce"
        return weighted_forest(weights, trees, seed, direction=direction), collective
    return random_schedule(collective, ranks, trees, seed, draw(st.integers(0, ranks - 1))), collective


def _random_tree(chance: random.Random, ranks: int, root: int) -> list[tuple[int, ...]]:
    others = [rank for rank in range(ranks) if rank != root]
    chance.shuffle(others)
    reached, paths = [root], []
    for rank in others:
        paths.append((chance.choice(reached), rank))
        reached.append(rank)
    return paths


@st.composite
def forests(draw: st.DrawFn, max_ranks: int = 6, max_trees: int = 6, max_weight: int = 3) -> Forest:
    """Random spanning trees on 2 to `max_ranks` ranks, weights up to `max_weight`."""
    return random_forest(
        draw(st.integers(2, max_ranks)),
        draw(st.integers(1, max_trees)),
        draw(st.integers(0, 2**32)),
        draw(st.integers(1, max_weight)),
    )


def send(buffer: str, start: int, *depends: tuple[int, int], count: int = 1) -> Instruction:
    """Send `count` chunks of `buffer` from `start` on."""
    return Instruction("send", ChunkRange(buffer, start), None, count, _waits(depends))


def recv(start: int, *depends: tuple[int, int], count: int = 1, buffer: str = "output") -> Instruction:
    """Receive `count` chunks into `buffer` from `start` on."""
    return Instruction("recv", None, ChunkRange(buffer, start), count, _waits(depends))


def recv_reduce(
    source: tuple[str, int], target: tuple[str, int], *depends: tuple[int, int], count: int = 1
) -> Instruction:
    """Add `count` chunks of `source` to what comes, and keep the sums in `target`."""
    return Instruction("recv_reduce", ChunkRange(*source), ChunkRange(*target), count, _waits(depends))


def copy(source: int, target: int, *depends: tuple[int, int], count: int = 1) -> Instruction:
    """Copy `count` chunks of the input to the output."""
    return Instruction("copy", ChunkRange("input", source), ChunkRange("output", target), count, _waits(depends))


def _waits(depends: tuple[tuple[int, int], ...]) -> tuple[Dependency, ...]:
    return tuple(Dependency(*wait) for wait in depends)


def block(*instructions: Instruction, to: int | None = None, of: int | None = None, channel: int = 0) -> ThreadBlock:
    """Make a thread block that sends to `to` and receives from `of`."""
    return ThreadBlock(to, of, channel, instructions)


def allgather(shard: int, *ranks: list[ThreadBlock], scratch: int = 0) -> Program:
    """Make an allgather program of `shard` chunks per rank from each rank's thread blocks."""
    total = shard * len(ranks)
    return Program(
        "by-hand",
        "allgather",
        len(ranks),
        total,
        tuple(RankProgram(rank, shard, total, scratch, tuple(blocks)) for rank, blocks in enumerate(ranks)),
    )


def summing(*ranks: list[ThreadBlock], chunks: int = 1, root: int = 0, scratch: int = 0) -> Program:
    """Make a reduce program from each rank's thread blocks."""
    return Program(
        "by-hand",
        "reduce",
        len(ranks),
        chunks,
        tuple(
            RankProgram(rank, chunks, chunks if rank == root else 0, scratch, tuple(blocks))
            for rank, blocks in enumerate(ranks)
        ),
        shards=tuple(chunks if rank == root else 0 for rank in range(len(ranks))),
    )


def star_sum(*second_waits: tuple[int, int]) -> Program:
    """Rank 0 adds up what ranks 1 and 2 send it; the second addition has to wait for the first, block 0 step 0."""
    return summing(
        [
            block(recv_reduce(("input", 0), ("output", 0)), of=1),
            block(recv_reduce(("output", 0), ("output", 0), *second_waits), of=2),
        ],
        [block(send("input", 0), to=0)],
        [block(send("input", 0), to=0)],
    )


def exchange() -> Program:
    """Two ranks with one chunk each: copy the own one, send it, receive the other's."""
    return allgather(
        1,
        [block(recv(1), of=1), block(copy(0, 0)), block(send("input", 0), to=1)],
        [block(recv(0), of=0), block(copy(0, 1)), block(send("input", 0), to=0)],
    )


def with_block(program: Program, rank: int, number: int, change: Callable[[ThreadBlock], ThreadBlock]) -> Program:
    """Change one thread block of a program."""
    blocks = list(program.ranks[rank].thread_blocks)
    blocks[number] = change(blocks[number])
    return with_blocks(program, rank, blocks)


def with_blocks(program: Program, rank: int, blocks: list[ThreadBlock]) -> Program:
    """Give one rank of a program other thread blocks."""
    ranks = list(program.ranks)
    ranks[rank] = replace(ranks[rank], thread_blocks=tuple(blocks))
    return replace(program, ranks=tuple(ranks))


def with_step(
    program: Program, rank: int, number: int, step: int, change: Callable[[Instruction], Instruction]
) -> Program:
    """Change one step of a program."""

    def changed(old: ThreadBlock) -> ThreadBlock:
        steps = list(old.instructions)
        steps[step] = change(steps[step])
        return replace(old, instructions=tuple(steps))

    return with_block(program, rank, number, changed)


def write_xml(program: Program, path: Path, **options: Any) -> None:
    """Write a program as MSCCL XML."""
    path.write_text(to_xml_text(program, **options))
