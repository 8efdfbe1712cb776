"""Definitions 1, 2 and 14 of the direct-connect paper word by word, on sets of (source, chunk, tail, head, step).

Steps count from 0.  Chunks are single ones, and nodes are what the definitions say they are: pairs and tuples.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from collopt.schedules import StepSchedule
from collopt.topologies import DirectGraph

__all__ = ["chunk_sends", "definition_1", "definition_2", "definition_14"]

Sends = set[tuple[Any, int, Any, Any, int]]


def chunk_sends(schedule: StepSchedule, chunks: int) -> Sends:
    """Every chunk of every send, with shards cut into `chunks` chunks, of which the schedule may need fewer."""
    finer, rest = divmod(chunks, schedule.chunks_per_shard)
    assert rest == 0
    return {
        (source, chunk, tail, head, step)
        for step, source, lower, upper, (tail, head) in schedule.sends()
        for chunk in range(lower * finer, upper * finer)
    }


def definition_1(graph: DirectGraph, sends: Sends, chunks: int) -> Sends:
    """Schedule of the line graph of a graph without parallel arcs; its nodes are pairs."""
    arcs = _arcs(graph)
    made: Sends = {
        ((a, v), chunk, (a, v), (b, u), 0)
        for (a, v), (b, u) in product(arcs, arcs)
        if v == b and (a, v) != (b, u)
        for chunk in range(chunks)
    }
    for v, chunk, u, w, step in sends:
        for (a, b), (c, e) in product(arcs, arcs):
            if b == v and c == w and (a, b) != (c, e):
                made.add(((a, v), chunk, (u, w), (c, e), step + 1))
    return made


def definition_2(graph: DirectGraph, copies: int, sends: Sends) -> Sends:
    """First part of the degree expanded schedule; nodes are (node, copy)."""
    pairs = list(product(range(copies), range(copies)))
    return {((v, j), chunk, (u, j), (w, i), step) for v, chunk, u, w, step in sends for i, j in pairs}


def definition_14(graph: DirectGraph, n: int, sends: Sends, steps: int, chunks: int) -> Sends:
    """Schedule of the Cartesian power; nodes are tuples, and chunks of the i-th subshard follow those of the others."""
    nodes = range(graph.num_nodes)
    first: Sends = set()
    for j in range(1, n + 1):
        for w, chunk, u, v, step in sends:
            for x in product(nodes, repeat=j - 1):
                for y in product(nodes, repeat=j - 1):
                    for z in product(nodes, repeat=n - j):
                        first.add(((*x, w, *z), chunk, (*y, u, *z), (*y, v, *z), step + (j - 1) * steps))

    def shifted(node: tuple[int, ...], i: int) -> tuple[int, ...]:
        return node[n - i + 1 :] + node[: n - i + 1]

    return {
        (shifted(source, i), chunk + (i - 1) * chunks, shifted(tail, i), shifted(head, i), step)
        for source, chunk, tail, head, step in first
        for i in range(1, n + 1)
    }


def _arcs(graph: DirectGraph) -> list[tuple[int, int]]:
    return list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
