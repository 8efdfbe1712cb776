"""Lowering of trees to chunk transfers in a global order; see docs/explanation/programs.md."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...schedules import Allreduce, Forest, Schedule, TreeSchedule
from ...schedules.timing.message_order import message_rounds
from ...schedules.trees.tree_chunks import TreeChunks, heights_below
from ...support.arrays import IntArray, narrow
from ...topologies import Topology
from ...topologies.graphs.rank_groups import RankGroups

MAX_TRANSFERS = 2**26  # Some tens of GB as steps


def branches_at_switches(schedule: Schedule) -> bool:
    """Whether switches are among the vertices of its trees, and multicast or add up."""
    return any(len(forest.switches) for forest in getattr(schedule, "forests", ()))


def refuse_switches(schedule: Schedule, what: str) -> None:
    """Refuse trees that branch at switches; `what` takes the schedule."""
    if branches_at_switches(schedule):
        raise UnsupportedError(
            f"the plan's trees branch at switches, which {what} has no operations for; plan again with "
            "in_network=False (--no-in-network on the command line)"
        )


def refuse_relays(schedule: Schedule, topology: Topology, what: str) -> None:
    """Refuse routes over compute nodes that take no part; `what` takes the schedule."""
    if not topology.relays:
        return
    over = [not topology.relays.isdisjoint(link[:2]) for link in topology.links]
    if schedule.link_loads(topology)[..., over].any():
        raise UnsupportedError(
            f"the plan's routes pass through compute nodes outside the group, such as {min(topology.relays)!r}, where "
            f"{what} runs nothing; plan again without relay (--relay), or with these nodes as ranks"
        )


def from_rank_to_rank(schedule: TreeSchedule) -> TreeSchedule:
    """Replace what switches copy and add up by transfers between ranks; the data is the same."""
    if isinstance(schedule, Allreduce):
        return replace(schedule, reduce=schedule.reduce.unicast, broadcast=schedule.broadcast.unicast)
    return schedule.unicast


class Hop(NamedTuple):
    """Chunk ranges from number `first_range` on, adjacent at both ends, sent to a rank that may add its own."""

    first_range: int
    sender: int
    receiver: int
    reduces: bool
    ranges: int = 1
    copy: int = -1  # Number of the copies that a switch makes of these ranges, for each receiver


def ordered_hops(
    schedule: TreeSchedule,
    ranges: Sequence[TreeChunks],
    groups: RankGroups,
    switched: TreeSchedule | None = None,
) -> IntArray:
    """All hops, int64 (hops, 6) as in `Hop`, in the global order; `switched`: the same trees with their switches."""
    trees = np.array([(each.reduce_tree, each.broadcast_tree) for each in ranges]).T
    parts = []
    for forest, original in zip(schedule.forests, (switched or schedule).forests, strict=True):
        own, other = trees if forest.direction == "reduce" else trees[::-1]
        opposite = [each for each in schedule.forests if each.direction != forest.direction]
        parts.append(
            _hop_columns(forest, original, own, opposite[0].heights[other] if opposite else np.zeros_like(own))
        )
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
    numbers, senders, receivers, adds, copies, levels, left, together = columns
    rounds = message_rounds(groups, senders, receivers)
    if together.any():
        copied = np.flatnonzero(together)
        siblings, each = np.unique(numbers[copied] * schedule.num_ranks + senders[copied], return_inverse=True)
        earliest = np.full(len(siblings), rounds.max(), dtype=np.int64)
        np.minimum.at(earliest, each, rounds[copied])
        rounds[copied] = earliest[each]
    keys = (receivers, copies + 1, senders, numbers, rounds, left.max(initial=0) - left, levels)
    order = np.lexsort([narrow(key) for key in keys])
    hops = np.ones((len(order), len(Hop._fields)), dtype=np.int64)
    for place, column in enumerate((numbers, senders, receivers, adds, None, copies)):
        if column is not None:
            hops[:, place] = column[order]
    return hops


def _hop_columns(
    forest: Forest, original: Forest, trees: IntArray, other: IntArray
) -> tuple[npt.NDArray[np.generic], ...]:
    """Columns range, sender, receiver, reduces, copy, level, hops still to go and whether siblings stay together.

    If switches copy, all sends of a rank from one range have as many hops to go, and follow one another.
    Shapes: `trees`, `other` (the height of each range's tree of the other direction) int64 (ranges,).  `original` may
    have switches where `forest` has the ranks above them.
    """
    numbers, children = np.nonzero(forest.routes[trees] >= 0)
    own, reduces = trees[numbers], forest.direction == "reduce"
    parents, heights, above = forest.parents[own, children], heights_below(forest), forest.depths[own, children] - 1
    below, copies, adds = heights[own, children], np.full(len(own), -1), np.full(len(own), reduces)
    if reduces:
        return numbers, children, parents, adds, copies, below, above + other[numbers], ~adds
    if len(original.switches):
        switches = original.parents[own, children] - forest.num_ranks
        copies = np.where(switches >= 0, numbers * len(original.switches) + switches, -1)
        below = heights[own, parents] - 1
    together = np.full(len(own), len(original.switches) > 0)
    return numbers, parents, children, adds, copies, above + other[numbers], below, together
