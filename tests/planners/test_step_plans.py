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
from collopt.errors import CertificateError, ColloptError, FileFormatError, UnsupportedError
from collopt.planners.plans.files import plan_from_json
from collopt.schedules import AnyStepSchedule, Bound, Cut, Partition, Send, StepAllreduce, StepSchedule
from collopt.topologies import hypercube, ring
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
    assert json.loads((tmp_path / "plan.json").read_text())["version"] == 10


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


LESS = Bound.from_witness(RING, "broadcast", Cut(frozenset({"gpu0"})), (1, 0, 0, 0))
UNEQUAL = Bound.from_witness(RING, "allgather", Cut(frozenset({"gpu0"})), (2, 1, 1, 1))
UNFIT: dict[str, tuple[Plan, str]] = {
    "a reduction for an allgather": (made(REDUCED), "'allgather' needs"),
    "an allgather for a reduction": (made(AROUND, "reduce_scatter"), "'reduce_scatter' needs"),
    "an allgather for an allreduce": (made(AROUND, "allreduce"), "'allreduce' needs"),
    "an allreduce for an allgather": (made(StepAllreduce(REDUCED, AROUND)), "'allgather' needs"),
    "an allreduce that only spreads": (made(StepAllreduce(AROUND, AROUND), "allreduce"), "'broadcast', 'broadcast'"),
    "an allgather for a broadcast": (replace(made(), collective="broadcast", bound=LESS), "shards differ"),
    "unequal shards": (made(bound=UNEQUAL), "shards differ"),
    "a rank too few": (replace(made(), schedule=replace(AROUND, num_ranks=3)), "is for 3 ranks"),
    "huge ranks": (replace(made(), schedule=replace(AROUND, num_ranks=2**60)), "is for 1152921504606846976"),
    "a huge step": (replace(made(), schedule=replace(AROUND, steps=AROUND.steps * 2**60)), "nothing .* step 1"),
    "no schedule": (replace(made(), schedule=3), "schedule is 3"),
    "other loads": (replace(made(), link_loads=made().link_loads + np.eye(2, 8, dtype=np.int64)), "'gpu0' to 'gpu1'"),
    "loads of trees": (replace(made(), link_loads=made().link_loads.sum(axis=0)), r"shape \(8,\); .* \(2, 8\)$"),
    "a step less": (replace(made(), link_loads=made().link_loads[:1]), r"shape \(1, 8\); .* \(2, 8\)$"),
    "a faster rate": (made(inverse_rate=Fraction(1, 50)), "claims 1/x = 1/50"),
    "a send less": (replace(made(), schedule=StepSchedule.from_sends(4, 2, SENDS[:-1])), "rank 1 never gets chunk 1"),
    "the wrong order": (replace(made(), schedule=replace(AROUND, steps=1 - AROUND.steps)), "^in step 0 rank 0 sends"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_proves_nothing_is_refused(case: str) -> None:
    """With the first thing that is wrong."""
    forged, message = UNFIT[case]
    with pytest.raises(CertificateError, match=message) as caught:
        forged.verify()
    assert "\n" not in str(caught.value)


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


NO_SENDS = made().to_json()["schedule"] | {name: [] for name in ("steps", "sources", "lower", "upper", "routes")}
CHANGES: dict[str, tuple[str, object, type[ColloptError], str]] = {
    "loads of trees": ("link_loads", [0] * 8, CertificateError, "link loads of shape"),
    "a ragged row": ("link_loads", [[0] * 8, [0]], FileFormatError, "link_loads"),
    "a huge load": ("link_loads", [[2**63]], FileFormatError, "link_loads"),
    "half a load": ("link_loads", [[0.5]], FileFormatError, "link_loads"),
    "a truth": ("link_loads", [[True]], FileFormatError, "link_loads"),
    "no loads": ("link_loads", [], CertificateError, r"link loads of shape \(0,\)"),
    "other loads": ("link_loads", [[2] * 8, [2] * 8], CertificateError, "step 1 puts 1 chunks on the link"),
    "a huge number of ranks": ("schedule num_ranks", 2**62, CertificateError, "4611686018427387904 ranks"),
    "huge chunks": ("schedule chunks_per_shard", 2**62, CertificateError, "4611686018427387904 chunks"),
    "other chunks": ("schedule chunks_per_shard", 1, CertificateError, "an interval"),
    "more chunks": ("schedule chunks_per_shard", 3, CertificateError, "rank 1 never gets chunk 2"),
    "steps elsewhere": ("schedule steps", [2**62] * 16, CertificateError, "nothing is sent in step 0"),
    "routes elsewhere": ("schedule routes", [2**62] * 16, CertificateError, "route"),
    "no sends": ("schedule", NO_SENDS, CertificateError, "0 sends"),
    "no paths": ("schedule paths", [], CertificateError, "path_starts"),
    "an empty path": ("schedule paths", [[]] * 8, CertificateError, "path_starts"),
    "another direction": ("schedule direction", "reduce", CertificateError, "'allgather' needs"),
    "another bound": ("bound inverse_rate", "1/1000", CertificateError, "the bound claims"),
    "another rate": ("inverse_rate", "1/1000", CertificateError, "claims 1/x = 1/1000"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changed_files_are_refused(case: str, tmp_path: Path) -> None:
    """Malformed or forged, in one line."""
    place, value, kind, message = CHANGES[case]
    changed = target = document()
    *keys, last = place.split()
    for key in keys:
        target = target[key]
    target[last] = value
    (tmp_path / "plan.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(kind, match=message) as caught:
        load_plan(tmp_path / "plan.json")
    assert "\n" not in str(caught.value)


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
