"""Busy times of links, and hops of trees numbered in the order of time: hop 1 is sent first.

Away from a root that is what the root sends.  Where sums run to a root it is what the leaves send, and a rank sends one
hop after the last that it waits for.  In an allreduce, a broadcast tree continues the count where its reduce tree has
ended.  A hop leads from rank to rank; switches between them do not count: where a tree branches at one, the ways to it
and from it are parts of the same hop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..planners import Plan
from ..runtime import Simulation, simulate
from ..schedules.trees.tree_arrays import TreeArrays
from ..support.arrays import BoolArray, IntArray
from ..support.validation import as_kind

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_SLICES = 8  # Enough to see a pipeline, and few enough to draw
MAX_EVENTS = 2**20  # Of a run with slices that nobody chose: a few seconds of work
TIE_TOLERANCE = 1e-9  # Links that are busy for times this close, as shares of the longest, are equally busy


class Busiest(NamedTuple):
    """The busiest links by number, the first of equally busy ones, and how many others are as busy, or less."""

    links: IntArray
    as_busy: int
    less_busy: int

    @property
    def sentence(self) -> str:
        """Describe which links are shown; empty if all are."""
        left = self.as_busy + self.less_busy
        if not left:
            return ""
        rule = "the busiest first, ties in the order of the network"
        counts = {"equally busy": self.as_busy, "less busy": self.less_busy}
        counted = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        return f"Shown are {len(self.links)} of {len(self.links) + left} links: {rule}. Left out: {counted}."


def step_run(plan: Plan, size: int | str, slices: int | None = None) -> Simulation:
    """Simulate a plan for figures: steps are synchronous, other schedules use a few slices."""
    as_kind(plan, Plan, "the plan")
    if not plan.schedule.pipelined:
        return simulate(plan, size, slices, steps="wait")
    if slices is None:
        slices = max(1, min(DEFAULT_SLICES, MAX_EVENTS // max(plan.schedule.num_hops, 1)))
    run = simulate(plan, size, slices)
    return replace(run, transfers=replace(run.transfers, levels=plan.schedule.hop_numbers(run.transfers)))


def busiest(run: Simulation, limit: int) -> Busiest:
    """Choose at most so many of the links that a run uses."""
    table = run.link_busy
    used = np.flatnonzero(table["pieces"].to_numpy() > 0)
    busy = table["busy_us"].to_numpy()[used]
    # Sums of floats differ in their last digits where the times that they stand for are the same.
    levels = np.round(busy / busy.max() / TIE_TOLERANCE)
    order = np.argsort(-levels, kind="stable")
    links, left = order[:limit], levels[order[limit:]]
    as_busy = int((left == levels[links[-1]]).sum())
    return Busiest(used[links], as_busy, len(left) - as_busy)


def busy_times(run: Simulation, links: IntArray | None = None) -> pd.DataFrame:
    """Tabulate the busy times of links, int64 (links,)."""
    import pandas as pd

    sent, topology = run.transfers, run.topology
    hops = np.arange(len(sent.hop_links)) if links is None else np.flatnonzero(np.isin(sent.hop_links, links))
    hops = np.repeat(hops, run.slices)
    starts = run.starts[hops[:: run.slices]].ravel()
    owners, used = sent.hop_owners[hops], sent.hop_links[hops]
    names, tick = np.array(topology.nodes, dtype=object), float(run.times.tick)
    amounts = sent.amounts[owners].astype(np.float64) * float(run.num_bytes * sent.unit / run.slices)
    pieces = pd.DataFrame(
        {
            "step": sent.levels[owners] + 1,
            "tail": names[topology.arrays.tails[used]],
            "head": names[topology.arrays.heads[used]],
            "start_us": starts.astype(np.float64) * tick,
            "end_us": (starts + run.times.ticks[hops]).astype(np.float64) * tick,
            "bytes": amounts,
        }
    )
    return _merge_adjacent(pieces)


def _merge_adjacent(pieces: pd.DataFrame) -> pd.DataFrame:
    """Join pieces that follow each other on a link without a pause and belong to the same step."""
    ordered = pieces.sort_values(["tail", "head", "start_us"], kind="stable", ignore_index=True)
    before = ordered.shift()
    # Times are multiples of one tick, apart from what rounding does to their last digits.
    pause = (ordered["start_us"] - before["end_us"]).abs() > 1e-9 * ordered["end_us"].max()
    equal = (ordered[["tail", "head", "step"]] == before[["tail", "head", "step"]]).all(axis=1)
    joined = ordered.groupby((pause | ~equal).cumsum(), sort=False).agg(
        step=("step", "first"), tail=("tail", "first"), head=("head", "first"),
        start_us=("start_us", "first"), end_us=("end_us", "last"), bytes=("bytes", "sum"),
    )  # fmt: skip
    return joined.sort_values(["start_us", "tail", "head"], kind="stable", ignore_index=True)


HOPS = "Hop 1 is sent first; each further hop waits for the ones before it."
REDUCE_FIRST = "Broadcast trees continue the hop numbers of the reduce trees."
BRANCHES = "Where a tree branches at a switch, the ways to the switch and from it are parts of one hop."
STEPS = "Step 1 is sent first."  # What pages say of these numbers, and of those of steps


class TreeHop(NamedTuple):
    """A hop of a tree from rank to rank, or the part of one to or from a switch where the tree branches."""

    number: int  # From 1
    path: tuple[int, ...]  # Node numbers in the order in which data passes them
    depth: int  # Hops between the root and the farther one of the two ends
    looped: bool  # Whether a switch also loops a copy back, over the same nodes the other way


def tree_hops(forest: TreeArrays, tree: int, before: int = 0, looped: BoolArray | None = None) -> Iterator[TreeHop]:
    """Yield the hops of a tree, each after those that it waits for; `looped` is as of `Forest.looped`."""
    ranks, edges, outwards = forest.num_ranks, list(forest.edges(tree)), forest.direction == "broadcast"
    depths = {int(forest.roots[tree]): 0}
    for edge in edges:
        depths[edge.head] = depths[edge.tail] + (edge.tail < ranks)
    copied = set() if looped is None else set(forest.switches[looped[tree, ranks:]].tolist())
    # The hop that brings a vertex the last of what it waits for; a switch sends in that same hop.
    came: dict[int, int] = {}
    for edge in edges if outwards else reversed(edges):
        sender, receiver = (edge.tail, edge.head) if outwards else (edge.head, edge.tail)
        number = came.get(sender, before) + (sender < ranks)
        came[receiver] = max(came.get(receiver, before), number)
        yield TreeHop(number, edge.path if outwards else edge.path[::-1], depths[edge.head], edge.head in copied)
