"""Parts of a plan's schedule for display: one tree, one step, or the sends of one rank at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...schedules import FlowSchedule, Forest, Schedule, TreeSchedule
from ...schedules.trees.symmetric_forest import expanding
from ...support.arrays import IntArray
from ...support.formatting import count_text, percentage_text
from ..tables.busy_times import BRANCHES, HOPS, REDUCE_FIRST, STEPS, hops_before, tree_hops
from ..tables.summary import branching_switches

if TYPE_CHECKING:
    from ...planners import Plan

MAX_PARTS = 512
MAX_SEGMENTS = 2**17  # Links of all parts together


class Part(NamedTuple):
    """Links of one tree, step or source."""

    label: str  # What this part is
    ends: list[int]  # Numbers of tail and head, link by link
    ranks: list[int]  # For each link its hop or step, from 1


class Parts(NamedTuple):
    """The parts of a schedule that fit a page."""

    title: str  # Such as "Trees, one at a time"
    word: str  # What one part is called
    rank_word: str  # What `Part.ranks` count, here and in time lines
    explained: str  # What these numbers mean
    shown: list[Part]  # The first ones
    left_out: str  # A sentence on those that are not shown, empty if there are none


def parts(plan: Plan) -> Parts:
    """Divide a plan's schedule into parts for display."""
    return _parts(plan.schedule, plan)


@singledispatch
def _parts(schedule: Schedule, plan: Plan) -> Parts:  # noqa: ARG001
    """Show each row of loads: the steps, or everything at once."""
    rows = len(np.atleast_2d(plan.link_loads))
    return _limited(Parts("Steps, one at a time", "Step", "step", STEPS, [], ""), _steps(plan), rows, "steps")


expanding(_parts)


@_parts.register(TreeSchedule)
def _tree_parts(schedule: TreeSchedule, plan: Plan) -> Parts:
    forests = schedule.forests
    total = sum(forest.num_trees for forest in forests)
    counted = zip(forests, hops_before(schedule), strict=True)
    found = (part for forest, before in counted for part in _trees(forest, plan, before, len(forests) > 1))
    further = (len(forests) > 1, REDUCE_FIRST), (bool(branching_switches(schedule)), BRANCHES)
    explained = " ".join([HOPS, *(text for applies, text in further if applies)])
    return _limited(Parts("Trees, one at a time", "Tree", "hop", explained, [], ""), found, total, "trees")


@_parts.register(FlowSchedule)
def _flow_parts(schedule: FlowSchedule, plan: Plan) -> Parts:
    return _limited(
        Parts("Senders, one at a time", "Sender", "step", STEPS, [], ""),
        _senders(schedule, plan), plan.topology.num_ranks, "senders",
    )  # fmt: skip


def _limited(about: Parts, found: Iterator[Part], total: int, word: str) -> Parts:
    """Keep the first part, and others within the limits."""
    capacity = MAX_SEGMENTS
    for part in islice(found, MAX_PARTS):
        if about.shown and len(part.ranks) > capacity:
            break
        about.shown.append(part)
        capacity -= len(part.ranks)
    left = total - len(about.shown)
    sentence = f"Shown are the first {len(about.shown)} of {total} {word}; {left} are left out." if left else ""
    return about._replace(left_out=sentence)


def _trees(forest: Forest, plan: Plan, before: IntArray, is_twofold: bool) -> Iterator[Part]:
    names, whole = plan.topology.nodes, forest.trees_per_root * forest.total_weight
    verb = {"reduce": "reduce tree,", "broadcast": "broadcast tree,"}[forest.direction]
    looped = forest.looped(plan.topology)
    for tree, (root, weight) in enumerate(zip(forest.roots.tolist(), forest.weights.tolist(), strict=True)):
        ends: list[int] = []
        ranks: list[int] = []
        for hop in tree_hops(forest, tree, int(before[tree]), looped):
            for path in (hop.path, hop.path[::-1])[: 1 + hop.looped]:
                for tail, head in pairwise(path):
                    ends += (int(tail), int(head))
                    ranks.append(hop.number)
        share = percentage_text(weight / whole)
        hops, first = count_text(max(ranks), "hop"), int(before[tree]) + 1
        last = int(before[tree] + forest.heights[tree])
        if is_twofold:
            hops = f"hop {first}" if first == last else f"hops {first} to {last}"
        yield Part(f"root {names[root]}{f', {verb}' if is_twofold else ','} {share} of all data, {hops}", ends, ranks)


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
