"""What every Pyomo model hands over: numbers arranged by index, and start values read back."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from collopt.errors import UnsupportedError
from collopt.formulations import all_to_all, allreduce, allreduce_cuts, sharing, synthesis, throughput
from collopt.formulations.pyomo_model import Component
from collopt.solvers import solve
from collopt.topologies import ring


def test_start_values_are_read_by_index() -> None:
    """What `arrange` makes is understood again; what is missing is named."""
    indexed = Component(np.array([3, 1]), ("a", "b"), ("x[a]", "x[b]"))
    assert indexed.to_array({"b": 2, "a": 1}).tolist() == [1, 2]
    assert Component(np.array(2), (None,), ("x",)).to_array(7).tolist() == 7
    for wrong in ({"a": 1}, {"a": 1, "b": "many"}, 5):
        with pytest.raises(UnsupportedError, match=r"a start value of x\[a\] and its like is not usable"):
            indexed.to_array(wrong)


def test_exact_values_and_prices_have_the_models_names() -> None:
    """By variable, constraint and index, as in the float solution."""
    topology = ring(3, bandwidth="1/3")
    answer = solve(throughput.build(topology)).exact
    answer.verify()
    assert answer.objective == answer.values["rate"] == Fraction(1, 3)
    assert set(answer.values["share"]) == {(link.tail, link.head) for link in topology.links}
    assert sum(answer.duals["link_bandwidth"].values()) == 1


def test_constraints_come_alone_in_a_row_by_index_or_by_rule() -> None:
    """All mean the same, and dual values have their indices."""
    links = [("gpu0", "gpu1"), ("gpu1", "gpu0")]

    def objective(*given: Any, **options: Any) -> tuple[Fraction, Any]:
        model = throughput.build(ring(4, bandwidth=30))
        share = model.variables.share
        wanted = [each(share) for each in given]
        rule = options.get("rule")
        model.constrain("want", *wanted, **({"rule": lambda *pair: rule(share, *pair)} if rule else {}))
        answer = solve(model).exact
        answer.verify()
        return answer.objective, answer.duals["want"]

    row, row_duals = objective(lambda share: [share[pair] <= 6 for pair in links])
    named, named_duals = objective(lambda share: {pair: share[pair] <= 6 for pair in links})
    ruled, ruled_duals = objective(lambda share: links, rule=lambda share, tail, head: share[tail, head] <= 6)
    assert row == named == ruled < objective(lambda share: share[links[0]] <= 30)[0]
    assert set(row_duals) == {0, 1}
    assert named_duals == ruled_duals
    assert set(named_duals) == set(links)
    assert sorted(named_duals.values()) == sorted(row_duals.values())


def test_of_several_constraints_the_one_at_fault_is_named() -> None:
    """And none of them is added."""
    model = throughput.build(ring(4))
    rate = model.variables.rate
    with pytest.raises(UnsupportedError, match=r"constraint 'want' of 1 is .*not strict"):
        model.constrain("want", [rate <= 1, rate < 1])
    with pytest.raises(UnsupportedError, match=r"constraint 'want' of 'b' is 3; expected an expression"):
        model.constrain("want", {"a": rate <= 1, "b": 3})
    with pytest.raises(UnsupportedError, match=r"constraint 'want' has no expressions; expected at least one"):
        model.constrain("want", [])
    with pytest.raises(UnsupportedError, match=r"'want' has indices of 1 and of 2 parts; expected as many in each"):
        model.constrain("want", {"a": rate <= 1, ("a", "b"): rate <= 2})
    for indices, rule in (([0], 3), (3, lambda _: rate <= 1)):
        with pytest.raises(UnsupportedError, match=r"constraint 'want' has the indices .* expected an iterable of ind"):
            model.constrain("want", indices, rule=rule)
    model.constrain("want", [rate <= Fraction(1, 4)])
    model.constrain("nested", {(("a", 1), 2): rate <= 1})
    model.constrain("alone", {("a",): rate <= 1})
    answer = solve(model).exact
    assert answer.objective == Fraction(1, 4)
    assert list(answer.duals["nested"]) == [("a", 1, 2)]
    assert list(answer.duals["alone"]) == ["a"]


def test_refuses_constraints_whose_variables_cancel_out() -> None:
    """They hold always or never; of a fixed variable a constraint is one."""
    model = throughput.build(ring(4))
    rate = model.variables.rate
    for wish in (rate - rate >= 1, rate >= rate + 1, rate == rate + 1):
        with pytest.raises(UnsupportedError, match=r"constraint 'want' is .*do not cancel out"):
            model.constrain("want", wish)
    rate.fix(0.5)
    model.constrain("want", rate <= 1)
    assert solve(model).objective == pytest.approx(0.5)


@pytest.mark.parametrize(
    "builder",
    [
        throughput.build,
        lambda topology: throughput.build_fixed_count(topology, 1),
        allreduce.build,
        allreduce_cuts.build,
        allreduce_cuts.build_mirrored,
        all_to_all.build,
        lambda topology: sharing.build(topology, {"part": throughput.build(ring(4))}),
        lambda topology: synthesis.build(topology, steps=2, chunks=1),
    ],
)
def test_builders_refuse_what_is_no_topology(builder: Callable[[Any], object]) -> None:
    """The same sentence from all."""
    with pytest.raises(UnsupportedError, match="the topology is None; expected a Topology"):
        builder(None)
