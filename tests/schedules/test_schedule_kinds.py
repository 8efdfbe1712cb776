"""Conformance of all kinds of schedules: loads, transfers, files, copies, plans, and verification for all."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from collopt.errors import CertificateError, UnsupportedError
from collopt.planners import load_plan, plan, plan_of_schedule, schedule_all_to_allv
from collopt.runtime import lower
from collopt.schedules import (
    SCHEDULE_KINDS,
    Allreduce,
    AllToAllvSchedule,
    DemandForest,
    Demands,
    FlowSchedule,
    Forest,
    Schedule,
    StagedFlow,
    StepAllreduce,
    StepExchange,
    StepSchedule,
    SymmetricAllreduce,
    SymmetricForest,
    rate_of_loads,
    schedule_from_json,
    schedule_time,
    schedule_to_json,
    verified_loads,
)
from collopt.schedules.message_order import reordered
from collopt.support.arrays import read_only
from collopt.topologies import Topology, ring
from sample_sizes import examples
from strategies import eulerian_topologies

PAIR = Topology.from_links([("a", "b", 10, 3), ("b", "a", 5, 3)], compute=["a", "b"])
FOREST = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
STEPS = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
HALVES = StepSchedule.from_sends(
    2, 4, [(step, rank, 2 * step, 2 * step + 2, (rank, 1 - rank)) for step in (0, 1) for rank in (0, 1)]
)
FLOW = FlowSchedule.from_paths(np.ones((2, 2), dtype=np.int64), 1, [(1, (0, 1), (0,)), (1, (1, 0), (0,))])
STAGED = schedule_all_to_allv(np.array([[0, 3], [2, 0]]), servers=2, gpus_per_server=1)
SYMMETRIC = SymmetricForest(
    Forest.from_paths(2, 1, [(0, 1, [(0, 1)])], root_weights=[1, 0]), np.array([[1, 0]], dtype=np.int64)
)
EVEN = ring(2, bandwidth=10, latency=3)
PAIR_DEMANDS = Demands([("item", 1, ["a"], ["b"])])
DEMAND_FOREST = DemandForest.of_trees(PAIR, PAIR_DEMANDS, 1, [(0, 1, [(0, 1)], 0)])
ANY: dict[str, tuple[str, Schedule, Topology, list[Any]]] = {
    # name: collective, schedule, network, loads
    "forest": ("allgather", FOREST, PAIR, [1, 1]),
    "allreduce": ("allreduce", Allreduce(replace(FOREST, direction="reduce"), FOREST), PAIR, [2, 2]),
    "symmetric forest": ("allgather", SYMMETRIC, EVEN, [1, 1]),
    "symmetric allreduce": (
        "allreduce",
        SymmetricAllreduce(replace(SYMMETRIC, base=replace(SYMMETRIC.base, direction="reduce")), SYMMETRIC),
        EVEN,
        [2, 2],
    ),
    "demand forest": (PAIR_DEMANDS, DEMAND_FOREST, PAIR, [1, 0]),
    "steps": ("allgather", STEPS, PAIR, [[1, 1]]),
    "finer steps": ("allgather", HALVES, PAIR, [[2, 2], [2, 2]]),
    "allreduce in steps": (
        "allreduce",
        StepAllreduce(replace(STEPS, direction="reduce"), HALVES),
        PAIR,
        [[1, 1], [2, 2], [2, 2]],
    ),
    "exchange": (
        "allreduce",
        StepExchange.from_sends(2, 1, [(0, True, 0, 1, (0, 1)), (0, True, 0, 1, (1, 0))]),
        PAIR,
        [[1, 1]],
    ),
    "flow": ("all_to_all", FLOW, PAIR, [1, 1]),
    "staged flow": ("all_to_all", StagedFlow.of(FLOW, np.array([0, 1])), PAIR, [[1, 1]]),
}
KINDS = pytest.mark.parametrize("name", ANY)
WAYS: dict[str, Callable[[Any], Any]] = {
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    "pickled": lambda schedule: pickle.loads(pickle.dumps(schedule)),
    "replaced": replace,
    "read": lambda schedule: schedule_from_json(json.loads(json.dumps(schedule_to_json(schedule))), "text"),
}


def arrays_of(schedule: object) -> list[npt.NDArray[Any]]:
    """All arrays of a schedule and its parts."""
    values = [getattr(schedule, field.name) for field in fields(cast("Any", schedule))]
    parts = [array for value in values if isinstance(value, Schedule) for array in arrays_of(value)]
    return [value for value in values if isinstance(value, np.ndarray)] + parts


def test_kinds_of_plan_files_stay_those_of_this_package() -> None:
    """A class of a user cannot take a name under which plan files are read."""
    with pytest.raises(UnsupportedError, match="'forest'"):
        type("Other", (Schedule,), {}, kind="forest")
    assert SCHEDULE_KINDS["forest"].__module__.startswith("collopt.")


def test_every_stored_kind_is_tried() -> None:
    """The cases below cover all kinds of this package, those of other tests aside."""
    kinds = {name for name, kind in SCHEDULE_KINDS.items() if kind.__module__.startswith("collopt.")}
    assert {schedule.kind for _, schedule, _, _ in ANY.values()} == kinds


@KINDS
def test_loads_rate_and_time_agree(name: str) -> None:
    """Methods agree with the verification and with the functions that plans are made with."""
    _, schedule, network, expected = ANY[name]
    loads = verified_loads(schedule, network)
    assert loads.tolist() == schedule.link_loads(network).tolist() == expected
    assert loads.dtype == np.int64
    assert len(schedule.load_units) == len(np.atleast_2d(loads))
    assert schedule.inverse_rate(network) == rate_of_loads(loads, schedule, network)
    assert schedule.time(network, 1000) == schedule_time(schedule, network, 1000)
    assert schedule.num_ranks == 2


@KINDS
def test_transfers_carry_the_loads(name: str) -> None:
    """Both count the same data on every link, each in its own unit."""
    _, schedule, network, _ = ANY[name]
    sent = schedule.transfers(network)
    rows = np.atleast_2d(verified_loads(schedule, network)).tolist()
    for link, amount in enumerate(sent.link_loads(network.num_links).tolist()):
        data = sum(
            (Fraction(row[link], unit) for row, unit in zip(rows, schedule.load_units, strict=True)), Fraction(0)
        )
        assert amount * sent.unit * schedule.total_weight == data
    assert len(schedule.hop_numbers(sent)) == len(schedule.part_numbers(sent)) == len(sent.senders)


@pytest.mark.parametrize("way", WAYS)
@KINDS
def test_copies_are_equal_and_read_only(name: str, way: str) -> None:
    """Copies, pickles and files return an equal schedule with read-only arrays."""
    _, schedule, network, expected = ANY[name]
    again = WAYS[way](schedule)
    assert type(again) is type(schedule)
    assert again.to_json() == schedule.to_json()
    assert verified_loads(again, network).tolist() == expected
    for one, other in zip(arrays_of(again), arrays_of(schedule), strict=True):
        assert one.dtype == other.dtype
        with pytest.raises(ValueError, match="read-only"):
            one[...] = 0


@KINDS
def test_plans_verify_and_come_back_from_files(name: str, tmp_path: Any) -> None:
    """A plan of it takes no less than its bound, is for its collective alone, and can be lowered."""
    collective, schedule, network, _ = ANY[name]
    made = plan_of_schedule(network, collective, schedule)
    made.verify()
    assert str(made).endswith(schedule.size_text)
    assert made.gap >= 0
    made.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").to_json() == made.to_json()
    assert made.simulate(1000) >= float(schedule.latency(network) if schedule.pipelined else 3)
    if schedule.demands is None:
        assert lower(schedule, collective).num_ranks == 2
    assert {*schedule.rows(network, {}), *schedule.checks(), *schedule.figures(network)}
    for other in {"allgather", "allreduce", "all_to_all"} - {collective}:
        with pytest.raises(UnsupportedError):
            plan_of_schedule(network, other, schedule)
        with pytest.raises(UnsupportedError, match=f"{other} was requested"):
            lower(schedule, other)


def test_parts_of_a_flow_are_its_sources_in_any_order_of_transfers() -> None:
    """Tables and pages number transfers of a run, which has an order of its own."""
    network, traffic = ring(3, bidirectional=False), np.ones((3, 3), dtype=np.int64)
    near = [(1, (rank, (rank + 1) % 3), (0,)) for rank in range(3)]
    far = [(1, (rank, (rank + 1) % 3, (rank + 2) % 3), (0, 1)) for rank in range(3)]
    schedule = FlowSchedule.from_paths(traffic, 1, near + far)
    transfers = schedule.transfers(network)
    order = np.array([8, 3, 0, 5, 1, 7, 2, 4, 6])
    sources = schedule.columns.items // 3
    assert schedule.part_numbers(reordered(transfers, order)).tolist() == sources[order].tolist()


def test_arrays_of_the_caller_stay_writable() -> None:
    """They are shared, not copied, and what is read-only is not wrapped again."""
    weights = np.array([1, 1])
    forest = replace(FOREST, weights=weights)
    assert weights.flags.writeable
    assert np.shares_memory(forest.weights, weights)
    view = read_only(np.arange(3))
    assert read_only(view) is view
    assert replace(forest, direction="reduce").routes is forest.routes
    for array in (forest.parents, forest.depths):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


class BoastfulForest(Forest):
    """Trees that vouch for themselves."""

    def verified_loads(self, topology: Topology) -> npt.NDArray[np.int64]:
        """Claim that no link carries anything."""
        return np.zeros(len(topology.links), dtype=np.int64)

    link_loads = verified_loads


def test_a_subclass_is_verified_like_its_kind() -> None:
    """A subclass cannot override its verification: loads are those of the arrays, and wrong arrays are refused."""
    parts = {name: getattr(FOREST, name) for name in ("roots", "weights", "routes", "path_starts", "path_nodes")}
    boastful = BoastfulForest(2, 1, **parts)
    assert verified_loads(boastful, PAIR).tolist() == [1, 1]
    honest = plan_of_schedule(PAIR, "allgather", FOREST)
    claimed = replace(honest, schedule=boastful, link_loads=boastful.link_loads(PAIR))
    with pytest.raises(CertificateError, match="the trees put 1 copies on the link from 'a' to 'b'; the plan states 0"):
        claimed.verify()
    wrong = BoastfulForest(2, 1, **parts | {"routes": np.full((2, 2), -1, dtype=np.int32)})
    with pytest.raises(CertificateError, match="tree 0 does not deliver to rank 1"):
        replace(honest, schedule=wrong).verify()


@dataclass(frozen=True)
class Promise(Schedule):
    """A class that states no kind."""

    parts = "promises"
    subject = "promises are"
    num_ranks: int = 2

    @cached_property
    def expanded(self) -> Schedule:
        """A correct schedule, which does not help."""
        return FOREST


@pytest.mark.parametrize(
    "call",
    [
        lambda schedule: plan_of_schedule(PAIR, "allgather", schedule),
        lambda schedule: schedule_time(schedule, PAIR, 1),
        schedule_to_json,
    ],
)
@pytest.mark.parametrize("schedule", [Promise(), STAGED], ids=["no kind", "stages"])
def test_classes_without_a_kind_are_no_plans(schedule: Schedule, call: Callable[[Schedule], object]) -> None:
    """Neither an unnamed class, nor stages, which say who sends but not over which links."""
    with pytest.raises(UnsupportedError):
        call(schedule)
    with pytest.raises(CertificateError):
        verified_loads(schedule, PAIR)
    with pytest.raises(CertificateError, match="expected trees, steps or a flow"):
        replace(plan_of_schedule(PAIR, "allgather", FOREST), schedule=schedule).verify()


def test_stages_without_links_have_no_loads_and_are_lowered() -> None:
    """They refuse all that depends on links."""
    assert isinstance(STAGED, AllToAllvSchedule)
    assert (STAGED.num_ranks, STAGED.total_weight, STAGED.phases) == (2, Fraction(5, 2), ())
    assert STAGED.has_sizes((0, 3, 2, 0), 2)
    assert not STAGED.has_sizes((0, 3, 2, 1), 2)
    assert not STAGED.has_sizes((), 2)
    assert lower(STAGED, "all_to_allv").num_ranks == 2
    for name in ("load_units", "depth", "messages"):
        with pytest.raises(UnsupportedError, match="expected trees, steps or a flow"):
            getattr(STAGED, name)
    for name in ("link_loads", "transfers", "latency", "hop_rate"):
        with pytest.raises(UnsupportedError, match="expected trees, steps or a flow"):
            getattr(STAGED, name)(PAIR)


def test_symmetric_forests_are_never_expanded_where_it_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification, figures, files and estimates read the trees that are written down."""

    def expand(schedule: SymmetricForest) -> Forest:
        raise AssertionError

    monkeypatch.setattr("collopt.schedules.trees.symmetric_forest._expand", expand)
    for name in ("symmetric forest", "symmetric allreduce"):
        collective, _, network, _ = ANY[name]
        schedule = pickle.loads(pickle.dumps(ANY[name][1]))
        made = plan_of_schedule(network, collective, schedule)
        made.verify()
        made.estimate("1M")
        assert made.schedule.to_json() == ANY[name][1].to_json()
        assert schedule.rows(network, {})
        assert schedule.checks()
        assert schedule.figures(network)
        assert (schedule.num_steps, schedule.sends_unevenly, schedule.num_trees % 2) == (0, False, 0)
        with pytest.raises(AssertionError):
            schedule.transfers(network)


def test_symmetric_trees_that_could_overflow_are_refused() -> None:
    """The load of all images together counts, not only that of the trees that are written down."""
    base = replace(SYMMETRIC.base, trees_per_root=2**60, weights=np.array([2**60]))
    assert verified_loads(base, EVEN).sum() == 2**60
    with pytest.raises(CertificateError, match="could overflow the 64-bit sums of this check"):
        verified_loads(replace(SYMMETRIC, base=base), EVEN)


def test_one_rank_needs_no_steps() -> None:
    """Steps of one rank pass the verification without a topology."""
    StepSchedule.from_sends(1, 1, []).check()


def test_sizes_state_both_parts_where_they_differ() -> None:
    """The size of an allreduce in steps names chunks once if both parts are cut alike."""
    assert ANY["allreduce in steps"][1].size_text == "1 step, 1 chunk per shard, then 2 steps, 4 chunks per shard"
    assert StepAllreduce(replace(HALVES, direction="reduce"), HALVES).size_text == "4 steps, 4 chunks per shard"


def in_steps(forest: Forest, topology: Topology, left_out: int | None = None) -> StepSchedule:
    """Trees as sends in steps, by the levels of their transfers; one may be left out."""
    sent = forest.transfers(topology)
    shard = round(1 / (sent.unit * topology.num_ranks))
    last, reduces = int(sent.levels.max()), forest.direction == "reduce"
    sends = []
    for number, (first, amount, level) in enumerate(zip(sent.firsts, sent.amounts, sent.levels, strict=True)):
        links = sent.hop_links[sent.hop_starts[number] : sent.hop_starts[number + 1]]
        path = (*topology.arrays.tails[links[:1]].tolist(), *topology.arrays.heads[links].tolist())
        source, lower_end = divmod(int(first), shard)
        step, nodes = (last - int(level), path[::-1]) if reduces else (int(level), path)
        if number != left_out:
            sends.append((step, source, lower_end, lower_end + int(amount), nodes))
    return StepSchedule.from_sends(topology.num_ranks, shard, sends, forest.direction)


@given(eulerian_topologies())
@settings(max_examples=examples(30))
def test_both_verifiers_agree_on_forests(topology: Topology) -> None:
    """Trees and the same trees in steps verify to the same loads, and neither verifies without one hop."""
    forest = plan(topology, "allgather").schedule
    assert isinstance(forest, Forest)
    steps = in_steps(forest, topology)
    by_trees = verified_loads(forest, topology) * steps.chunks_per_shard
    assert by_trees.tolist() == (verified_loads(steps, topology).sum(axis=0) * forest.trees_per_root).tolist()
    tree, rank = (int(place) for place in np.argwhere(forest.routes >= 0)[-1])
    routes = forest.routes.copy()
    routes[tree, rank] = -1
    with pytest.raises(CertificateError):
        verified_loads(replace(forest, routes=routes), topology)
    with pytest.raises(CertificateError):
        verified_loads(in_steps(forest, topology, left_out=len(forest.transfers(topology).senders) - 1), topology)
    back = plan(topology, "reduce_scatter").schedule
    assert isinstance(back, Forest)
    turned = in_steps(back, topology)
    by_trees = verified_loads(back, topology) * turned.chunks_per_shard
    assert by_trees.tolist() == (verified_loads(turned, topology).sum(axis=0) * back.trees_per_root).tolist()
