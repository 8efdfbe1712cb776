"""Plans that consist of steps: they prove what they claim, come back from files, and refuse what is about trees."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt import Plan, load_plan, plan
from collopt.errors import CertificateError, ColloptError, FileFormatError, TopologyError, UnsupportedError
from collopt.planners.plans.files import plan_from_json
from collopt.schedules import AnyStepSchedule, Bound, Cut, Forest, Partition, Send, StepAllreduce, StepSchedule
from collopt.topologies import Topology, complete, hypercube, ring
from sample_sizes import examples

RING = ring(4, bandwidth=25, latency=3)
"""Two steps: shards go both ways to the neighbors, and half of each further on either side."""
SENDS = [
    *(Send(0, rank, 0, 2, (rank, (rank + side) % 4)) for rank in range(4) for side in (1, 3)),
    *(Send(1, rank, 0, 1, ((rank + 1) % 4, (rank + 2) % 4)) for rank in range(4)),
    *(Send(1, rank, 1, 2, ((rank + 3) % 4, (rank + 2) % 4)) for rank in range(4)),
]
AROUND = StepSchedule.from_sends(4, 2, SENDS)
REDUCED = replace(AROUND, direction="reduce")


def made(schedule: AnyStepSchedule = AROUND, collective: str = "allgather", **changes: Any) -> Plan:
    """A plan with loads and rate of the schedule, and a bound that the ring's cuts prove."""
    alone = Cut(frozenset(RING.nodes[1:]))
    witness = Partition(tuple(frozenset({node}) for node in RING.nodes)) if collective == "allreduce" else alone
    bound = Bound.from_witness(RING, collective, witness)
    loads, rate = schedule.link_loads(RING), schedule.inverse_rate(RING)
    return replace(Plan(RING, collective, schedule, bound, rate, loads, "by-hand"), **changes)


PLANS: dict[str, Callable[[], Plan]] = {
    "allgather": made,
    "reduce_scatter": lambda: made(REDUCED, "reduce_scatter"),
    "allreduce": lambda: made(StepAllreduce(REDUCED, AROUND), "allreduce"),
}


@pytest.mark.parametrize("collective", PLANS)
def test_plans_prove_what_they_claim(collective: str) -> None:
    """Three shards come in over two links of 25 GB/s: 3/50 ns per byte, once or twice, which is the optimum."""
    proved = PLANS[collective]()
    proved.verify()
    proved.verify(replace(RING, name="renamed"))
    times = 2 if collective == "allreduce" else 1
    assert (proved.inverse_rate, proved.algbw, proved.busbw) == (Fraction(3, 50) * times, Fraction(200, 3) / times, 50)
    assert (proved.gap, proved.num_steps, proved.schedule.pipelined) == (0, 2 * times, False)
    assert proved.link_loads.shape == (2 * times, 8)
    assert str(proved) == (
        f"{collective} on ring-4 by by-hand: {float(proved.algbw):.2f} GB/s, optimal; "
        f"{2 * times} steps, 2 chunks per shard"
    )


@pytest.mark.parametrize("collective", PLANS)
def test_estimates_wait_for_every_step(collective: str) -> None:
    """Shards of 1 MB: 3 + 40 µs for all of one, 3 + 20 µs for half; the sums E.3 of the paper writes down."""
    times = 2 if collective == "allreduce" else 1
    assert PLANS[collective]().estimate(4_000_000) == times * (3 + 40 + 3 + 20)
    with pytest.raises(UnsupportedError, match="leave slices out"):
        PLANS[collective]().estimate("1M", slices=2)


@pytest.mark.parametrize("collective", PLANS)
def test_plans_come_back_from_files_as_they_were(collective: str, tmp_path: Path) -> None:
    """And from copies: the same schedule, loads of the same type, the same bound."""
    saved = PLANS[collective]()
    saved.save(tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json", RING)
    for other in (again, copy.deepcopy(saved), pickle.loads(pickle.dumps(saved))):
        assert other.to_json() == saved.to_json()
        assert type(other.schedule) is type(saved.schedule)
        assert (other.link_loads.dtype, other.bound, other.gap) == (np.int64, saved.bound, 0)
    assert json.loads((tmp_path / "plan.json").read_text())["version"] == 8


def test_both_parts_of_an_allreduce_keep_their_own_chunks(tmp_path: Path) -> None:
    """A row of loads counts in chunks of its part; cut twice as finely, the reduction is as fast."""
    finer = replace(REDUCED, chunks_per_shard=4, lower=REDUCED.lower * 2, upper=REDUCED.upper * 2)
    mixed = made(StepAllreduce(finer, AROUND), "allreduce")
    mixed.save(tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again.link_loads[:, 0].tolist() == [4, 2, 2, 1]
    assert (again.inverse_rate, again.gap) == (Fraction(3, 25), 0)
    assert str(again).endswith("; 2 steps, 4 chunks per shard, then 2 steps, 2 chunks per shard")


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_the_planner_plans_steps(collective: str) -> None:
    """By its name in the registry, with its own options; the ring is planned as well as by hand."""
    found = plan(RING, collective, planner="bfb")
    assert (found.planner, found.gap, found.inverse_rate) == ("bfb", 0, PLANS[collective]().inverse_rate)
    assert plan(RING, collective, planner="bfb", chunks=4).options == {"chunks": 4}
    with pytest.raises(UnsupportedError, match=r"planner 'bfb' has no option 'trees_per_root'; its options: chunks"):
        plan(RING, collective, planner="bfb", trees_per_root=1)


UNFIT: dict[str, tuple[Plan, str]] = {
    "a reduction for an allgather": (made(REDUCED), "the plan's steps are not of the kind that 'allgather' needs"),
    "an allgather for a reduction": (made(AROUND, "reduce_scatter"), "the plan's steps are not of the kind"),
    "an allgather for an allreduce": (
        made(AROUND, "allreduce"),
        "the plan's steps are not of the kind that 'allreduce'",
    ),
    "an allreduce for an allgather": (
        made(StepAllreduce(REDUCED, AROUND)),
        "the plan's steps are not of the kind that",
    ),
    "an allreduce that only spreads": (
        made(StepAllreduce(AROUND, AROUND), "allreduce"),
        "the allreduce does not consist of one schedule that reduces and one that broadcasts",
    ),
    "an allgather for a broadcast": (
        replace(
            made(),
            collective="broadcast",
            bound=Bound.from_witness(RING, "broadcast", Cut(frozenset({"gpu0"})), (1, 0, 0, 0)),
        ),
        "the plan's shards differ from those of its bound",
    ),
    "unequal shards": (
        made(bound=Bound.from_witness(RING, "allgather", Cut(frozenset({"gpu0"})), (2, 1, 1, 1))),
        "the plan's shards differ from those of its bound",
    ),
    "a rank too few": (made(schedule=replace(AROUND, num_ranks=3)), "the schedule is for 3 ranks; the topology has 4"),
    "huge ranks": (
        replace(made(), schedule=replace(AROUND, num_ranks=2**60)),
        "the schedule is for 1152921504606846976",
    ),
    "a huge step": (
        replace(made(), schedule=replace(AROUND, steps=AROUND.steps * 2**60)),
        "nothing is sent in step 1",
    ),
    "no schedule": (replace(made(), schedule=3), "the plan's schedule is 3; expected trees, steps or a flow"),
    "other loads": (
        replace(made(), link_loads=made().link_loads + np.eye(2, 8, dtype=np.int64)),
        "^step 0 puts 2 chunks on the link from 'gpu0' to 'gpu1'; the plan states 3$",
    ),
    "loads of trees": (
        replace(made(), link_loads=made().link_loads.sum(axis=0)),
        r"^the plan states link loads of shape \(8,\); its schedule makes them of shape \(2, 8\)$",
    ),
    "a step less": (
        replace(made(), link_loads=made().link_loads[:1]),
        r"^the plan states link loads of shape \(1, 8\); its schedule makes them of shape \(2, 8\)$",
    ),
    "a faster rate": (
        made(inverse_rate=Fraction(1, 50)),
        "^the plan claims 1/x = 1/50; its busiest links give 3/50$",
    ),
    "a send less": (
        replace(made(), schedule=StepSchedule.from_sends(4, 2, SENDS[:-1])),
        "^rank 1 never gets chunk 1 of the shard of rank 3$",
    ),
    "steps in the wrong order": (
        replace(made(), schedule=replace(AROUND, steps=1 - AROUND.steps)),
        "^in step 0 rank 0 sends chunks 1 to 1 of the shard of rank 1, but does not have them by then$",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_proves_nothing_is_refused(case: str) -> None:
    """With the first thing that is wrong."""
    forged, message = UNFIT[case]
    with pytest.raises(CertificateError, match=message) as caught:
        forged.verify()
    assert "\n" not in str(caught.value)


def test_a_plan_that_beats_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the bound's own check says."""
    monkeypatch.setattr(Bound, "verify", lambda bound: None)
    with pytest.raises(CertificateError, match="claims algbw = 200/3, which beats its bound"):
        made(bound=replace(made().bound, inverse_rate=Fraction(1, 10))).verify()


def test_another_network_is_refused() -> None:
    """The message says to plan again."""
    with pytest.raises(TopologyError, match="plan again for this topology"):
        made().verify(ring(4, bandwidth=24, latency=3))


def test_what_is_about_trees_is_refused(tmp_path: Path) -> None:
    """In one line; and steps are not counted in trees."""
    message = "^the plan by 'by-hand' consists of steps; expected one of trees$"
    for ask in (lambda: made().heights, lambda: made().trees):
        with pytest.raises(UnsupportedError, match=message):
            ask()
    trees = plan(RING, "allgather")
    assert trees.trees is trees.schedule
    assert trees.schedule.pipelined
    with pytest.raises(UnsupportedError, match=r"^the plan by 'forestcoll' consists of trees; expected one of steps$"):
        trees.num_steps  # noqa: B018
    with pytest.raises(UnsupportedError, match="planner 'bfb' has no option 'trees_per_root'"):
        collopt.scan_trees_per_root(RING, "allgather", [1], planner="bfb")


def document() -> dict[str, Any]:
    """The plan by hand as a decoded document."""
    return json.loads(json.dumps(made().to_json()))  # type: ignore[no-any-return]


CHANGES: dict[str, tuple[tuple[str, ...], object, type[ColloptError], str]] = {
    "loads of trees": (
        ("link_loads",),
        [0] * 8,
        FileFormatError,
        r"field link_loads\[0\] is 0; it should be a valid li",
    ),
    "a ragged row": (
        ("link_loads",),
        [[0] * 8, [0]],
        FileFormatError,
        "field link_loads has rows of different lengths",
    ),
    "a huge load": (("link_loads",), [[2**63]], FileFormatError, "field link_loads has a number beyond 64 bits"),
    "half a load": (("link_loads",), [[0.5]], FileFormatError, r"field link_loads\[0\]\[0\]"),
    "a truth": (("link_loads",), [[True]], FileFormatError, r"field link_loads\[0\]\[0\]"),
    "no loads": (("link_loads",), [], CertificateError, r"states link loads of shape \(0,\)"),
    "other loads": (("link_loads",), [[2] * 8, [2] * 8], CertificateError, "step 1 puts 1 chunks on the link"),
    "a huge number of ranks": (("schedule", "num_ranks"), 2**62, CertificateError, "is for 4611686018427387904 ranks"),
    "huge chunks": (("schedule", "chunks_per_shard"), 2**62, CertificateError, "could overflow the 64-bit sums"),
    "other chunks": (
        ("schedule", "chunks_per_shard"),
        1,
        CertificateError,
        "send 0 does not carry an interval of chunks",
    ),
    "more chunks": (("schedule", "chunks_per_shard"), 3, CertificateError, "rank 1 never gets chunk 2"),
    "steps elsewhere": (("schedule", "steps"), [2**62] * 16, CertificateError, "nothing is sent in step 0"),
    "routes elsewhere": (
        ("schedule", "routes"),
        [2**62] * 16,
        CertificateError,
        "send 0 has a route that is not a path",
    ),
    "no sends": (
        ("schedule",),
        made().to_json()["schedule"] | {"steps": [], "sources": [], "lower": [], "upper": [], "routes": []},
        CertificateError,
        "the schedule has 0 sends; 4 ranks need at least 12",
    ),
    "no paths": (("schedule", "paths"), [], CertificateError, "path_starts do not cut its path_nodes into paths"),
    "an empty path": (("schedule", "paths"), [[]] * 8, CertificateError, "path_starts do not cut its path_nodes"),
    "another direction": (
        ("schedule", "direction"),
        "reduce",
        CertificateError,
        "not of the kind that 'allgather' needs",
    ),
    "another bound": (("bound", "inverse_rate"), "1/1000", CertificateError, "the bound claims"),
    "another rate": (("inverse_rate",), "1/1000", CertificateError, "the plan claims 1/x = 1/1000"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changed_files_are_refused(case: str, tmp_path: Path) -> None:
    """Malformed or forged, in one line."""
    place, value, kind, message = CHANGES[case]
    changed = document()
    target = changed
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    (tmp_path / "plan.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(kind, match=message) as caught:
        load_plan(tmp_path / "plan.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@given(st.data())
@settings(max_examples=examples(150))
def test_a_file_with_one_byte_changed_never_crashes(data: st.DataObject) -> None:
    """It is refused by one of our own errors, or proves what it says all the same."""
    text = json.dumps(made().to_json())
    place = data.draw(st.integers(text.index('"inverse_rate"'), len(text) - 1))
    changed = text[:place] + data.draw(st.sampled_from('0123456789-.eE"[]{},:/x ')) + text[place + 1 :]
    try:
        decoded = json.loads(changed)
        again = plan_from_json(decoded, "text") if isinstance(decoded, dict) else None
        if again is not None:
            again.verify()
            assert again.topology == RING
            assert again.inverse_rate == made().inverse_rate
    except (json.JSONDecodeError, ColloptError):
        return


def test_large_plans_are_saved_and_loaded(tmp_path: Path) -> None:
    """A hypercube of 256 ranks, 65280 sends; every shard spreads along a tree of its own."""
    topology = hypercube(8, bandwidth=25)
    sources, ranks = (part.ravel() for part in np.indices((256, 256)))
    sources, ranks = sources[sources != ranks], ranks[sources != ranks]
    way = sources ^ ranks
    pairs, routes = np.unique((ranks ^ (way & -way)) * 256 + ranks, return_inverse=True)
    schedule = StepSchedule(
        256,
        1,
        np.array([number.bit_count() - 1 for number in way.tolist()]),
        sources,
        np.zeros_like(sources),
        np.ones_like(sources),
        routes.ravel(),
        np.arange(0, 2 * len(pairs) + 1, 2),
        np.stack([pairs // 256, pairs % 256], axis=1).ravel(),
    )
    bound = Bound.from_witness(topology, "allgather", Cut(frozenset(topology.nodes[1:])))
    loads, rate = schedule.link_loads(topology), schedule.inverse_rate(topology)
    Plan(topology, "allgather", schedule, bound, rate, loads, "by-hand").save(tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json", topology)
    assert (again.num_steps, again.inverse_rate) == (8, rate)
    assert np.array_equal(again.schedule.routes, schedule.routes)


def test_trees_and_steps_of_one_collective_have_the_same_bound() -> None:
    """A complete graph: one step is as good as trees of height 1."""
    topology: Topology = complete(4, bandwidth=10)
    steps, trees = (plan(topology, "allgather", planner=name) for name in ("bfb", "forestcoll"))
    assert isinstance(trees.schedule, Forest)
    assert (steps.algbw, steps.gap, steps.num_steps) == (trees.algbw, 0, 1)
