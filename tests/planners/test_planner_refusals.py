"""What planners of trees and of pairs, FAST and dispatches refuse: the type of the error, and what it names."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import collopt
from collopt.errors import BoundError, CapacityOverflowError, ColloptError, UnsupportedError
from collopt.planners import DispatchCounts, count_dispatch, logical_topology, schedule_dispatch, steiner_bound
from collopt.planners.all_to_all import fast
from collopt.planners.all_to_all.fast import schedule_all_to_allv
from collopt.planners.all_to_all.flows import all_to_all_rate_bounds
from collopt.planners.all_to_all.multicommodity import bound_pairs, plan_pairs
from collopt.planners.by_size.families import families
from collopt.planners.trees import allreduce_lp
from collopt.planners.trees.strength import plan_strength, strength_bound
from collopt.topologies import SwitchLimits, Topology, complete, dgx_a100, diamond, hypercube, ring
from collopt.topologies.network.direct_graph import DirectGraph


def network(*links: tuple[str, str, Any], both: bool = False, switches: str = "") -> Topology:
    """Ranks `a` to `r`, and switches from `s` on, some of which multicast and aggregate."""
    nodes = sorted({end for link in links for end in link[:2]})
    return Topology.from_links(
        links,
        compute=[name for name in nodes if name < "s"],
        switches=[name for name in nodes if name >= "s"],
        bidirectional=both,
        multicast=switches,
        aggregation=switches,
    )


def star(ranks: int, group: int | None = None) -> Topology:
    """Ranks around one switch that can do everything."""
    names = [f"r{rank}" for rank in range(ranks)]
    abilities: dict[str, Any] = {"switches": "s", "multicast": "s", "aggregation": "s"}
    return Topology.from_links(
        [(name, "s", 10) for name in names],
        compute=names,
        bidirectional=True,
        limits=[SwitchLimits("s", group=group)],
        **abilities,
    )


NO_WAY_IN = network(("a", "b", 1), ("b", "a", 1), ("c", "a", 1))
UNBALANCED = network(("a", "s", 3), ("s", "b", "5/2"), ("b", "a", 1), ("a", "t", 1), ("t", "b", 1))
ONE_WAY = network(("a", "b", 2), ("b", "c", 2), ("c", "a", 2))
FAR_APART = network(("a", "b", Fraction(1, 10**9)), ("b", "c", 10**9), both=True)
TO_ONE_SIDE = network(("a", "b", 1), ("b", "c", 1), ("c", "b", 1))
SEVEN = network(*((rank, switch, 1) for rank in "ab" for switch in "stuvwxy"), both=True, switches="stuvwxy")
HOSTS = network(("a", "s", 1), ("b", "s", 1), ("c", "t", 1), ("d", "t", 1), both=True)

PLAN, BOTH, STRENGTH = (collopt.plan,), (collopt.bound, collopt.plan), (plan_strength, strength_bound)
TREES: list[tuple[tuple[Callable[..., object], ...], tuple[Any, ...], dict[str, Any], type[ColloptError], str]] = [
    (BOTH, (NO_WAY_IN, "allgather"), {}, BoundError, "'a' to rank 'c'"),
    (BOTH, (UNBALANCED, "allgather"), {}, UnsupportedError, "switch 's' has 3 GB/s ingress and 2.5"),
    (BOTH, (FAR_APART, "allgather"), {}, CapacityOverflowError, "fewer digits"),
    (STRENGTH, (ONE_WAY,), {}, UnsupportedError, "symmetric bidirectional links"),
    (STRENGTH, (HOSTS,), {}, BoundError, "no path"),
    ((allreduce_lp.plan_allreduce_lp,), (network(("a", "b", 1)),), {}, BoundError, "'b' to rank 'a'"),
    (PLAN, (star(13), "allreduce"), {"planner": "steiner"}, UnsupportedError, "13 ranks"),
    (PLAN, (SEVEN, "allreduce"), {"planner": "steiner"}, UnsupportedError, "7 switches"),
    (PLAN, (complete(3), "allreduce"), {"planner": "steiner"}, UnsupportedError, "no switch"),
    ((steiner_bound,), (star(4, group=3), "allreduce"), {}, UnsupportedError, "'s' joins at most 3"),
    ((steiner_bound,), (TO_ONE_SIDE, "allgather"), {}, BoundError, "rank 'b'"),
    ((logical_topology,), (collopt.bound(ring(4), "allreduce"),), {}, UnsupportedError, "two phases"),
    ((logical_topology,), (ring(4),), {}, UnsupportedError, "the bound is"),
    (PLAN, (diamond(), "allgather"), {"planner": "symmetric"}, UnsupportedError, "plan with 'forestcoll'"),
    (PLAN, (HOSTS, "allgather"), {"planner": "symmetric"}, ColloptError, "rank 'a'"),
    ((lambda *request: list(families(*request)),), (dgx_a100(), "broadcast"), {}, UnsupportedError, "few steps"),
]
NO_COUNTS = (0, -1, 2**20 + 1, 10**5000, True, 2.5, 3.0, float("nan"), "3", [3], Fraction(3), np.bool_(True))


def refuses(ask: Callable[[], object], error: type[ColloptError], name: str) -> None:
    """Check the error of a call: its type, what it names, and that it is one line of bounded length."""
    with pytest.raises(error) as refusal:
        ask()
    text = str(refusal.value)
    assert name in text
    assert "\n" not in text
    assert len(text) < 500


@pytest.mark.parametrize(("functions", "request_", "options", "error", "name"), TREES)
def test_planners_of_trees_name_what_they_refuse(
    functions: tuple[Callable[..., object], ...],
    request_: tuple[Any, ...],
    options: dict[str, Any],
    error: type[ColloptError],
    name: str,
) -> None:
    """Networks and collectives that they do not plan for."""
    for ask in functions:
        refuses(lambda ask=ask: ask(*request_, **options), error, name)  # type: ignore[misc]


@pytest.mark.parametrize(
    "count", NO_COUNTS, ids=lambda value: repr(value)[:20] if not isinstance(value, int) else str(value.bit_length())
)
def test_numbers_of_trees_are_whole_and_in_range(count: Any) -> None:
    """A truth value is none, and no more than 2^20."""
    refuses(lambda: collopt.plan(ring(3), "allgather", trees_per_root=count), UnsupportedError, "trees_per_root is ")


def test_programs_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the size and the limit."""
    monkeypatch.setattr(allreduce_lp, "MAX_COLUMNS", 7)
    refuses(lambda: allreduce_lp.plan_allreduce_lp(ring(4)), UnsupportedError, "8 variables; expected at most 7")


@pytest.mark.parametrize(
    ("traffic", "name"),
    [
        (None, "traffic"),
        (3, "matrix"),
        ([[0, 1, 2], [1], [1, 2, 0]], "3 rows"),
        ([[0, 1], [1, 0]], "(2, 2)"),
        ([[0, 1, 1], [-2, 0, 1], [1, 1, 0]], "rank 1 to rank 0 is -2"),
        ([[0, "x", 1], [1, 0, 1], [1, 1, 0]], "rank 0 to rank 1 is 'x'"),
        ([[0, True, 1], [1, 0, 1.5], [1, 1, 0]], "rank 0 to rank 1 is True"),
        (np.eye(3, dtype=np.int64), "all off-diagonal traffic is 0"),
        ([[0, 1e-17, 1], [1, 0, 1], [1, 1, 0]], "2^53"),
        (pd.DataFrame(np.ones((3, 3)), index=[2, 1, 0]), "row 0 labelled 2 and column 0 labelled 0"),
    ],
    ids=str,
)
def test_traffic_that_makes_no_sense_is_refused(traffic: Any, name: str) -> None:
    """By plan and bound, naming the entry."""
    for ask in (collopt.plan, collopt.bound):
        refuses(lambda ask=ask: ask(ring(3), "all_to_allv", traffic=traffic), UnsupportedError, name)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("ask", "options", "name"),
    [
        (plan_pairs, {"collective": "allgather"}, "allgather"),
        (plan_pairs, {"collective": "all_to_all", "order": "sideways"}, "order is 'sideways'"),
        (plan_pairs, {"collective": "all_to_all", "chunks": 0}, "chunks is 0"),
        (plan_pairs, {"collective": "all_to_all", "traffic": [[1]]}, "no traffic"),
        (bound_pairs, {"collective": "alltoall"}, "'all_to_all'"),
        (collopt.bound, {"collective": "all_to_all", "root": 0}, "root"),
        (collopt.plan, {"collective": "all_to_all", "planner": "ring"}, "'ring'"),
    ],
)
def test_planners_of_pairs_name_what_they_refuse(
    ask: Callable[..., object], options: dict[str, Any], name: str
) -> None:
    """Collectives and options."""
    refuses(lambda: ask(ring(3), **options), UnsupportedError, name)


def test_pairs_out_of_reach_and_chunks_beyond_64_bits_are_refused() -> None:
    """Pairs without traffic need no path."""
    disconnected = Topology.from_links([("a", "b", 1), ("c", "b", 1)], compute="abc")
    refuses(lambda: collopt.plan(disconnected, "all_to_all"), BoundError, "'a' to rank 'c'")
    assert collopt.plan(disconnected, "all_to_allv", traffic=[[0, 1, 0], [0, 0, 0], [0, 2, 0]]).gap == 0
    traffic = [[0, 2**50, 1], [0, 0, 3], [1, 0, 0]]
    refuses(
        lambda: collopt.plan(ring(3), "all_to_allv", traffic=traffic, chunks=2**20), CapacityOverflowError, "chunks"
    )


@pytest.mark.parametrize(
    ("graph", "gap", "error", "name"),
    [
        (hypercube(2).graph, 1, UnsupportedError, "gap is 1"),
        (DirectGraph.from_arcs(3, [(0, 1), (1, 0), (1, 2)], "dead end"), "1/2", BoundError, "cannot reach"),
        (DirectGraph(1, np.array([0]), np.array([0]), "alone"), "1/2", UnsupportedError, "one node"),
        (hypercube(2), "1/2", UnsupportedError, "DirectGraph"),
    ],
    ids=str,
)
def test_rates_of_direct_networks_are_of_connected_graphs(
    graph: Any, gap: Any, error: type[ColloptError], name: str
) -> None:
    """With a gap between 0 and 1."""
    refuses(lambda: all_to_all_rate_bounds(graph, gap), error, name)


FOUR = np.ones((4, 4), dtype=int)
THREE = np.ones((3, 3), dtype=int)
SERVERS: list[tuple[dict[str, Any], str]] = [
    ({"gpus_per_server": [[2], 2]}, "gpus_per_server"),
    ({"gpus_per_server": "22"}, "gpus_per_server"),
    ({"gpus_per_server": [2, 3]}, "4 ranks; expected 5"),
    ({"servers": 3, "gpus_per_server": [2, 2]}, "one for each of 3 servers"),
    ({"gpus_per_server": (4, 0)}, "gpus_per_server[1] is 0"),
    ({"traffic": -THREE, "gpus_per_server": np.array([2, 1])}, "from rank 0 to 0 is -1"),
    ({"traffic": THREE * 2**61, "gpus_per_server": np.array([2, 1])}, "adds up to"),
    ({"traffic": THREE * 10**9, "gpus_per_server": [2, 1], "max_stage_bytes": 1}, "max_stage_bytes is 1"),
    ({"servers": 2.0}, "servers is 2.0"),
    ({"stages": "few"}, "stages is 'few'"),
    ({"max_stage_bytes": "1M"}, "max_stage_bytes is '1M'"),
    ({"nics": [[1, 1]]}, "nics has 1 rows"),
    ({"nics": [[1, 1], [1]]}, "nics[1] has 1 rates"),
    ({"nics": [[1, 1], [0, 0]]}, "nics[1] has no rate above 0"),
    ({"nics": [[1, 1], [1, -1]]}, "-1"),
    ({"nics": [1, 1]}, "nics[0]"),
    ({"nics": [[1, 1], [1, Fraction(1, fast.MAX_RANKS)]]}, "rounder rates"),
]


@pytest.mark.parametrize(("options", "name"), SERVERS, ids=str)
def test_servers_and_their_nics_have_to_fit_the_traffic(options: dict[str, Any], name: str) -> None:
    """One whole number of GPUs for each server, and one rate for each GPU."""
    arguments = {"traffic": FOUR, "servers": 2, "gpus_per_server": 2} | options
    refuses(lambda: schedule_all_to_allv(**arguments), ColloptError, name)


SENDS = np.array([[0, 3], [0, 1], [2, 0], [0, 0]])
LEAVING = SENDS.sum(axis=1)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"sends": -SENDS}, "sends has -3"),
        ({"sends": SENDS * 2**61}, "sends add up to"),
        ({"sends": SENDS.astype(object) * 2**70}, "sends are"),
        ({"sends": SENDS.T}, "sends has shape (2, 4) and leaving (4,)"),
        ({"sends": SENDS[:, ::-1]}, "server 0 sends to itself"),
        ({"leaving": LEAVING + 1}, "4 tokens leave rank 0"),
        ({"gpus_per_server": 0}, "gpus_per_server is 0"),
        ({"classes": np.zeros((2, 4), dtype=np.int64)}, "classes"),
    ],
)
def test_counts_of_tokens_have_to_agree(changes: dict[str, Any], name: str) -> None:
    """With each other, and without an error of numpy."""
    arguments = {"sends": SENDS, "leaving": LEAVING, "gpus_per_server": 2} | changes
    refuses(lambda: DispatchCounts(**arguments), UnsupportedError, name)


@pytest.mark.parametrize(
    ("indices", "placement", "name"),
    [
        ([[0, 4]], np.arange(4), "indices[0, 1] is 4"),
        ([[0.5, 0]], np.arange(4), "indices are"),
        ([0, 1], np.arange(4), "indices have shape (2,)"),
        ([[0, 1]], np.arange(5), "placement[4] is 4"),
        ([[0, 1]], "0123", "placement are '0123'"),
    ],
)
def test_experts_and_their_ranks_have_to_exist(indices: Any, placement: Any, name: str) -> None:
    """Before any kernel sees them."""
    refuses(lambda: count_dispatch([indices] * 4, placement, servers=2, gpus_per_server=2), UnsupportedError, name)


def test_dispatches_need_counts_and_relays_classes() -> None:
    """A matrix is none, and relays without classes of tokens are refused."""
    refuses(lambda: schedule_dispatch(SENDS), UnsupportedError, "DispatchCounts")  # type: ignore[arg-type]
    counts = DispatchCounts(SENDS, LEAVING, 2)
    refuses(lambda: schedule_dispatch(counts, relay_rounds=2), UnsupportedError, "relay_rounds is 2")
