"""Process groups that share a fabric: rates by hand, proofs, and groups that cannot be planned."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import collopt
from collopt import Topology
from collopt.errors import BoundError, CertificateError, ColloptError, FileFormatError, UnsupportedError
from collopt.planners import Group, GroupPlans, mesh_groups, plan_groups, read_groups
from collopt.schedules import LinkValue
from collopt.topologies import dgx_h100, ring
from sample_sizes import examples
from strategies import eulerian_topologies

RING = ring(4, bandwidth=10)


def star(*bandwidths: int) -> Topology:
    """Ranks a, b, ... around a switch."""
    rows = [("abcdef"[rank], "s", bandwidth) for rank, bandwidth in enumerate(bandwidths)]
    return Topology.from_links(rows, compute="abcdef"[: len(rows)], switches="s", bidirectional=True)


@pytest.mark.parametrize(
    ("fabric", "groups", "rates"),
    [
        # Opposite sides of a ring share nothing, and relaying gains nothing.
        (RING, [("x", (0, 1), "allgather", 1), ("y", (2, 3), "allgather", 1)], [20, 20]),
        # Both pairs need b's links: x gets 2 of 3 parts.
        (star(30, 30, 30), [("x", "ab", "allgather", 2), ("y", "bc", "allgather", 1)], [40, 20]),
        # c's link is slow, so y is settled first, and x gets what is left at b.
        (star(30, 30, 5), [("x", "ab", "allgather", 1), ("y", "bc", "allgather", 1)], [50, 10]),
        # Three pairs in a triangle: each link carries two of them.
        (
            star(8, 8, 8),
            [("x", "ab", "allgather", 1), ("y", "bc", "allgather", 1), ("z", "ac", "allgather", 1)],
            [8] * 3,
        ),
        # An allgather takes in twice what it gives out and a reduce-scatter the opposite, but unicast switches balance.
        (star(12, 12, 12), [("x", "abc", "allgather", 1), ("y", "abc", "reduce_scatter", 1)], [9, 9]),
        # An all-to-all sends two of three parts, an allreduce takes 4/3 of its data.
        (star(12, 12, 12), [("x", "abc", "all_to_all", 1), ("y", "abc", "allreduce", 1)], [6, 6]),
        # Stages of a pipeline: a to b and b to c use different directions of b's link.
        (star(5, 5, 5), [("x", "ab", "broadcast", 1), ("y", "bc", "broadcast", 1)], [5, 5]),
    ],
)
def test_rates_by_hand(fabric: Topology, groups: list[Any], rates: list[int]) -> None:
    """Limits are those found by hand, and plans reach them."""
    rooted = [Group(*row, root=row[1][0] if row[2] == "broadcast" else None) for row in groups]
    rooted = [replace(each, root=0) if each.root is not None else each for each in rooted]
    found = plan_groups(fabric, rooted)
    assert list(found.limits) == rates
    assert [plan.algbw for plan in found.plans] == rates
    assert found.gap == 0


def test_tensor_and_data_parallel_groups_of_two_boxes() -> None:
    """16 H100: data-parallel pairs have NICs to themselves, and leave NVLink alone to the tensor-parallel groups."""
    groups = [*mesh_groups((2, 8), 1, "allgather"), *mesh_groups((2, 8), 0, "reduce_scatter")]
    found = plan_groups(dgx_h100(boxes=2), groups)
    assert list(found.limits) == [Fraction(8 * 450, 7)] * 2 + [100] * 8
    assert found.gap == 0
    table = found.table()
    assert table["alone"].tolist() == [Fraction(8 * 500, 7)] * 2 + [100] * 8
    assert table["loss"].tolist() == [Fraction(1, 10)] * 2 + [0] * 8
    assert table["link_share"].tolist() == [1] * 10


@given(eulerian_topologies(max_ranks=5, max_switches=2), st.data())
@settings(max_examples=examples(25))
def test_random_groups_reach_their_limits(fabric: Topology, data: st.DataObject) -> None:
    """Two or three groups in any network: plans reach the limits, which no group alone exceeds, nor HiGHS in floats."""
    ranks = st.lists(st.integers(0, fabric.num_ranks - 1), min_size=2, unique=True)
    kinds = st.sampled_from(["allgather", "reduce_scatter", "all_to_all"])
    rows = data.draw(st.lists(st.tuples(ranks, kinds, st.integers(1, 3)), min_size=2, max_size=3))
    groups = [Group(f"g{number}", tuple(row[0]), *row[1:]) for number, row in enumerate(rows)]
    found = plan_groups(fabric, groups, relay=True)
    least = min(limit / group.size for group, limit in zip(groups, found.limits, strict=True))
    for group, limit, plan in zip(groups, found.limits, found.plans, strict=True):
        assert plan.algbw == limit or group.kind.in_pairs
        assert limit <= collopt.bound(group.network(fabric, relay=True), group.kind).algbw
    # One after the other takes no less time than all at once.
    alone = [collopt.bound(group.network(fabric, relay=True), group.kind).algbw / group.size for group in groups]
    assert 1 / sum(1 / rate for rate in alone) <= least


def _best(bandwidths: tuple[int, ...], sizes: tuple[int, int], least: tuple[float, float] | None) -> list[float]:
    """Rates by paths in a triangle of ranks 0, 1 and 2, where 0 and 1 exchange data, and so do 1 and 2.

    Columns are both rates, the least rate over size, and for each of the four directions the flow straight to the
    other rank and over the third one.  Returns the least of all rates, or where that is given, each rate's own best.
    """
    ways = [(0, 1), (1, 0), (1, 2), (2, 1)]
    columns = 3 + 2 * len(ways)
    rows, right = [], []
    for number in range(len(ways)):
        # Half the data of a group goes either way.
        row = np.zeros(columns)
        row[number // 2], row[3 + 2 * number : 5 + 2 * number] = 1 / 2, -1
        rows.append(row)
        right.append(0.0)
    for tail, head in itertools.permutations(range(3), 2):
        row = np.zeros(columns)
        for number, (start, end) in enumerate(ways):
            third = 3 - start - end
            row[3 + 2 * number] = (tail, head) == (start, end)
            row[4 + 2 * number] = (tail, head) in ((start, third), (third, end))
        rows.append(row)
        right.append(bandwidths[3 - tail - head])
    for group, size in enumerate(sizes):
        row = np.zeros(columns)
        row[group], row[2] = -1, size
        rows.append(row)
        right.append(0.0)
    found = []
    for goal in (2,) if least is None else (0, 1):
        bounds = [(0 if least is None else least[column], None) for column in range(2)] + [(0, None)] * (columns - 2)
        answer = linprog(-np.eye(columns)[goal], np.array(rows), right, bounds=bounds)
        found.append(-answer.fun)
    return found


@given(st.tuples(*[st.integers(1, 9)] * 3), st.tuples(*[st.integers(1, 3)] * 2))
@settings(max_examples=examples(25))
def test_limits_are_those_of_a_program_by_paths(bandwidths: tuple[int, ...], sizes: tuple[int, int]) -> None:
    """Two pairs in a triangle that relay for each other: a program over all their paths has the same rates."""
    rows = [(a, b, bandwidth) for (a, b), bandwidth in zip(("bc", "ac", "ab"), bandwidths, strict=True)]
    fabric = Topology.from_links(rows, compute="abc", bidirectional=True)
    groups = [Group("x", ("a", "b"), "allgather", sizes[0]), Group("y", ("b", "c"), "allgather", sizes[1])]
    found = plan_groups(fabric, groups, relay=True)
    (least,) = _best(bandwidths, sizes, None)
    # Rounding must not leave the second program without a solution.
    best = _best(bandwidths, sizes, (sizes[0] * least * (1 - 1e-9), sizes[1] * least * (1 - 1e-9)))
    assert list(map(float, found.limits)) == pytest.approx(best, rel=1e-6)
    assert found.gap == 0


def test_unbalanced_switches_are_shared_too() -> None:
    """What a switch takes in beyond what it gives out is no group's."""
    fabric = star(12, 12, 12).with_bandwidths({("s", "a"): 6})
    found = plan_groups(fabric, [Group("x", ("a", "b"), "allgather"), Group("y", ("b", "c"), "allgather")])
    assert (list(found.limits), found.gap) == ([12, 12], 0)
    assert found.table()["alone"].tolist() == [12, 24]


def _found() -> GroupPlans:
    return plan_groups(star(30, 30, 5), [Group("x", ("a", "b"), "allgather"), Group("y", ("b", "c"), "allgather")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda found: {"limits": (Fraction(50), Fraction(11))}, "do not cost what all links are worth"),
        (lambda found: {"limits": (Fraction(40), Fraction(10))}, "has 50 GB/s, more than 40"),
        (lambda found: {"proofs": found.proofs[:1]}, "no proof settles the limit of group 'x'"),
        (lambda found: {"proofs": found.proofs[::-1]}, "not max-min fair"),
        (lambda found: {"plans": found.plans[::-1]}, "other ranks"),
        (lambda found: {"topology": found.topology.derate("b", "s", "1/2")}, "the groups together put 30 GB/s"),
        (
            lambda found: {"proofs": tuple(replace(each, links=each.links[1:]) for each in found.proofs)},
            "values a link higher",
        ),
        (
            lambda found: {
                "proofs": tuple(
                    replace(each, links=(*each.links, LinkValue("a", "s", Fraction(1)))) for each in found.proofs
                )
            },
            "do not cost",
        ),
    ],
)
def test_changed_proofs_are_refused(changes: Any, message: str) -> None:
    """A limit, plan, dual value or network that was changed fails verification."""
    found = _found()
    with pytest.raises((CertificateError, ColloptError), match=message):
        replace(found, **changes(found)).verify()


def test_bounds_of_other_requests_are_refused() -> None:
    """Neither half the rate with an allreduce's proof, nor the plan and bound of another root, pass for a group's."""
    allreduce, allgather = (plan_groups(RING, [Group("x", (0, 1, 2, 3), kind)]) for kind in ("allreduce", "allgather"))
    assert (allreduce.limits, allgather.limits) == ((Fraction(40, 3),), (Fraction(80, 3),))
    slow = collopt.plan(RING.scaled("1/2"), "allgather")
    halved = replace(allgather, plans=(slow,), limits=allreduce.limits, proofs=allreduce.proofs)
    assert halved.gap == 0
    with pytest.raises(CertificateError, match="the bound of group 'x' is for other ranks, links"):
        halved.verify()
    found = plan_groups(RING, [Group("x", (0, 1), "broadcast", root=0)])
    with pytest.raises(CertificateError, match="or another collective or root"):
        replace(found, groups=(replace(found.groups[0], root=1),)).verify()


def test_links_of_no_group_do_not_lower_limits() -> None:
    """No link has a negative value, with which lower limits would seem to cost what all links are worth."""
    fabric = Topology.from_links([("a", "b", 10), ("b", "a", 10), ("b", "c", 10), ("c", "b", 10)], compute="abc")
    found = plan_groups(fabric, [Group("x", ("a", "b"), "allgather")])
    (proof,) = found.proofs
    worth = sum(dual * 10 for _, _, dual in proof.links)
    lowered = replace(proof, links=(*proof.links, LinkValue("b", "c", -worth / 20)))
    slow = collopt.plan(found.plans[0].topology.scaled("1/2"), "allgather")
    halved = replace(found, plans=(slow,), limits=(found.limits[0] / 2,), proofs=(lowered,))
    assert halved.gap == 0
    with pytest.raises(CertificateError, match="expected at least 0"):
        halved.verify()


def _parts(found: GroupPlans) -> dict[str, tuple[Any, Callable[[Any], GroupPlans]]]:
    """Every kind of part of groups' plans, the first of each, and how to put another in its place."""
    (group, *groups), (plan, *plans), (proof, *proofs) = found.groups, found.plans, found.proofs
    (name, bound), *bounds = proof.bounds.items()
    return {
        "all": (found, lambda other: other),
        "group": (group, lambda other: replace(found, groups=(other, *groups))),
        "plan": (plan, lambda other: replace(found, plans=(other, *plans))),
        "plan's bound": (plan.bound, lambda other: replace(found, plans=(replace(plan, bound=other), *plans))),
        "proof": (proof, lambda other: replace(found, proofs=(other, *proofs))),
        "proof's bound": (
            bound,
            lambda other: replace(found, proofs=(replace(proof, bounds=dict([(name, other), *bounds])), *proofs)),
        ),
    }


@pytest.mark.parametrize("part", ["all", "group", "plan", "plan's bound", "proof", "proof's bound"])
def test_every_field_is_checked(part: str) -> None:
    """Whatever field is changed, to nothing or to that of other groups, fails verification, or cannot be made."""
    found = plan_groups(RING, [Group("x", (0, 1), "broadcast", root=0), Group("y", (1, 2, 3), "allgather", 2)])
    others = [Group("z", (1, 0), "reduce", 3, root=1), Group("w", (0, 1, 2), "allreduce")]
    other = _parts(plan_groups(RING.scaled(2), others, relay=True))[part][0]
    mine, changed = _parts(found)[part]
    found.verify()
    for field in {each.name for each in fields(mine)} - {"planner", "options", "provenance"}:
        now = getattr(mine, field)
        values = [None, (), {}, "other", 4, getattr(other, field)]
        values += [now[1:], now * 2] if isinstance(now, tuple) else []
        for value in values:
            if value is now or (isinstance(now, tuple) and value == now):
                continue
            try:
                broken = changed(replace(mine, **{field: value}))
            except ColloptError:
                continue
            with pytest.raises(CertificateError):
                broken.verify()


def test_meshes_are_those_of_torch() -> None:
    """Groups along one axis, or several, in row-major order."""
    assert [group.ranks for group in mesh_groups((2, 2, 2), (0, 2), "allgather")] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert [group.name for group in mesh_groups((2, 2), 1, "allgather")] == ["axis1_0", "axis1_1"]
    for shape, axes in (((2, 1), 1), ((2, 2), 2), ((2, 2), (0, 0)), ((), 0), ((2, 2), ()), ((2**11, 2**11), 0)):
        with pytest.raises(UnsupportedError):
            mesh_groups(shape, axes, "allgather")


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([], UnsupportedError, "no groups"),
        ([3], UnsupportedError, "a group is 3"),
        ([Group("x", (0, 1), "allgather")] * 2, ColloptError, "'x'"),
        ([Group("x", (0, 9), "allgather")], ColloptError, "group 'x': rank 9"),
        ([Group("x", (0, 0), "allgather")], ColloptError, "group 'x': .*'gpu0'"),
        ([Group("x", (0,), "allgather")], ColloptError, "group 'x': .* at least 2"),
        ([Group("x", (0, 2), "allgather")], BoundError, "group 'x': .* rank 'gpu0'"),
        ([Group("x", (0, 1), "broadcast")], UnsupportedError, "group 'x': .* root"),
    ],
)
def test_refuses_groups_that_are_none(groups: Any, error: type[ColloptError], message: str) -> None:
    """One error that names the group."""
    with pytest.raises(error, match=message):
        plan_groups(RING, groups)


def test_files_of_groups(tmp_path: Path) -> None:
    """Groups are read as they were written, and everything else is refused with the file's name."""
    path, header = tmp_path / "groups.json", {"format": "collopt-groups", "version": 1}
    rows = [{"name": "x", "ranks": [0, "gpu1"], "collective": "reduce", "size": "1K", "root": 1}]
    path.write_text(json.dumps(header | {"groups": rows}))
    assert read_groups(path) == (Group("x", (0, "gpu1"), "reduce", 1024, 1),)
    for broken in (
        {},
        {"groups": []},
        {"groups": [{"name": "x"}]},
        {"groups": [rows[0] | {"more": 1}]},
        {"groups": rows * 2},
    ):
        path.write_text(json.dumps(header | broken))
        with pytest.raises(FileFormatError, match=str(path)):
            read_groups(path)
