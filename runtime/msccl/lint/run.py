"""An order for programs that need connections which hold something, such as rings in which every rank sends first."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from itertools import accumulate

from ....errors import ProgramError
from ...programs.ordering import Order, Site, match_transfers, sites
from ...programs.program import Program

__all__ = ["buffered_order"]


def buffered_order(program: Program, depth: int) -> Order:
    """Put the steps in an order in which they can run if connections hold some chunks.

    Bounded queues, and flags that stay raised, make the outcome independent of the speed of anybody: if one order gets
    to the end, all do, and so does one time through the steps after the other.

    Parameters
    ----------
    program : Program
        Its peers, kinds and ranges have been checked, and its dependencies exist.
    depth : int
        Chunks that a connection holds.  A transfer may take a place for each of its chunks.

    Returns
    -------
    Order

    Raises
    ------
    ProgramError
        If the ends of a connection disagree, or steps wait for each other all the same.
    """
    found = list(sites(program))
    numbers = {site: number for number, (site, _) in enumerate(found)}
    instructions = [step for _, step in found]
    before = [
        (
            *([number - 1] if site.step else []),
            *(numbers[Site(site.rank, wait.thread_block, wait.step)] for wait in step.depends),
        )
        for number, (site, step) in enumerate(found)
    ]
    partners = [-1] * len(found)
    queues: dict[tuple[int, int], list[int]] = defaultdict(list)
    for site, other in match_transfers(program).items():
        partners[numbers[site]], partners[numbers[other]] = numbers[other], numbers[site]
        queues[site.rank, site.thread_block].append(numbers[site])
    waits = [list(earlier) for earlier in before]
    for sends in queues.values():
        ends = list(accumulate(instructions[send].count for send in sends))
        for position, send in enumerate(sends):
            waits[partners[send]].append(send)
            if (needed := ends[position] - depth) > 0:
                # All up to this chunk has been taken when the last one of this transfer finds a place.
                taker = bisect_left(ends, needed)
                waits[send].extend([partners[sends[taker]]] if taker < position else before[partners[send]])
    return Order([site for site, _ in found], instructions, partners, before, _sorted(waits))


def _sorted(waits: list[list[int]]) -> list[int]:
    after: list[list[int]] = [[] for _ in waits]
    missing = [len(earlier) for earlier in waits]
    for number, earlier in enumerate(waits):
        for other in earlier:
            after[other].append(number)
    ready = deque(number for number, count in enumerate(missing) if not count)
    sequence = []
    while ready:
        number = ready.popleft()
        sequence.append(number)
        for later in after[number]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    if len(sequence) < len(waits):
        raise ProgramError(f"{len(waits) - len(sequence)} of {len(waits)} steps wait for each other")
    return sequence
