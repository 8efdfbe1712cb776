"""Strategies that change one thing in a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from collopt.planners import Plan
from collopt.schedules import Cut

__all__ = ["CHANGES", "changed_plans"]


def edge(draw: st.DrawFn, plan: Plan) -> Plan:
    """Let one rank of one tree receive on another path, or on none."""
    forest = plan.schedule
    tree, rank = draw(st.integers(0, forest.num_trees - 1)), draw(st.integers(0, forest.num_ranks - 1))
    numbers = set(range(-1, len(forest.path_starts) - 1)) - {int(forest.routes[tree, rank])}
    routes = forest.routes.copy()
    routes[tree, rank] = draw(st.sampled_from(sorted(numbers)))
    return _scheduled(plan, routes=routes)


def weight(draw: st.DrawFn, plan: Plan) -> Plan:
    """Give one tree a copy more or less."""
    return _weighted(plan, {draw(_trees(plan)): draw(st.sampled_from([-1, 1]))})


def weights_of_one_root(draw: st.DrawFn, plan: Plan) -> Plan:
    """Move a copy from one tree to another of the same root."""
    roots = plan.schedule.roots
    pairs = [(one, other) for one in range(len(roots)) for other in np.flatnonzero(roots == roots[one]) if one != other]
    assume(pairs)
    one, other = draw(st.sampled_from(pairs))
    return _weighted(plan, {one: -1, int(other): 1})


def weights_of_two_roots(draw: st.DrawFn, plan: Plan) -> Plan:
    """Move a copy from one root's tree to another root's."""
    one = draw(_trees(plan))
    others = np.flatnonzero(plan.schedule.roots != plan.schedule.roots[one]).tolist()
    assume(others)
    return _weighted(plan, {one: -1, draw(st.sampled_from(others)): 1})


def root(draw: st.DrawFn, plan: Plan) -> Plan:
    """Say that a tree is another rank's, or nobody's."""
    tree, roots = draw(_trees(plan)), plan.schedule.roots.copy()
    roots[tree] = draw(st.integers(-1, plan.schedule.num_ranks).filter(lambda rank: rank != roots[tree]))
    return _scheduled(plan, roots=roots)


def path_node(draw: st.DrawFn, plan: Plan) -> Plan:
    """Put another node, or none that exists, in one place of a path."""
    nodes = plan.schedule.path_nodes.copy()
    place = draw(st.integers(0, len(nodes) - 1))
    nodes[place] = draw(st.integers(-1, len(plan.topology.nodes)).filter(lambda node: node != nodes[place]))
    return _scheduled(plan, path_nodes=nodes)


def path(draw: st.DrawFn, plan: Plan) -> Plan:
    """Lead one path over other switches between the same two ranks."""
    paths = _paths(plan)
    others = {number: _other_paths(plan, old) for number, old in enumerate(paths)}
    possible = [number for number, found in others.items() if found]
    assume(possible)
    number = draw(st.sampled_from(possible))
    paths[number] = draw(st.sampled_from(others[number]))
    return _scheduled(plan, **_arrays(paths))


def path_start(draw: st.DrawFn, plan: Plan) -> Plan:
    """Cut the list of path nodes elsewhere."""
    starts = plan.schedule.path_starts.copy()
    starts[draw(st.integers(0, len(starts) - 1))] += draw(st.sampled_from([-1, 1]))
    return _scheduled(plan, path_starts=starts)


def lost_path(draw: st.DrawFn, plan: Plan) -> Plan:
    """Leave out the last path."""
    return _scheduled(plan, **_arrays(_paths(plan)[:-1]))


def lost_tree(draw: st.DrawFn, plan: Plan) -> Plan:
    """Leave out a tree."""
    assume(plan.schedule.num_trees > 1)
    keep = np.arange(plan.schedule.num_trees) != draw(_trees(plan))
    return _picked(plan, np.flatnonzero(keep))


def doubled_tree(draw: st.DrawFn, plan: Plan) -> Plan:
    """Write a tree twice."""
    return _picked(plan, np.append(np.arange(plan.schedule.num_trees), draw(_trees(plan))))


def trees_per_root(draw: st.DrawFn, plan: Plan) -> Plan:
    """Claim another number of trees per root."""
    return _scheduled(plan, trees_per_root=draw(_other(st.integers(0, 100), plan.schedule.trees_per_root)))


def num_ranks(draw: st.DrawFn, plan: Plan) -> Plan:
    """Claim another number of ranks."""
    return _scheduled(plan, num_ranks=draw(_other(st.integers(0, 12), plan.schedule.num_ranks)))


def shard(draw: st.DrawFn, plan: Plan) -> Plan:
    """Claim another size for one shard, in the schedule, in the bound, or in both."""
    weights = [1] * plan.topology.num_ranks
    weights[draw(st.integers(0, len(weights) - 1))] = draw(st.sampled_from([-1, 0, 2]))
    where = draw(st.sampled_from(["schedule", "bound", "both"]))
    if where != "bound":
        plan = _scheduled(plan, root_weights=np.array(weights))
    if where != "schedule":
        plan = replace(plan, bound=replace(plan.bound, weights=tuple(weights)))
    return plan


def direction(draw: st.DrawFn, plan: Plan) -> Plan:
    """Say that data runs towards the roots, or somehow."""
    return _scheduled(plan, direction=draw(st.sampled_from(["reduce", "sideways"])))


def link_load(draw: st.DrawFn, plan: Plan) -> Plan:
    """State another load of one link."""
    loads = plan.link_loads.copy()
    link = draw(st.integers(0, len(loads) - 1))
    loads[link] = draw(_other(st.integers(-1, 50), loads[link]))
    return replace(plan, link_loads=loads)


def lost_load(draw: st.DrawFn, plan: Plan) -> Plan:
    """State the loads of all links but one."""
    return replace(plan, link_loads=np.delete(plan.link_loads, draw(st.integers(0, len(plan.link_loads) - 1))))


def inverse_rate(draw: st.DrawFn, plan: Plan) -> Plan:
    """Claim that the plan is faster or slower."""
    return replace(plan, inverse_rate=draw(_other(_rates(), plan.inverse_rate)))


def bound_value(draw: st.DrawFn, plan: Plan) -> Plan:
    """Claim another bound for the same cut."""
    value = draw(_other(_rates(), plan.bound.inverse_rate))
    return replace(plan, bound=replace(plan.bound, inverse_rate=value))


def both_rates(draw: st.DrawFn, plan: Plan) -> Plan:
    """Claim that plan and bound are faster or slower by the same amount."""
    value = draw(_other(_rates(), plan.inverse_rate))
    return replace(plan, inverse_rate=value, bound=replace(plan.bound, inverse_rate=value))


def cut(draw: st.DrawFn, plan: Plan) -> Plan:
    """Take one node, or a stranger, into the cut or out of it."""
    node = draw(st.sampled_from([*plan.topology.nodes, "stranger"]))
    return replace(plan, bound=replace(plan.bound, witness=Cut(plan.bound.witness.nodes ^ {node})))


def collective(draw: st.DrawFn, plan: Plan) -> Plan:
    """Say that the plan, its bound, or both are about another collective."""
    of_plan, of_bound = draw(st.sampled_from([("allgather", "reduce"), ("reduce", "allgather"), ("reduce", "reduce")]))
    return replace(plan, collective=of_plan, bound=replace(plan.bound, collective=of_bound))


def topology(draw: st.DrawFn, plan: Plan) -> Plan:
    """Say that the plan is for a network with one link a tenth as fast."""
    link = draw(st.sampled_from(plan.topology.links))
    return replace(plan, topology=plan.topology.derate(link.tail, link.head, "1/10", bidirectional=False))


CHANGES: dict[str, Callable[[st.DrawFn, Plan], Plan]] = {
    change.__name__: change
    for change in (
        edge,
        weight,
        weights_of_one_root,
        weights_of_two_roots,
        root,
        path_node,
        path,
        path_start,
        lost_path,
        lost_tree,
        doubled_tree,
        trees_per_root,
        num_ranks,
        shard,
        direction,
        link_load,
        lost_load,
        inverse_rate,
        bound_value,
        both_rates,
        cut,
        collective,
        topology,
    )
}


@st.composite
def changed_plans(draw: st.DrawFn, plan: Plan, names: list[str]) -> Plan:
    """Make each of the changes called `names`, one after the other."""
    for name in names:
        plan = CHANGES[name](draw, plan)
    return plan


def _rates() -> st.SearchStrategy[Fraction]:
    return st.fractions(Fraction(1, 1000), 1000, max_denominator=1000)


def _other(values: st.SearchStrategy[Any], than: object) -> st.SearchStrategy[Any]:
    return values.filter(lambda value: value != than)


def _trees(plan: Plan) -> st.SearchStrategy[int]:
    return st.integers(0, plan.schedule.num_trees - 1)


def _scheduled(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, schedule=replace(plan.schedule, **changes))


def _weighted(plan: Plan, added: dict[int, int]) -> Plan:
    weights = plan.schedule.weights.copy()
    for tree, copies in added.items():
        weights[tree] += copies
    return _scheduled(plan, weights=weights)


def _picked(plan: Plan, trees: Any) -> Plan:
    forest = plan.schedule
    return _scheduled(plan, roots=forest.roots[trees], weights=forest.weights[trees], routes=forest.routes[trees])


def _paths(plan: Plan) -> list[tuple[int, ...]]:
    return [plan.schedule.path(number) for number in range(len(plan.schedule.path_starts) - 1)]


def _arrays(paths: list[tuple[int, ...]]) -> dict[str, Any]:
    return {
        "path_starts": np.cumsum([0, *map(len, paths)]),
        "path_nodes": np.array([node for path in paths for node in path], dtype=np.int64),
    }


def _other_paths(plan: Plan, old: tuple[int, ...]) -> list[tuple[int, ...]]:
    graph = nx.DiGraph(
        (plan.topology.node_index[link.tail], plan.topology.node_index[link.head]) for link in plan.topology.links
    )
    others = set(range(plan.topology.num_ranks)) - {old[0], old[-1]}
    graph.remove_nodes_from(others)
    found = map(tuple, nx.all_simple_paths(graph, old[0], old[-1]))
    return sorted(path for path in found if path != old)
