"""The stored schedules of Diamond and the modified de Bruijn graphs as `StepSchedule`."""

from __future__ import annotations

from ...topologies.graphs.stored_broadcasts import base_schedule_rows, base_transpose_names
from ..steps.schedule import StepSchedule
from .reversal import reduce_scatter_schedule, reversed_schedule


def base_schedule(name: str) -> StepSchedule:
    """Return the bandwidth-optimal allgather that comes with a graph whose breadth-first ones are not.

    Parameters
    ----------
    name : str
        One of `collopt.topologies.base_schedule_names` or `collopt.topologies.base_transpose_names`.

    Returns
    -------
    StepSchedule

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
    isomorphic to its transpose, its own (Theorem 2).

    Parameters
    ----------
    name : str
        As for `base_schedule`.

    Returns
    -------
    StepSchedule
        In as many steps as the allgather, of direction "reduce".

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
