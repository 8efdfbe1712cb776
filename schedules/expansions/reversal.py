"""Reversed and stored schedules: an allgather makes a reduce-scatter, and both an allreduce."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import as_kind, shown
from ...topologies import DirectGraph, reverse_symmetry
from ...topologies.graphs.isomorphism import as_permutation, preserves_arcs
from ...topologies.graphs.stored_broadcasts import base_schedule_rows, base_transpose_names
from ...topologies.network.direct_graph import as_direct_graph
from ..steps.allreduce import StepAllreduce
from ..steps.schedule import StepSchedule
from .direct_sends import direct_sends


def reversed_schedule(schedule: StepSchedule) -> StepSchedule:
    """Reverse a correct schedule: an allgather becomes a reduce-scatter on the transposed graph, and vice versa.

    Direct-connect paper, Definition 5 and Theorem 1.  A `StepSchedule` of direction "reduce" is written down as the
    allgather that it reverses, so this changes no number.  Steps and loads stay, without what the allgather brings to a
    rank again, which no rank may reduce twice.

    Examples
    --------
    >>> reversed_schedule(StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))]))
    <StepSchedule: reduce-scatter of 2 ranks, 1 step, 1 chunk per shard, 2 sends>
    """
    as_kind(schedule, StepSchedule, "the schedule")
    if schedule.direction == "reduce":
        return replace(schedule, direction="broadcast")
    return replace(without_repeats(schedule), direction="reduce")


def reduce_scatter_schedule(
    graph: DirectGraph, schedule: StepSchedule, symmetry: npt.ArrayLike | None = None
) -> StepSchedule:
    """Turn an allgather into a reduce-scatter on the same graph (direct-connect paper, Theorem 2).

    For a graph that is not isomorphic to its transpose, reverse an allgather of the transpose: `reversed_schedule`.
    The result costs the same; less where the allgather brings something twice.  Raises `UnsupportedError` if there is
    no such isomorphism, `symmetry` is none, or the schedule is no allgather for the graph; `NoAnswerError` if the
    search for an isomorphism was given up.

    Parameters
    ----------
    graph : DirectGraph
        Isomorphic to its transpose.
    schedule : StepSchedule
        An allgather for `graph`.
    symmetry : array_like of int, shape (nodes,), optional
        Isomorphism from the graph to its transpose; searched for by default.
    """
    direct_sends(graph, schedule)
    if schedule.direction != "broadcast":
        raise UnsupportedError(f"the schedule is {schedule!r}; expected an allgather")
    numbers = checked_symmetry(graph, symmetry)
    # Relabeled by the symmetry (Definition 7), it is an allgather on the transposed graph.
    moved = replace(schedule, sources=numbers[schedule.sources], path_nodes=numbers[schedule.path_nodes])
    return reversed_schedule(moved)


def allreduce_schedule(
    graph: DirectGraph, schedule: StepSchedule, symmetry: npt.ArrayLike | None = None
) -> StepAllreduce:
    """Make an allreduce of an allgather: the reduce-scatter that it makes, then the allgather.

    Direct-connect paper, appendix B and C.3.  Parameters as for `reduce_scatter_schedule`.
    """
    return StepAllreduce(reduce_scatter_schedule(graph, schedule, symmetry), schedule)


def checked_symmetry(graph: DirectGraph, symmetry: npt.ArrayLike | None) -> IntArray:
    """Return the given isomorphism from a graph to its transpose, or one that is found.

    Shapes: `symmetry` (nodes,); returns int64 (nodes,).
    """
    if symmetry is None:
        if (found := reverse_symmetry(graph)) is None:
            raise UnsupportedError(
                f"{graph.name} is not isomorphic to its transpose; for a reduce-scatter, reverse an allgather of "
                "the transpose"
            )
        return found
    mapping = as_permutation(symmetry, as_direct_graph(graph).num_nodes)
    if not preserves_arcs(graph, graph.transpose(), mapping):
        raise UnsupportedError(f"the symmetry {shown(symmetry)} does not map {graph.name} to its transpose")
    return mapping


def without_repeats(schedule: StepSchedule) -> StepSchedule:
    """Remove repeated arrivals from a correct allgather.

    Of several arrivals the earliest stays, and of those in one step the first, so that what is sent on is there.
    """
    as_kind(schedule, StepSchedule, "the schedule")
    ranks, whole = schedule.num_ranks, schedule.chunks_per_shard
    receivers = schedule.path_nodes[schedule.path_starts[1:] - 1][schedule.routes]
    holdings = schedule.sources * ranks + receivers
    brought = np.zeros(ranks * ranks, dtype=np.int64)
    brought[:: ranks + 1] = whole  # A rank has its own shard.
    np.add.at(brought, holdings, schedule.upper - schedule.lower)
    if (brought == whole).all():
        return schedule
    # Cut all sends at every place where one begins or ends, and keep each piece where it comes first.
    useful = np.flatnonzero(receivers != schedule.sources)
    places = np.unique(np.concatenate([schedule.lower, schedule.upper]))
    first, last = (np.searchsorted(places, bound[useful]) for bound in (schedule.lower, schedule.upper))
    counts = last - first
    sends = np.repeat(useful, counts)
    pieces = np.arange(len(sends)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    keys = holdings[sends] * len(places) + pieces
    order = np.lexsort((schedule.steps[sends], keys))
    is_first = np.diff(keys[order], prepend=-1) != 0
    kept = np.sort(order[is_first])
    sends, pieces = sends[kept], pieces[kept]
    # Pieces that follow each other in a send are one again.
    begins = (np.diff(sends, prepend=-1) != 0) | (np.diff(pieces, prepend=-1) != 1)
    ends = np.append(begins[1:], True)
    chosen = sends[begins]
    used = np.unique(schedule.steps[chosen])
    return replace(
        schedule,
        steps=np.searchsorted(used, schedule.steps[chosen]),
        sources=schedule.sources[chosen],
        lower=places[pieces[begins]],
        upper=places[pieces[ends] + 1],
        routes=schedule.routes[chosen],
    )


def base_schedule(name: str) -> StepSchedule:
    """Return the stored bandwidth-optimal allgather of a graph without a breadth-first one.

    `collopt.topologies.base_schedule_rows` knows the names of the graphs and transposes.

    Examples
    --------
    >>> base_schedule("Diamond")
    <StepSchedule: allgather of 8 ranks, 3 steps, 2 chunks per shard, 112 sends>
    """
    stored = base_schedule_rows(name)
    # Steps are counted from 1 there.
    sends = (
        (step - 1, source, chunk, chunk + 1, (tail, head)) for source, chunk, tail, head, step in stored.rows.tolist()
    )
    return StepSchedule.from_sends(stored.graph.num_nodes, stored.chunks, sends)


def base_reduce_scatter(name: str) -> StepSchedule:
    """Return a bandwidth-optimal reduce-scatter on one of the graphs that `base_schedule` knows.

    The allgather of the transposed graph reversed (direct-connect paper, Corollary 1.1); of DBJMod(2, 3), which is
    isomorphic to its transpose, its own (Theorem 2).  It has as many steps as the allgather.

    Examples
    --------
    >>> base_reduce_scatter("Diamond")
    <StepSchedule: reduce-scatter of 8 ranks, 3 steps, 2 chunks per shard, 112 sends>
    """
    graph = base_schedule_rows(name).graph
    transpose = graph.transpose()
    if {graph.name, transpose.name}.isdisjoint(base_transpose_names()):
        return reduce_scatter_schedule(graph, base_schedule(name))
    return reversed_schedule(base_schedule(transpose.name))
