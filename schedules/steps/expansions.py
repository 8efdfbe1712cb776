"""Sends from rank to rank as columns, which expansions of schedules on direct links read and write."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CapacityOverflowError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import as_kind, as_size, shown
from ...topologies import DirectGraph, line_graph, reverse_symmetry
from ...topologies.direct_connect.expansions import MAX_TIMES
from ...topologies.direct_connect.optimal_broadcasts import base_schedule_rows, base_transpose_names
from ...topologies.network.direct_graph import as_direct_graph
from ...topologies.symmetry.isomorphism import as_permutation, preserves_arcs
from ..collective import Direction
from .allreduce import StepAllreduce
from .step_schedule import StepSchedule

MAX_SENDS = 2**25  # sends of an expanded schedule; they take up to ten gigabytes while they are put together
MAX_STEPS = 2**20
CHUNK_LIMIT = 2**62  # chunks per shard times sends, as for the check of a schedule


class DirectSends(NamedTuple):
    """Columns of equal length, one entry for each send."""

    steps: IntArray  # int64 (sends,); as those of `StepSchedule`
    sources: IntArray  # int64 (sends,); as those of `StepSchedule`
    lower: IntArray  # int64 (sends,); as those of `StepSchedule`
    upper: IntArray  # int64 (sends,); as those of `StepSchedule`
    tails: IntArray  # int64 (sends,); the first rank of the path
    heads: IntArray  # int64 (sends,); the last rank of the path

    @classmethod
    def joined(cls, parts: list[DirectSends]) -> DirectSends:
        """Concatenate sends."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    @classmethod
    def broadcast(cls, *columns: IntArray) -> DirectSends:
        """Flatten columns after broadcasting them to their common shape."""
        return cls(*(column.reshape(-1) for column in np.broadcast_arrays(*columns)))

    def only(self, mask: npt.NDArray[np.bool_]) -> DirectSends:
        """Keep the chosen sends."""
        return self if mask.all() else DirectSends(*(column[mask] for column in self))

    def schedule(self, num_ranks: int, chunks_per_shard: int, direction: Direction) -> StepSchedule:
        """Make a schedule of the sends, without steps in which nothing is sent, in as few chunks as they allow."""
        coarse = int(np.gcd.reduce(np.concatenate([[chunks_per_shard], self.lower, self.upper])))
        paths, routes = np.unique(self.tails * num_ranks + self.heads, return_inverse=True)
        nodes = np.stack([paths // num_ranks, paths % num_ranks], axis=1).reshape(-1)
        used = np.flatnonzero(np.bincount(self.steps))
        steps = np.searchsorted(used, self.steps)
        lower, upper = self.lower // coarse, self.upper // coarse
        starts = np.arange(0, len(nodes) + 1, 2)
        chunks = chunks_per_shard // coarse
        return StepSchedule(num_ranks, chunks, steps, self.sources, lower, upper, routes, starts, nodes, direction)


def direct_sends(graph: DirectGraph, schedule: StepSchedule) -> DirectSends:
    """Read a schedule, having checked that it is made of links of the graph."""
    as_kind(schedule, StepSchedule, "the schedule")
    if schedule.num_ranks != as_direct_graph(graph).num_nodes:
        raise UnsupportedError(
            f"the schedule is for {schedule.num_ranks} ranks; expected one for the {graph.num_nodes} of {graph.name}"
        )
    columns = (schedule.steps, schedule.sources, schedule.lower, schedule.upper, schedule.routes)
    paths, odd = len(schedule.path_starts) - 1, np.flatnonzero(np.diff(schedule.path_starts) != 2)
    if len(odd):
        raise UnsupportedError(
            f"the schedule has the path {shown(schedule.path(int(odd[0])))}; expected two ranks of {graph.name} each"
        )
    if any(column.shape != (schedule.num_sends,) for column in columns) or len(schedule.path_nodes) != 2 * paths:
        raise UnsupportedError("the schedule's arrays do not fit together; expected one that a planner made")
    for name, column, lowest, highest in (
        ("steps", schedule.steps, 0, MAX_STEPS),
        ("sources", schedule.sources, 0, graph.num_nodes - 1),
        ("lower", schedule.lower, 0, schedule.chunks_per_shard),
        ("upper", schedule.upper, 0, schedule.chunks_per_shard),
        ("routes", schedule.routes, 0, paths - 1),
    ):
        if len(column) and not lowest <= int(column.min()) <= int(column.max()) <= highest:
            raise UnsupportedError(f"the schedule's {name} are not all from {lowest} to {highest}")
    ends = schedule.path_nodes.reshape(-1, 2)
    _check_links(graph, schedule, ends)
    tails, heads = ends[schedule.routes].T
    return DirectSends(*columns[:4], tails, heads).only(heads != schedule.sources)


def _check_links(graph: DirectGraph, schedule: StepSchedule, ends: IntArray) -> None:
    """Check that every path is a link of the graph, reversed where data runs towards the sources."""
    links = ends if schedule.direction == "broadcast" else ends[:, ::-1]
    arcs = graph.adjacency.tails * graph.num_nodes + graph.adjacency.heads
    inside = ((links >= 0) & (links < graph.num_nodes)).all(axis=1)
    strange = np.flatnonzero(~(inside & np.isin(links[:, 0] * graph.num_nodes + links[:, 1], arcs)))
    if len(strange):
        tail, head = links[strange[0]].tolist()
        raise UnsupportedError(
            f"the schedule sends from rank {tail} to rank {head}, which is no link of {graph.name}; expected a "
            "schedule for that graph"
        )


def check_sends(sends: int, chunks_per_shard: int, what: str) -> None:
    """Refuse a schedule that would be too large, before it is built."""
    if sends > MAX_SENDS:
        raise UnsupportedError(
            f"the schedule of {what} would have {sends} sends; expected at most {MAX_SENDS}, expand it less"
        )
    if chunks_per_shard * sends >= CHUNK_LIMIT:
        raise CapacityOverflowError(
            f"the schedule of {what} would need {chunks_per_shard} chunks per shard, which could overflow 64-bit sums; "
            "start from a schedule with fewer chunks"
        )


def reversed_schedule(schedule: StepSchedule) -> StepSchedule:
    """Reverse a correct schedule: an allgather becomes a reduce-scatter on the transposed graph, and vice versa.

    Direct-connect paper, Definition 5 and Theorem 1.  A `StepSchedule` of direction "reduce" is written down as the
    allgather that it reverses, so this changes no number.  Steps and loads stay, without chunks that the
    allgather brings to a rank again, as no rank may reduce them twice.

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
        if (isomorphism := reverse_symmetry(graph)) is None:
            raise UnsupportedError(
                f"{graph.name} is not isomorphic to its transpose; for a reduce-scatter, reverse an allgather of "
                "the transpose"
            )
        return isomorphism
    mapping = as_permutation(symmetry, as_direct_graph(graph).num_nodes)
    if not preserves_arcs(graph, graph.transpose(), mapping):
        raise UnsupportedError(f"the symmetry {shown(symmetry)} does not map {graph.name} to its transpose")
    return mapping


def without_repeats(schedule: StepSchedule) -> StepSchedule:
    """Remove repeated arrivals from a correct allgather.

    Of several arrivals the earliest stays, and of those in one step the first, so that forwarded chunks are there.
    """
    as_kind(schedule, StepSchedule, "the schedule")
    ranks, shard = schedule.num_ranks, schedule.chunks_per_shard
    receivers = schedule.path_nodes[schedule.path_starts[1:] - 1][schedule.routes]
    holdings = schedule.sources * ranks + receivers
    brought = np.zeros(ranks * ranks, dtype=np.int64)
    brought[:: ranks + 1] = shard  # A rank has its own shard.
    np.add.at(brought, holdings, schedule.upper - schedule.lower)
    if (brought == shard).all():
        return schedule
    # Cut all sends at every place where one begins or ends, and keep each piece where it comes first.
    fresh = np.flatnonzero(receivers != schedule.sources)
    places = np.unique(np.concatenate([schedule.lower, schedule.upper]))
    first, last = (np.searchsorted(places, bound[fresh]) for bound in (schedule.lower, schedule.upper))
    counts = last - first
    sends = np.repeat(fresh, counts)
    pieces = np.arange(len(sends)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    keys = holdings[sends] * len(places) + pieces
    order = np.lexsort((schedule.steps[sends], keys))
    is_first = np.diff(keys[order], prepend=-1) != 0
    kept = np.sort(order[is_first])
    sends, pieces = sends[kept], pieces[kept]
    # Pieces that follow each other in a send are one again.
    begins = (np.diff(sends, prepend=-1) != 0) | (np.diff(pieces, prepend=-1) != 1)
    ends = np.append(begins[1:], True)
    starts_at = sends[begins]
    used = np.unique(schedule.steps[starts_at])
    return replace(
        schedule,
        steps=np.searchsorted(used, schedule.steps[starts_at]),
        sources=schedule.sources[starts_at],
        lower=places[pieces[begins]],
        upper=places[pieces[ends] + 1],
        routes=schedule.routes[starts_at],
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


def line_graph_schedule(graph: DirectGraph, schedule: StepSchedule, times: int = 1) -> StepSchedule:
    """Expand a schedule to the line graph: first to all neighbors, then along the sends of the old schedule.

    Sends are divided equally among parallel arcs.  Direct-connect paper, Definition 1 and Theorem 7.  The result is one
    step longer for each time, but for steps in which nothing is left to be sent.  Raises `UnsupportedError` if the
    graph is not regular, the schedule is not for it, or the result would be too large; `CapacityOverflowError` if there
    would be too many chunks for 64 bits.

    Parameters
    ----------
    graph : DirectGraph
        Regular; the result is for ``line_graph(graph, times)``.
    schedule : StepSchedule
        For `graph`.
    times : int
        How often to expand.
    """
    for _ in range(as_size(times, "times", high=MAX_TIMES)):
        schedule = _line_graph_schedule(graph, schedule)
        graph = line_graph(graph)
    return schedule


def _line_graph_schedule(graph: DirectGraph, schedule: StepSchedule) -> StepSchedule:
    sends = direct_sends(graph, schedule)
    degree, arcs = graph.degree, np.arange(graph.num_arcs)
    leaving = arcs.reshape(-1, degree)
    entering = np.argsort(graph.heads, kind="stable").reshape(-1, degree)
    ahead, links = graph.heads, (sends.tails, sends.heads)
    if schedule.direction == "reduce":
        leaving, entering, ahead, links = entering, leaving, graph.tails, links[::-1]
    keys_of_links = links[0] * graph.num_nodes + links[1]
    keys = graph.tails * graph.num_nodes + graph.heads
    first = np.searchsorted(keys, keys_of_links)
    counts = np.searchsorted(keys, keys_of_links, side="right") - first
    finer = math.lcm(*np.unique(counts).tolist())
    chunks = schedule.chunks_per_shard * finer
    check_sends((len(arcs) + int(counts.sum()) * degree) * degree, chunks, line_graph(graph).name)

    begin = _column(0), arcs[:, None], _column(0), _column(chunks), arcs[:, None], leaving[ahead]
    old = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(old)) - np.repeat(np.cumsum(counts) - counts, counts)
    share = (sends.upper - sends.lower)[old] * (finer // counts[old])
    lower = sends.lower[old] * finer + number * share
    columns = (sends.steps[old] + 1, entering[sends.sources[old]], lower, lower + share)
    steps, sources, lower, upper = (column.reshape(len(old), -1, 1) for column in columns)
    tails, heads = (first[old] + number).reshape(-1, 1, 1), leaving[sends.heads[old]].reshape(-1, 1, degree)
    onwards = DirectSends.broadcast(steps, sources, lower, upper, tails, heads)
    both = DirectSends.joined([DirectSends.broadcast(*begin), onwards])
    return both.only(both.sources != both.heads).schedule(graph.num_arcs, chunks, schedule.direction)


def degree_expansion_schedule(graph: DirectGraph, copies: int, schedule: StepSchedule) -> StepSchedule:
    """Expand a schedule to copies of all nodes: each send to every copy, and a step for the copies of the source.

    Direct-connect paper, Definition 2 and Theorem 11.  The result, for ``degree_expansion(graph, copies)``, is one
    step longer, unless `copies` is 1.  Parameters as for `degree_expansion`, with a schedule for the graph, which has
    to be regular; errors as for `line_graph_schedule`.
    """
    copies = as_size(copies, "copies")
    sends = direct_sends(graph, schedule)
    if graph.num_self_loops:
        raise UnsupportedError(f"{graph.name} has self-loops; degree expansion is for graphs without self-loops")
    ports = graph.degree * copies
    chunks = math.lcm(schedule.chunks_per_shard, ports)
    links = graph.adjacency
    tails, heads = (links.tails, links.heads) if schedule.direction == "broadcast" else (links.heads, links.tails)
    count = copies**2 * (len(sends.steps) + len(tails) * (copies - 1))
    check_sends(count, chunks, f"{graph.name} with {copies} copies of each node")

    copy, finer = np.arange(copies), chunks // schedule.chunks_per_shard
    of_source, of_head = copy[:, None], copy
    steps, sources, lower, upper, near, far = (column[:, None, None] for column in sends)
    ends_of_path = (near * copies + of_source, far * copies + of_head)
    main = DirectSends.broadcast(steps, sources * copies + of_source, lower * finer, upper * finer, *ends_of_path)

    # The arcs into a node are numbered, and number p brings part p of the shards of the other copies of the node.
    by_head = np.argsort(heads, kind="stable")
    tails, heads, multiplicity = (column[by_head][:, None, None] for column in (tails, heads, links.multiplicities))
    before = np.cumsum(multiplicity) - multiplicity.reshape(-1)
    port = (before - before[np.searchsorted(heads.reshape(-1), heads.reshape(-1))])[:, None, None]
    of_source, of_head = np.nonzero(~np.eye(copies, dtype=np.bool_))
    lower = (copy[:, None] * graph.degree + port) * (chunks // ports)
    ends_of_path = (tails * copies + copy[:, None], heads * copies + of_head)
    last = DirectSends.broadcast(
        _column(schedule.num_steps),
        heads * copies + of_source,
        lower,
        lower + multiplicity * (chunks // ports),
        *ends_of_path,
    )
    return DirectSends.joined([main, last]).schedule(graph.num_nodes * copies, chunks, schedule.direction)


def cartesian_power_schedule(graph: DirectGraph, n: int, schedule: StepSchedule) -> StepSchedule:
    """Expand a schedule to a Cartesian power: along one dimension after the other, each n-th of a shard in other order.

    Direct-connect paper, Definition 14 and Theorem 12.  The result, for ``cartesian_power(graph, n)``, is `n` times as
    long.  Parameters as for `cartesian_power`, with a schedule for the graph, which has to be regular; errors as for
    `line_graph_schedule`.
    """
    n = as_size(n, "n", high=MAX_TIMES)
    sends = direct_sends(graph, schedule)
    size, length, chunks = graph.num_nodes, schedule.num_steps, schedule.chunks_per_shard
    count = n * len(sends.steps) * sum(size ** (n - 1 + phase) for phase in range(n))
    check_sends(count, n * chunks, f"{graph.name} to the power of {n}")
    parts = []
    for part in range(n):
        # Part number `part` of every shard goes along dimension part, part + 1, ... in turn.
        worth = [size ** (n - 1 - (place + part) % n) for place in range(n)]
        for phase in range(n):
            # Where a shard has got to before, and where it came from, differ in the dimensions done; the rest agree.
            done, ahead = _offsets(size, worth[:phase]), _offsets(size, worth[phase + 1 :])
            steps, sources, lower, upper, tails, heads = (column.reshape(-1, 1, 1, 1) for column in sends)
            from_there, here = done[:, None, None] + ahead, done[:, None] + ahead
            ends_of_path = (tails * worth[phase] + here, heads * worth[phase] + here)
            chunk_range = (lower + part * chunks, upper + part * chunks)
            parts.append(
                DirectSends.broadcast(
                    steps + phase * length, sources * worth[phase] + from_there, *chunk_range, *ends_of_path
                )
            )
    return DirectSends.joined(parts).schedule(size**n, n * chunks, schedule.direction)


def _offsets(size: int, worth: list[int]) -> IntArray:
    """All sums of a multiple of each of several numbers, from 0 to ``size - 1`` times."""
    multiples = (np.arange(size) * place for place in worth)
    return reduce(
        lambda offsets, values: np.add.outer(offsets, values).reshape(-1), multiples, np.zeros(1, dtype=np.int64)
    )


def bidirectional_schedule(
    graph: DirectGraph, schedule: StepSchedule, symmetry: npt.ArrayLike | None = None
) -> StepSchedule:
    """Expand a schedule to the graph with its transpose: half of each shard as before, half on the added arcs.

    Direct-connect paper, A.6.  The result, for ``bidirectional(graph)``, has as many steps.  Parameters as for
    `reduce_scatter_schedule`, and so are errors; a result that is too large raises `UnsupportedError`, too.
    """
    sends = direct_sends(graph, schedule)
    mapping, chunks = checked_symmetry(graph, symmetry), schedule.chunks_per_shard
    check_sends(2 * len(sends.steps), 2 * chunks, f"{graph.name} with its transpose")
    steps, sources, lower, upper, tails, heads = sends
    moved = DirectSends(steps, mapping[sources], lower + chunks, upper + chunks, mapping[tails], mapping[heads])
    return DirectSends.joined([sends, moved]).schedule(graph.num_nodes, 2 * chunks, schedule.direction)


def _column(value: int) -> IntArray:
    return np.array([value], dtype=np.int64)
