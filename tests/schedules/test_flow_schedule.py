"""Flows: what they are made of, their loads and rates, and the check that trusts nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError
from collopt.schedules import (
    FlowPath,
    FlowSchedule,
    rate_of_loads,
    schedule_from_json,
    schedule_time,
    schedule_to_json,
    verified_loads,
)
from collopt.schedules.steps.verify import check_flow
from collopt.topologies import Topology, ring
from sample_sizes import examples

RING = ring(3, bandwidth=10, latency=2, bidirectional=False)
ONES = np.ones((3, 3), dtype=np.int64)
NEAR = [(1, (rank, (rank + 1) % 3), (0,)) for rank in range(3)]
FAR = [(1, (rank, (rank + 1) % 3, (rank + 2) % 3), (0, 1)) for rank in range(3)]
STAR = Topology.from_links([(rank, "s", 30) for rank in "abc"], compute="abc", switches="s", bidirectional=True)


def flow(*, traffic: np.ndarray[Any, Any] = ONES, chunks: int = 1, paths: list[Any] | None = None) -> FlowSchedule:
    """On the one-way ring, unless paths are given."""
    return FlowSchedule.from_paths(traffic, chunks, NEAR + FAR if paths is None else paths)


def test_loads_and_rates_follow_from_the_paths() -> None:
    """Every link carries three chunks; two in the first step and one in the second."""
    schedule = flow()
    assert schedule.link_loads(RING).tolist() == [3, 3, 3]
    assert schedule.step_loads(RING).tolist() == [[2, 2, 2], [1, 1, 1]]
    assert schedule.inverse_rate(RING) == schedule.step_rate(RING) == Fraction(3, 10)
    assert rate_of_loads(verified_loads(schedule, RING), schedule, RING) == Fraction(3, 10)
    assert schedule.total_weight == 3
    assert schedule.hops.tolist() == schedule.num_transfers.tolist() == [1, 1, 1, 2, 2, 2]


def test_switches_hold_nothing_back() -> None:
    """A path through a switch is one transfer in one step."""
    paths = [(1, (s, 3, d), (0, 0)) for s in range(3) for d in range(3) if s != d]
    schedule = flow(paths=paths)
    assert schedule.num_transfers.tolist() == [1] * 6
    assert schedule.num_steps == 1
    assert verified_loads(schedule, STAR).tolist() == [2] * 6
    assert schedule.step_rate(STAR) == schedule.inverse_rate(STAR) == Fraction(1, 15)


def test_time_is_that_of_the_longest_path_and_the_busiest_link() -> None:
    """Two hops of 2 µs; 3 of 10 kB for each link at 10 GB/s; the second hop waits for a slice."""
    assert schedule_time(flow(), RING, 30_000) == 4 + 3
    assert schedule_time(flow(), RING, 30_000, slices=4) == 4 + 3 + Fraction(1, 4)


def test_traffic_counts_what_ranks_keep_for_the_algorithm_bandwidth_only() -> None:
    """The diagonal counts for the algorithm bandwidth, as nccl-tests count the whole buffer."""
    traffic = ONES + 4 * np.eye(3, dtype=np.int64)
    assert flow(traffic=traffic).total_weight == 7
    assert verified_loads(flow(traffic=traffic), RING).tolist() == [3, 3, 3]
    assert repr(flow(traffic=traffic)).startswith("<FlowSchedule: all-to-all of 3 ranks")
    uneven = flow(traffic=np.array([[0, 2, 0], [0, 0, 1], [0, 0, 0]]), paths=[(2, (0, 1), (0,)), (1, (1, 2), (0,))])
    assert repr(uneven) == "<FlowSchedule: all-to-allv of 3 ranks, 2 paths, 1 step, 1 chunk per unit>"


def test_paths_come_back_as_they_were_given() -> None:
    """Pickle, JSON, iteration and tables return the same paths."""
    schedule = flow()
    assert list(schedule.paths()) == [FlowPath(*row) for row in NEAR + FAR]
    decoded = schedule_from_json(schedule_to_json(schedule), "here")
    for copy in (pickle.loads(pickle.dumps(schedule)), decoded):
        assert isinstance(copy, FlowSchedule)
        assert list(copy.paths()) == list(schedule.paths())
        assert not copy.weights.flags.writeable
    frame = schedule.to_frame(RING)
    assert frame.columns.tolist() == ["source", "destination", "chunks", "path", "steps"]
    assert frame["path"][1] == ("gpu0", "gpu1", "gpu2")
    assert schedule.to_frame()["path"][1] == (0, 1, 2)
    with pytest.raises(CertificateError, match="a link that the topology does not have"):
        schedule.to_frame(ring(2))


def test_loads_up_to_the_limit_are_summed() -> None:
    """Those of 2^58 chunks a pair."""
    assert (
        verified_loads(flow(chunks=2**58, paths=[(2**58, *path[1:]) for path in NEAR + FAR]), RING).tolist()
        == [3 * 2**58] * 3
    )


def with_array(name: str, place: Any, value: int) -> Callable[[], FlowSchedule]:
    """Make a schedule in which one number is another."""

    def make() -> FlowSchedule:
        array = getattr(flow(), name).copy()
        array[place] = value
        return replace(flow(), **{name: array})

    return make


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "kind": (lambda: "flow", "expected trees, steps or a flow"),
    "ranks": (lambda: replace(flow(), num_ranks=4), "is for 4 ranks; the topology has 3"),
    "chunks": (lambda: replace(flow(), chunks_per_unit=0), "has 0 chunks per unit"),
    "many chunks": (lambda: replace(flow(), chunks_per_unit=2**70), "chunks per unit; expected 1 to"),
    "one chunk too many": (lambda: replace(flow(), chunks_per_unit=2**62), "4611686018427387904 chunks per unit"),
    "overflow": (lambda: replace(flow(), chunks_per_unit=2**61), "could overflow"),
    "overflow by one": (
        lambda: replace(flow(), traffic=np.array([[0, 1, 1], [1, 0, 1], [0, 0, 0]]), chunks_per_unit=2**60),
        "could overflow",
    ),
    "overflow of two": (with_array("weights", slice(2), 2**61), "could overflow"),
    "large but no overflow": (
        with_array("weights", 2, 2**61),
        f"send 2 carries chunks 0 to {2**61 - 1} of the data of rank 2 for rank 0; expected an interval of its 1",
    ),
    "floats": (lambda: replace(flow(), weights=np.ones(6)), "weights are float64"),
    "short steps": (lambda: replace(flow(), steps=flow().steps[1:]), r"steps are int64 of shape \(8,\)"),
    "negative traffic": (
        lambda: replace(flow(), traffic=np.array([[0, 1, 1], [1, 0, -1], [1, 1, 0]])),
        "traffic from rank 1 to rank 2 is negative",
    ),
    "no chunk": (with_array("weights", 2, 0), "path 2 carries no chunk"),
    "too many": (with_array("weights", 2, 2), "send 2 carries chunks 0 to 1 of the data of rank 2 for rank 0"),
    "no such node": (with_array("path_nodes", 3, 7), "path node 3 is not a node"),
    "twice": (with_array("path_nodes", 7, 2), "path 3 passes a node twice"),
    "early": (
        with_array("steps", 4, 0),
        "in step 0 rank 1 sends chunks 0 to 0 of the data of rank 0 for rank 2, but does not",
    ),
    "before the first": (with_array("steps", 0, -1), "path 0 has a hop before step 0"),
    "gap": (lambda: replace(flow(), steps=flow().steps * 2), "nothing is sent in step 1"),
    "far steps": (with_array("steps", 0, 2**62), "nothing is sent in step 2"),
    "nothing": (lambda: flow(paths=[]), "has no paths"),
    "other way": (lambda: flow(paths=[*NEAR[1:], *FAR, (1, (1, 0), (0,))]), "from 'gpu1' to 'gpu0', which does not"),
    "missing": (lambda: flow(paths=[*NEAR, *FAR[1:]]), "rank 2 never gets chunk 0 of the data of rank 0 for rank 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_check_names_what_is_wrong(name: str) -> None:
    """Each fault of a flow is refused by a message that names it."""
    make, message = WRONG[name]
    with pytest.raises(CertificateError, match=message):
        verified_loads(make(), RING)


@pytest.mark.parametrize("name", ["negative traffic", "no chunk", "twice", "early", "before the first", "missing"])
def test_the_check_without_a_topology_names_the_same(name: str) -> None:
    """Lowering checks a flow before its network is known."""
    make, message = WRONG[name]
    with pytest.raises(CertificateError, match=message):
        check_flow(make())


def test_steps_change_at_ranks_and_not_at_switches() -> None:
    """Data does not wait at switches."""
    paths = [(1, (s, 3, d), (0, int(s == 2))) for s in range(3) for d in range(3) if s != d]
    for check in (check_flow, lambda schedule: verified_loads(schedule, STAR)):
        with pytest.raises(CertificateError, match="steps of path 4 do not stay the same at a switch"):
            check(flow(paths=paths))
    into_switch = [(1, (0, 3), (0,))]
    with pytest.raises(CertificateError, match="path 0 does not run from a rank to a rank"):
        verified_loads(flow(paths=into_switch), STAR)


@given(st.data())
@settings(max_examples=examples(60))
def test_loads_are_those_of_plain_loops(data: st.DataObject) -> None:
    """Random simple paths of a two-way ring have the loads of a slow count."""
    size = data.draw(st.integers(3, 7))
    network = ring(size, bandwidth=10)
    paths, traffic = [], np.zeros((size, size), dtype=np.int64)
    for source in range(size):
        for hops in data.draw(st.lists(st.integers(1, size - 1), max_size=3)):
            turn, chunks = data.draw(st.sampled_from((1, -1))), data.draw(st.integers(1, 5))
            path = tuple((source + turn * hop) % size for hop in range(hops + 1))
            paths.append((chunks, path, tuple(range(hops))))
            traffic[source, path[-1]] += chunks
    if not paths:
        return
    loads = dict.fromkeys(((link.tail, link.head) for link in network.links), 0)
    for chunks, path, _ in paths:
        for tail, head in pairwise(path):
            loads[network.nodes[tail], network.nodes[head]] += chunks
    schedule = FlowSchedule.from_paths(traffic, 1, paths)
    assert verified_loads(schedule, network).tolist() == list(loads.values())
    assert schedule.link_loads(network).tolist() == list(loads.values())
    assert schedule.step_loads(network).sum(axis=0).tolist() == list(loads.values())


RELAYED = Topology.from_links(
    [(0, 1, 1), (1, 2, 1), (2, 0, 1), (0, "s", 1), (2, "s", 1)], compute=[0, 1, 2], switches="s", bidirectional=True
)
"""A ring of three ranks, two of which have a switch between them."""
WAYS = [(0, 1), (1, 0), (0, 3, 2), (2, 3, 0), (0, 1, 2), (2, 1, 0), (0, 2), (1, 0, 3, 2), (2, 3, 0, 1), (1, 2)]


def is_flow(traffic: np.ndarray[Any, Any], paths: list[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> bool:
    """Whether paths bring everything where it belongs, node by node."""
    brought = np.zeros_like(traffic)
    for chunks, path, steps in paths:
        known = {(RELAYED.node_index[link.tail], RELAYED.node_index[link.head]) for link in RELAYED.links}
        if len(set(path)) < len(path) or not set(pairwise(path)) <= known or max(path[0], path[-1]) > 2 or chunks < 1:
            return False
        for node, (before, after) in zip(path[1:-1], pairwise(steps), strict=True):
            if after <= before if node < 3 else after != before:
                return False
        brought[path[0], path[-1]] += chunks
    used = {step for _, _, steps in paths for step in steps}
    return np.array_equal(brought, traffic) and used == set(range(len(used)))


@given(st.data())
@settings(max_examples=examples(150))
def test_flows_are_accepted_exactly_if_every_path_is_right(data: st.DataObject) -> None:
    """Random paths through ranks and a switch, with a step, a node or an amount changed."""
    paths = []
    traffic = np.zeros((3, 3), dtype=np.int64)
    for path in data.draw(st.lists(st.sampled_from(WAYS), min_size=1, max_size=6)):
        chunks, step, steps = data.draw(st.integers(1, 3)), 0, [0]
        for node in path[1:-1]:
            step += node < 3
            steps.append(step)
        traffic[path[0], path[-1]] += chunks
        paths.append((chunks, path, tuple(steps)))
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(paths) - 1))
        chunks, path, steps = paths[place]
        at = data.draw(st.integers(0, len(steps) - 1))
        paths[place] = data.draw(
            st.sampled_from([
                (chunks + 1, path, steps), (chunks - 1, path, steps), (chunks, path[::-1], steps),
                (chunks, path, (*steps[:at], steps[at] + 1, *steps[at + 1 :])), (chunks, path, (0,) * len(steps)),
                (chunks, (*path[:at], (path[at] + 1) % 4, *path[at + 1 :]), steps),
            ])
        )  # fmt: skip
    made = FlowSchedule.from_paths(traffic, 1, paths)
    if is_flow(traffic, paths):
        assert verified_loads(made, RELAYED).tolist() == made.step_loads(RELAYED).sum(axis=0).tolist()
    else:
        with pytest.raises(CertificateError):
            verified_loads(made, RELAYED)


@pytest.mark.parametrize(("ranks", "root"), [(257, 0), (300, 299)])
def test_most_pairs_may_have_no_data(ranks: int, root: int) -> None:
    """Of a scatter on many ranks only one row of the traffic has any."""
    traffic = np.zeros((ranks, ranks), dtype=np.int64)
    traffic[root] = 1
    others = [rank for rank in range(ranks) if rank != root]
    check_flow(FlowSchedule.from_paths(traffic, 1, [(1, (root, rank), (0,)) for rank in others]))


def test_a_pair_may_have_any_number_of_chunks_below_the_limit() -> None:
    """2^46 for each of 64 ranks are fewer than 2^62 in all."""
    traffic = np.zeros((64, 64), dtype=np.int64)
    traffic[0] = 1
    check_flow(FlowSchedule.from_paths(traffic, 2**46, [(2**46, (0, rank), (0,)) for rank in range(1, 64)]))
