"""Damages MSCCL files in every way that comes to mind, and judges by other means whether that changes what they do."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from collopt.runtime import ChunkRange, Dependency, Instruction, Program, RankProgram

__all__ = ["Mutant", "mutants", "same_meaning"]


class Mutant(NamedTuple):
    """A changed file and how it was changed."""

    how: str
    text: str


NUMBERS = {
    "algo": ("nchannels", "nchunksperloop", "ngpus"),
    "gpu": ("id", "i_chunks", "o_chunks", "s_chunks"),
    "tb": ("id", "send", "recv", "chan"),
    "step": ("srcoff", "dstoff", "cnt", "depid", "deps"),
}
WORDS = {
    "coll": ("allgather", "reduce_scatter", "reducescatter", "allreduce", "broadcast", "alltoall", "gossip"),
    "proto": ("simple", "LL256"),
    "type": ("s", "r", "cpy", "re", "rrc", "rcs", "nop"),
    "srcbuf": ("i", "o", "s"),
    "dstbuf": ("i", "o", "s"),
    "hasdep": ("0", "1"),
}


def mutants(text: str) -> Iterator[Mutant]:
    """Every single change: attributes dropped or changed, waits cut, steps swapped, dropped and doubled."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = re.match(r" *<([a-z]+) ", line)
        if not found:
            continue
        for how, changed in _changed_lines(found[1], line):
            yield Mutant(f"line {number + 1}: {how}", _joined(lines[:number], [changed], lines[number + 1 :]))
        if found[1] == "step":
            yield Mutant(f"line {number + 1}: dropped", _joined(lines[:number], lines[number + 1 :]))
            yield Mutant(f"line {number + 1}: doubled", _joined(lines[:number], [line], lines[number:]))
            if "<step" in lines[number + 1]:
                swapped = [_numbered(lines[number + 1], line), _numbered(line, lines[number + 1])]
                yield Mutant(f"line {number + 1}: swapped", _joined(lines[:number], swapped, lines[number + 2 :]))


def _joined(*parts: list[str]) -> str:
    return "\n".join(line for part in parts for line in part) + "\n"


def _numbered(step: str, like: str) -> str:
    """A step with the number of another."""
    (number,) = re.findall(r' s="(\d+)"', like)
    return re.sub(r' s="\d+"', f' s="{number}"', step)


def _changed_lines(tag: str, line: str) -> Iterator[tuple[str, str]]:
    for name, value in re.findall(r' ([A-Za-z_]+)="([^"]*)"', line):
        old = f' {name}="{value}"'
        if name not in ("name", "minBytes", "maxBytes", "s"):
            yield f"{name} dropped", line.replace(old, "", 1)
        values: tuple[str, ...] = WORDS.get(name, ())
        if name in NUMBERS[tag]:
            # The loaders' numbers end at the first letter, so the first garbage is 0, and the other one another number.
            values = (str(int(value) - 1), str(int(value) + 1), "-1", "garbage", f"{int(value) + 1}garbage")
        for other in sorted(set(values) - {value}):
            yield f"{name} {value} to {other}", line.replace(old, f' {name}="{other}"', 1)
    if ' depid="-1"' not in line and tag == "step":
        yield "wait cut", re.sub(r' depid="\d+" deps="\d+"', ' depid="-1" deps="-1"', line)


class _Traced(NamedTuple):
    """A step, named by what it does and how many like it its rank has done before."""

    rank: int
    does: tuple[object, ...]
    times: int


def same_meaning(original: Program, mutant: Program, in_place: bool = False) -> bool:
    """Whether two programs do the same: the same steps, and in the same order wherever order matters.

    This is trace equivalence (Mazurkiewicz): steps that touch different chunks and different ends of connections may
    change places.  More scratch than is used changes nothing, and in place, input and output are one memory.
    """
    if in_place:
        original, mutant = _in_one_memory(original), _in_one_memory(mutant)
    if replace(original, ranks=()) != replace(mutant, ranks=()):
        return False
    return _conflicts(_copied_once(original)) == _conflicts(_copied_once(mutant))


def _in_one_memory(program: Program) -> Program:
    """Name chunks of input and output by their number in the collective."""

    def named(end: ChunkRange | None, rank: int) -> ChunkRange | None:
        if end is None or end.buffer == "scratch":
            return end
        ranges = program.layout.input_range if end.buffer == "input" else program.layout.output_range
        return ChunkRange("output", end.start + ranges(rank)[0])

    return replace(
        program,
        ranks=tuple(
            replace(
                rank,
                thread_blocks=tuple(
                    replace(
                        block,
                        instructions=tuple(
                            replace(step, source=named(step.source, rank.rank), target=named(step.target, rank.rank))
                            for step in block.instructions
                        ),
                    )
                    for block in rank.thread_blocks
                ),
            )
            for rank in program.ranks
        ),
    )


def _copied_once(program: Program) -> Program:
    """Leave out a copy that only repeats the step before it; what is there already is copied once more."""
    return replace(program, ranks=tuple(_rank_copied_once(rank) for rank in program.ranks))


def _rank_copied_once(rank: RankProgram) -> RankProgram:
    numbers, kept = {}, []
    for number, block in enumerate(rank.thread_blocks):
        steps: list[Instruction] = []
        for index, step in enumerate(block.instructions):
            before = steps[-1] if steps else None
            if before is None or step.kind != "copy" or replace(before, depends=()) != replace(step, depends=()):
                steps.append(step)
            numbers[number, index] = Dependency(number, len(steps) - 1)
        kept.append(steps)
    blocks = [
        replace(
            block,
            instructions=tuple(
                replace(step, depends=tuple(numbers[wait.thread_block, wait.step] for wait in step.depends))
                for step in steps
            ),
        )
        for block, steps in zip(rank.thread_blocks, kept, strict=True)
    ]
    return replace(rank, thread_blocks=tuple(blocks))


def _conflicts(program: Program) -> tuple[Counter[_Traced], set[tuple[_Traced, _Traced]]]:
    """The steps, and the pairs of them that do not commute, in the order in which they must happen."""
    names: dict[tuple[int, int, int], _Traced] = {}
    steps: dict[tuple[int, int, int], Instruction] = {}
    after: dict[tuple[int, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    queues: dict[tuple[str, int, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for rank in program.ranks:
        seen: Counter[tuple[object, ...]] = Counter()
        for number, block in enumerate(rank.thread_blocks):
            for index, step in enumerate(block.instructions):
                here = rank.rank, number, index
                link = ()
                if step.kind == "send":
                    link = "send", rank.rank, block.send_peer, block.channel
                elif step.receives:
                    link = "recv", block.recv_peer, rank.rank, block.channel
                if link:
                    queues[link].append(here)
                does = (step.kind, step.source, step.target, step.count, link)
                names[here], steps[here] = _Traced(rank.rank, does, seen[does]), step
                seen[does] += 1
                if index:
                    after[rank.rank, number, index - 1].append(here)
                for wait in step.depends:
                    after[rank.rank, wait.thread_block, wait.step].append(here)
    for link, sends in queues.items():
        if link[0] == "send":
            for send, receive in zip(sends, queues["recv", *link[1:]], strict=True):
                after[send].append(receive)
    reached = _closure(list(names), after)
    pairs = {
        (names[one], names[other])
        for one in names
        for other in reached[one]
        if one[0] == other[0] and not _commute(names[one], steps[one], names[other], steps[other])
    }
    # A copy onto itself is no step, but orders others where they wait for it.
    idle = {
        name for here, name in names.items() if steps[here].kind == "copy" and steps[here].source == steps[here].target
    }
    real = Counter(name for name in names.values() if name not in idle)
    return real, {pair for pair in pairs if not idle & set(pair)}


def _closure(
    nodes: list[tuple[int, int, int]], after: dict[tuple[int, int, int], list[tuple[int, int, int]]]
) -> dict[tuple[int, int, int], set[tuple[int, int, int]]]:
    reached: dict[tuple[int, int, int], set[tuple[int, int, int]]] = {}
    for node in nodes:
        found: set[tuple[int, int, int]] = set()
        stack = list(after[node])
        while stack:
            if (other := stack.pop()) not in found:
                found.add(other)
                stack.extend(after[other])
        reached[node] = found
    return reached


def _commute(one: _Traced, first: Instruction, other: _Traced, second: Instruction) -> bool:
    if one.does[4] and one.does[4] == other.does[4]:
        return False
    return not (_touches(first.target, first, second) or _touches(second.target, second, first))


def _touches(written: ChunkRange | None, by: Instruction, other: Instruction) -> bool:
    """Whether a step uses a chunk that another one writes."""
    return written is not None and any(
        end is not None
        and end.buffer == written.buffer
        and end.start < written.start + by.count
        and written.start < end.start + other.count
        for end in (other.source, other.target)
    )
