"""Breadth-first broadcasts on direct-connect graphs, in plain Python: a schedule, and the least cost of any."""

from __future__ import annotations

from fractions import Fraction

from collopt.schedules import StepCost, StepSchedule
from collopt.topologies import DirectGraph

__all__ = ["first_neighbor_schedule", "least_breadth_first_cost"]


def first_neighbor_schedule(graph: DirectGraph) -> StepSchedule:
    """An allgather in which every rank takes each shard whole from its least neighbor that is nearer to the source."""
    distances, near = graph.distances.tolist(), _in_neighbors(graph)
    sends = []
    for source, row in enumerate(distances):
        for rank in set(range(graph.num_nodes)) - {source}:
            sender = min(each for each in near[rank] if row[each] == row[rank] - 1)
            sends.append((row[rank] - 1, source, 0, 1, (sender, rank)))
    return StepSchedule.from_sends(graph.num_nodes, 1, sends)


def least_breadth_first_cost(graph: DirectGraph) -> StepCost:
    """The least cost of a BFB allgather: for each step, the most shards per link over all sets of links into a rank."""
    distances, near = graph.distances.tolist(), _in_neighbors(graph)
    worst = [Fraction(0)] * (graph.diameter + 1)
    for rank in range(graph.num_nodes):
        senders = sorted(near[rank])
        for chosen in range(1, 2 ** len(senders)):
            inside = {sender for place, sender in enumerate(senders) if chosen >> place & 1}
            links = sum(near[rank][sender] for sender in inside)
            counts = [0] * (graph.diameter + 1)
            for row in distances:
                if row[rank] and {each for each in senders if row[each] == row[rank] - 1} <= inside:
                    counts[row[rank]] += 1
            worst = [max(old, Fraction(count, links)) for old, count in zip(worst, counts, strict=True)]
    return StepCost(graph.diameter, sum(worst, Fraction(0)) * graph.degree / graph.num_nodes)


def _in_neighbors(graph: DirectGraph) -> list[dict[int, int]]:
    """For each rank, how many links come from which others."""
    near: list[dict[int, int]] = [{} for _ in range(graph.num_nodes)]
    for tail, head in zip(graph.tails.tolist(), graph.heads.tolist(), strict=True):
        if tail != head:
            near[head][tail] = near[head].get(tail, 0) + 1
    return near
