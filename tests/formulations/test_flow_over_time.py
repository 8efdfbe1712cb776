"""The program of a flow over time against copies of the network for every microsecond, and by its properties."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.formulations import flow_over_time
from collopt.solvers import solve
from collopt.topologies import Topology, ring
from oracles.time_expanded_flow import most_by
from sample_sizes import examples
from strategies import eulerian_topologies


@st.composite
def timed_topologies(draw: st.DrawFn) -> Topology:
    """Networks whose links have whole latencies of 0 to 3 µs."""
    network = draw(eulerian_topologies(max_ranks=5, max_switches=2, max_bandwidth=4))
    links = tuple(link._replace(latency=Fraction(draw(st.integers(0, 3)))) for link in network.links)
    return replace(network, links=links)


def least_time(model: flow_over_time.FlowOverTimeModel) -> float:
    """The optimum."""
    return float(solve(model).objective)


@settings(max_examples=examples(40), deadline=None)
@given(timed_topologies(), st.integers(1, 9), st.integers(0, 2), st.data())
def test_time_is_that_of_a_network_with_copies_for_every_microsecond(
    network: Topology, time: int, alpha: int, data: Any
) -> None:
    """What just arrives by some time takes that time, unless as much is there before: both ways of counting agree."""
    sink, *others = data.draw(st.permutations(network.compute_nodes))
    sources = others[: data.draw(st.integers(1, len(others)))]
    most = most_by(network, sources, sink, time, alpha)
    if most:
        found = least_time(flow_over_time.build(network, sources, sink, 1000 * most, alpha=alpha))
        assert found == pytest.approx(time)


@settings(max_examples=examples(20), deadline=None)
@given(timed_topologies(), st.integers(1, 10**5))
def test_potentials_prove_the_time(network: Topology, num_bytes: int) -> None:
    """Links carry no more than the amount in the times that they leave, and sources are as far as the optimum."""
    sink, *sources = network.compute_nodes
    model = flow_over_time.build(network, sources, sink, num_bytes, alpha=1)
    solution = solve(model)
    potentials = model.potentials(solution.duals["flow_balance"])
    bandwidths = [float(link.bandwidth) for link in network.links]
    left = (potentials[model.tails] - potentials[model.heads] - model.delays).clip(min=0)
    assert left @ bandwidths <= num_bytes / 1000 * (1 + 1e-6) + 1e-6
    least = min(potentials[network.node_index[name]] for name in sources)
    assert least == pytest.approx(solution.objective, abs=1e-6)


def test_data_flows_the_other_way_where_it_is_reduced() -> None:
    """From the sink's side of a one-way ring it is one hop, against the direction of the data, and else three."""
    one_way = ring(4, bandwidth=10, latency=2, bidirectional=False)
    forwards = flow_over_time.build(one_way, "gpu0", "gpu1", 10_000)
    backwards = flow_over_time.build(one_way, "gpu0", "gpu1", 10_000, direction="reduce")
    assert (least_time(forwards), least_time(backwards)) == (pytest.approx(3), pytest.approx(7))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpu0", "gpu0", 1), "'gpu0' is a source and a sink; expected different ranks"),
        (("gpu9", "gpu0", 1), "the sources have 'gpu9'; expected names of different ranks"),
        ((["gpu1", "gpu1"], "gpu0", 1), "the sources have 'gpu1'; expected names of different ranks"),
        (("gpu1", [], 1), r"the sinks are \[\]; expected names of ranks"),
        (("gpu1", "gpu0", 0), "num_bytes is 0; expected a positive whole number or Fraction"),
        (("gpu1", "gpu0", 1.5), "num_bytes is 1.5; expected a positive whole number or Fraction"),
    ],
)
def test_refuses_other_ends_and_amounts(arguments: tuple[Any, ...], message: str) -> None:
    """With a message that says what was expected."""
    with pytest.raises(UnsupportedError, match=message):
        flow_over_time.build(ring(4), *arguments)
