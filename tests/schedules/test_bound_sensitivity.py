"""What witnesses say about single links: never less than widening one gains, and exact where nothing else binds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.schedules import Bound, Cut, CutDual, Partition, RankCuts, link_values
from collopt.topologies import Topology, dgx_a100, ring
from sample_sizes import examples
from strategies import switch_free_topologies


def widened(topology: Topology, tail: str, head: str, extra: Fraction) -> Topology:
    """The same network with one link wider."""
    links = tuple(
        link._replace(bandwidth=link.bandwidth + extra) if link[:2] == (tail, head) else link for link in topology.links
    )
    return replace(topology, links=links)


@settings(max_examples=examples(40))
@given(
    topology=switch_free_topologies(max_ranks=5),
    collective=st.sampled_from(["allgather", "reduce_scatter", "allreduce"]),
    number=st.integers(0, 100),
)
def test_a_wider_link_gains_no_more_than_its_price(topology: Topology, collective: str, number: int) -> None:
    """The witness on the wider network gives exactly the figure of its price."""
    bound = collopt.bound(topology, collective)
    prices = {(tail, head): price for tail, head, price in link_values(bound)}
    link = topology.links[number % len(topology.links)]
    wider = widened(topology, link.tail, link.head, Fraction(1, 2))
    allowed = bound.algbw + prices.get(link[:2], Fraction(0)) / 2
    assert collopt.bound(wider, collective).algbw <= allowed
    assert Bound.from_witness(wider, collective, bound.witness).algbw == allowed


def test_all_links_together_are_worth_the_bandwidth() -> None:
    """Price times bandwidth adds up to the bound, for every kind of witness."""
    topology = ring(4, bandwidth=25)
    alone = tuple(frozenset({rank}) for rank in topology.compute_nodes)
    bounds = [
        Bound.from_witness(topology, "allgather", Cut(alone[0] | alone[1])),
        Bound.from_witness(topology, "reduce", Cut(alone[2]), (0, 0, 1, 0)),
        Bound.from_witness(topology, "allreduce", Partition(alone)),
        collopt.planners.lp_bound(topology, "allreduce"),
    ]
    for bound in bounds:
        frame = bound.sensitivity()
        assert frame.columns.tolist() == ["tail", "head", "bandwidth", "dual"]
        assert len(frame) == len(topology.links)
        assert frame["dual"].tolist() == sorted(frame["dual"], reverse=True)
        assert (frame["dual"] * frame["bandwidth"]).sum() == bound.algbw


def test_every_widest_cut_around_a_rank_counts() -> None:
    """The bound rises with the widest of them, and with no other."""
    topology = dgx_a100(boxes=2).derate("box0/gpu0", "box0/nvswitch", "1/2")
    around = tuple(Cut(frozenset({rank})) for rank in topology.compute_nodes)
    bound = Bound.from_witness(topology, "allreduce", RankCuts(around))
    prices = {(tail, head): price for tail, head, price in link_values(bound)}
    assert prices["box0/gpu1", "box0/nvswitch"] == Fraction(16, 30)
    assert ("box0/gpu0", "box0/nvswitch") not in prices


def test_bound_tells_its_scope_and_its_links() -> None:
    """A cut speaks of all schedules; the prices of an allreduce by trees say that they speak of less."""
    network = ring(4, bandwidth=25)
    cut = Bound.from_witness(network, "allgather", Cut(frozenset({"gpu0", "gpu1", "gpu2"})))
    assert cut.scope == "all schedules"
    assert cut.scope not in str(cut)
    prices = CutDual((), ((),) * 4, ((),) * 4, frozenset())
    assert "at one rank" in Bound(network, "allreduce", Fraction(1), prices).scope
    assert "at one rank" in str(Bound(network, "allreduce", Fraction(1), prices))
