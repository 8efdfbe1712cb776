"""What the check of a schedule in steps has to find out, once more chunk by chunk with sets."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from collopt.schedules.steps.step_schedule import StepSchedule
from collopt.topologies import Topology

__all__ = ["step_loads_of", "steps_hold"]


def steps_hold(schedule: StepSchedule, topology: Topology) -> bool:
    """Whether the schedule is an allgather, or reversed a reduce-scatter, on links of the topology."""
    ranks, chunks = range(topology.num_ranks), range(schedule.chunks_per_shard)
    sends = list(schedule.sends())
    known = {(link.tail, link.head) for link in topology.links}
    if not all(_is_route(send.path, schedule, topology, known) for send in sends):
        return False
    if {send.step for send in sends} != set(range(schedule.num_steps)):
        return False
    held = {(rank, rank, chunk) for rank in ranks for chunk in chunks}
    brought: Counter[tuple[int, int, int]] = Counter(held)
    for step in range(schedule.num_steps):
        arriving = set()
        for send in sends:
            if send.step == step:
                parts = range(send.lower, send.upper)
                if not parts or not set(parts) <= set(chunks) or send.source not in ranks:
                    return False
                if not {(send.path[0], send.source, chunk) for chunk in parts} <= held:
                    return False
                arriving |= {(send.path[-1], send.source, chunk) for chunk in parts}
                brought.update((send.path[-1], send.source, chunk) for chunk in parts)
        held |= arriving
    once = schedule.direction == "broadcast" or max(brought.values()) == 1
    return once and held == {(rank, source, chunk) for rank in ranks for source in ranks for chunk in chunks}


def step_loads_of(schedule: StepSchedule, topology: Topology) -> list[list[int]]:
    """Chunks on each link in each step."""
    numbers = {(link.tail, link.head): number for number, link in enumerate(topology.links)}
    loads = [[0] * len(numbers) for _ in range(schedule.num_steps)]
    for send in schedule.sends():
        for ends in pairwise(topology.nodes[node] for node in send.path):
            link = ends if schedule.direction == "broadcast" else ends[::-1]
            loads[send.step][numbers[link]] += send.upper - send.lower
    return loads


def _is_route(path: tuple[int, ...], schedule: StepSchedule, topology: Topology, known: set[tuple[str, str]]) -> bool:
    nodes, ranks = range(len(topology.nodes)), range(topology.num_ranks)
    if len(path) < 2 or len(set(path)) < len(path) or not set(path) <= set(nodes):
        return False
    if [place for place, node in enumerate(path) if node in ranks] != [0, len(path) - 1]:
        return False
    hops = pairwise(topology.nodes[node] for node in path)
    return all((hop if schedule.direction == "broadcast" else hop[::-1]) in known for hop in hops)
