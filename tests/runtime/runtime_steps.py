"""Schedules in steps for the tests of lowering: random ones, those that come with collopt, and networks for others."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from collopt.schedules import AnyStepSchedule, Send, StepAllreduce, StepSchedule
from collopt.topologies import (
    base_schedule_rows,
    circulant,
    complete,
    complete_bipartite,
    diamond,
    directed_circulant,
    hamming,
    hypercube,
    modified_de_bruijn,
    shifted_ring,
    twisted_hypercube,
)

__all__ = [
    "EIGHT_NODES",
    "TESTBED",
    "allreduce_of",
    "random_steps",
    "reversed_steps",
    "schedule_for",
    "shipped_schedule",
    "step_schedules",
]

TESTBED = {
    topology.name: topology
    for topology in (
        complete(5),
        circulant(6, [1, 2]),
        directed_circulant(4),
        circulant(7, [2, 3]),
        complete_bipartite(4),
        hamming(2, 3),
        circulant(10, [2, 3]),
        circulant(11, [2, 3]),
        circulant(12, [2, 3]),
        shifted_ring(12),
    )
}
"""Networks of degree 4 with 5 to 12 nodes: those of the testbed of the direct-connect paper (section 8.2)."""

EIGHT_NODES = {
    topology.name: topology
    for topology in (complete_bipartite(4), hypercube(3), twisted_hypercube(3), diamond(), modified_de_bruijn(2, 3))
}
"""Networks with 8 nodes."""


def shipped_schedule(name: str) -> StepSchedule:
    """The bandwidth-optimal allgather of Diamond or a modified de Bruijn graph."""
    shipped = base_schedule_rows(name)
    sends = [
        Send(step - 1, source, chunk, chunk + 1, (tail, head))
        for source, chunk, tail, head, step in shipped.rows.tolist()
    ]
    return StepSchedule.from_sends(shipped.graph.num_nodes, shipped.chunks, sends)


def reversed_steps(schedule: StepSchedule) -> StepSchedule:
    """The reduce-scatter that an allgather describes."""
    return replace(schedule, direction="reduce")


def allreduce_of(schedule: StepSchedule) -> StepAllreduce:
    """The reduce-scatter that reverses an allgather, then the allgather."""
    return StepAllreduce(reversed_steps(schedule), schedule)


def schedule_for(collective: str, schedule: StepSchedule) -> AnyStepSchedule:
    """Make a schedule for a collective of one for allgather."""
    made = {"allgather": lambda each: each, "reduce_scatter": reversed_steps, "allreduce": allreduce_of}
    return made[collective](schedule)


def random_steps(ranks: int, chunks: int, seed: int, again: float = 0.0) -> StepSchedule:
    """An allgather on a random digraph: in every step every rank may get chunks that an in-neighbor holds.

    Every chunk is brought once, and with probability `again` each time that it might have been.
    """
    chance = random.Random(seed)
    order = chance.sample(range(ranks), ranks)
    arcs = {(order[place - 1], order[place]) for place in range(ranks)}
    arcs |= {(one, other) for one in range(ranks) for other in range(ranks) if one != other and chance.random() < 0.4}
    held = {(rank, rank, chunk) for rank in range(ranks) for chunk in range(chunks)}
    sends, step = [], 0
    while len(held) < ranks * ranks * chunks:
        arrived: set[tuple[int, int, int]] = set()
        for tail, head in chance.sample(sorted(arcs), len(arcs)):
            for source in range(ranks):
                wanted = [
                    (tail, source, chunk) in held
                    and chance.random() < (again if (head, source, chunk) in held | arrived else 0.7)
                    for chunk in range(chunks)
                ]
                for lower, upper in _runs(wanted):
                    sends.append(Send(step, source, lower, upper, (tail, head)))
                    arrived |= {(head, source, chunk) for chunk in range(lower, upper)}
        held |= arrived
        step += bool(arrived)
    chance.shuffle(sends)
    return StepSchedule.from_sends(ranks, chunks, sends)


def _runs(wanted: list[bool]) -> list[tuple[int, int]]:
    """First and one after the last of each run of True."""
    edges = [place for place, (one, other) in enumerate(pairwise([False, *wanted, False])) if one != other]
    return list(zip(edges[::2], edges[1::2], strict=True))


@st.composite
def step_schedules(draw: st.DrawFn, max_ranks: int = 6, max_chunks: int = 5) -> tuple[AnyStepSchedule, str]:
    """Random schedules in steps and the collective that they are for; those of allgather may bring chunks again."""
    collective = draw(st.sampled_from(["allgather", "reduce_scatter", "allreduce"]))
    ranks, seed = draw(st.integers(2, max_ranks)), draw(st.integers(0, 2**32))
    chunks, again = draw(st.integers(1, max_chunks)), draw(st.sampled_from([0.0, 0.3]))
    gathers = random_steps(ranks, chunks, seed, 0.0 if collective == "reduce_scatter" else again)
    if collective == "allgather":
        return gathers, collective
    reduces = reversed_steps(random_steps(ranks, draw(st.integers(1, max_chunks)), seed + 1))
    return (reduces if collective == "reduce_scatter" else StepAllreduce(reduces, gathers)), collective
