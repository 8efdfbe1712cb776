"""What the page shows of a schedule, one part at a time: a tree, a step, or what one rank sends."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...schedules import Allreduce, FlowSchedule, Forest, Schedule
from ...support.arrays import IntArray
from ...support.formatting import count_text, percentage_text
from ..tables.tree_hops import HOPS, STEPS, SUMS_FIRST, hops_before, tree_hops

if TYPE_CHECKING:
    from ...planners import Plan
    from ...schedules import TreeSchedule

MOST_PARTS = 512
MOST_SEGMENTS = 40_000
"""Of all parts together: about a megabyte of the page."""


class Part(NamedTuple):
    """Links that are used together.

    `label`: What this part is.
    `ends`: Numbers of tail and head, link by link.
    `ranks`: For each link its hop or step, from 1.
    """

    label: str
    ends: list[int]
    ranks: list[int]


class Parts(NamedTuple):
    """The parts of a schedule that a page has room for.

    `title`: Such as "Trees, one at a time".
    `word`: What one part is called.
    `rank_word`: What `Part.ranks` count, here and in time lines.
    `explained`: What these numbers mean.
    `shown`: The first ones.
    `left_out`: A sentence on those that are not shown, empty if there are none.
    """

    title: str
    word: str
    rank_word: str
    explained: str
    shown: list[Part]
    left_out: str


def parts(plan: Plan) -> Parts:
    """Take a plan's schedule apart.

    >>> import collopt
    >>> taken = parts(collopt.plan(collopt.topologies.ring(3, bidirectional=False), "allgather"))
    >>> taken.title, taken.shown[0]
    ('Trees, one at a time', Part(label='root gpu0, 33.33 % of all data, 2 hops', ends=[0, 1, 1, 2], ranks=[1, 2]))
    """
    return _parts(plan.schedule, plan)


@singledispatch
def _parts(schedule: Schedule, plan: Plan) -> Parts:  # noqa: ARG001
    """Show each row of loads: the steps, or everything at once."""
    rows = len(np.atleast_2d(plan.link_loads))
    return _limited(Parts("Steps, one at a time", "Step", "step", STEPS, [], ""), _steps(plan), rows, "steps")


@_parts.register(Forest)
@_parts.register(Allreduce)
def _tree_parts(schedule: TreeSchedule, plan: Plan) -> Parts:
    forests = schedule.forests
    total = sum(forest.num_trees for forest in forests)
    counted = zip(forests, hops_before(schedule), strict=True)
    found = (part for forest, before in counted for part in _trees(forest, plan, before, len(forests) > 1))
    explained = f"{HOPS} {SUMS_FIRST}" if len(forests) > 1 else HOPS
    return _limited(Parts("Trees, one at a time", "Tree", "hop", explained, [], ""), found, total, "trees")


@_parts.register(FlowSchedule)
def _flow_parts(schedule: FlowSchedule, plan: Plan) -> Parts:
    return _limited(
        Parts("Senders, one at a time", "Sender", "step", STEPS, [], ""),
        _senders(schedule, plan), plan.topology.num_ranks, "senders",
    )  # fmt: skip


def _limited(about: Parts, found: Iterator[Part], total: int, word: str) -> Parts:
    """Keep parts while there is room, and the first one in any case as far as there is."""
    room = MOST_SEGMENTS
    for part in found:
        if len(about.shown) == MOST_PARTS or (about.shown and len(part.ranks) > room):
            break
        if len(part.ranks) > room:
            label = f"{part.label}; the first {room} of {len(part.ranks)} links"
            part = Part(label, part.ends[: 2 * room], part.ranks[:room])  # noqa: PLW2901 - what there is room for
        about.shown.append(part)
        room -= len(part.ranks)
    left = total - len(about.shown)
    sentence = f"Shown are the first {len(about.shown)} of {total} {word}; {left} are left out." if left else ""
    return about._replace(left_out=sentence)


def _trees(forest: Forest, plan: Plan, before: IntArray, is_twofold: bool) -> Iterator[Part]:
    names, whole = plan.topology.nodes, forest.trees_per_root * forest.total_weight
    verb = {"reduce": "reduce tree,", "broadcast": "broadcast tree,"}[forest.direction]
    for tree, (root, weight) in enumerate(zip(forest.roots.tolist(), forest.weights.tolist(), strict=True)):
        ends: list[int] = []
        ranks: list[int] = []
        for hop in tree_hops(forest, tree, int(before[tree])):
            for tail, head in pairwise(hop.path):
                ends += (int(tail), int(head))
                ranks.append(hop.number)
        share = percentage_text(weight / whole)
        hops = _hop_range(int(before[tree]), int(forest.heights[tree])) if is_twofold else count_text(max(ranks), "hop")
        yield Part(f"root {names[root]}{f', {verb}' if is_twofold else ','} {share} of all data, {hops}", ends, ranks)


def _hop_range(before: int, height: int) -> str:
    """Which hops of an allreduce a tree has."""
    return f"hop {before + 1}" if height == 1 else f"hops {before + 1} to {before + height}"


def _steps(plan: Plan) -> Iterator[Part]:
    tails, heads, _, _ = plan.topology.arrays
    for step, loads in enumerate(np.atleast_2d(plan.link_loads), start=1):
        used = np.flatnonzero(loads)
        ends = np.stack([tails[used], heads[used]], axis=1).ravel().tolist()
        yield Part(f"step {step}, {count_text(len(used), 'link')} busy", ends, [step] * len(used))


def _senders(schedule: FlowSchedule, plan: Plan) -> Iterator[Part]:
    starts = schedule.path_starts
    sources = schedule.path_nodes[starts[:-1]]
    for rank, name in enumerate(plan.topology.compute_nodes):
        own = np.flatnonzero(sources == rank).tolist()
        # A link that several paths share is drawn once, when the first of them passes it.
        first: dict[tuple[int, int], int] = {}
        for path in own:
            nodes = schedule.path_nodes[starts[path] : starts[path + 1]].tolist()
            steps = schedule.steps[starts[path] - path : starts[path + 1] - path - 1].tolist()
            for step, pair in zip(steps, pairwise(nodes), strict=True):
                first[pair] = min(step + 1, first.get(pair, step + 1))
        yield Part(
            f"from {name}, {count_text(len(own), 'path')} over {count_text(len(first), 'link')}",
            [node for pair in first for node in pair], list(first.values()),
        )  # fmt: skip
