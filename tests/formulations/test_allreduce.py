"""The allreduce program on networks with known answers, against other spellings, and as users extend it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import UnsupportedError
from collopt.formulations import allreduce, allreduce_cuts
from collopt.solvers import Algorithm, HighsOptions, solve
from collopt.topologies import Topology, leaf_spine, ring
from oracles.allreduce_cvxpy import best_rate
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies


def boxes(count: int, size: int, inside: int, outside: int) -> Topology:
    """Boxes of GPUs, each GPU joined to the switch of its box and to one switch that joins all boxes."""
    ranks = [(f"gpu{box}.{number}", f"box{box}") for box in range(count) for number in range(size)]
    links = [(rank, box, inside) for rank, box in ranks] + [(rank, "top", outside) for rank, _ in ranks]
    switches = [*(f"box{box}" for box in range(count)), "top"]
    return Topology.from_links(links, compute=[rank for rank, _ in ranks], switches=switches, bidirectional=True)


NETWORKS = {
    "ring": ring(5, bandwidth=25),
    "one-way ring": ring(4, bandwidth="200/3", bidirectional=False),
    "ring with a slow link": ring(4, bandwidth=12).derate("gpu0", "gpu1", "1/2", bidirectional=False),
    "path": Topology.from_links([("a", "b", 2), ("b", "c", 3), ("c", "d", 1)], compute="abcd", bidirectional=True),
    "two boxes": boxes(2, 2, 4, 1),
    "leaf-spine": leaf_spine(2, 2, 2, 50, oversubscription=2),
    "star and chord": Topology.from_links(
        [*((rank, "s", 10) for rank in "abcd"), ("a", "b", 5)], compute="abcd", switches="s", bidirectional=True
    ),
}

networks = pytest.mark.parametrize("topology", NETWORKS.values(), ids=NETWORKS.keys())


def close(bandwidth: Fraction | float) -> Any:
    """Equal to 1e-6, relatively."""
    return pytest.approx(float(bandwidth), rel=1e-6)


def best(topology: Topology, **options: Any) -> float:
    """The objective of the solved program."""
    return solve(allreduce.build(topology, **options), HighsOptions(algorithm=Algorithm.IPM)).objective


@pytest.mark.parametrize("ranks", [4, 8])
def test_rings_reach_what_a_rank_can_send(ranks: int) -> None:
    """On unit links N / (N - 1), the known best; with one link at half speed the program's value is known too."""
    whole = ring(ranks, bandwidth=1)
    assert best(whole) == close(Fraction(ranks, ranks - 1))
    halved = {4: Fraction(7, 6), 8: Fraction(15, 14)}[ranks]
    assert best(whole.derate("gpu0", "gpu1", "1/2", bidirectional=False)) == close(halved)


def test_switches_do_not_copy_or_add_unless_they_are_relays() -> None:
    """Two boxes of 4 GPUs: each GPU sends 7/4 of the data over 5 GB/s; with relays the boxes' uplinks limit instead."""
    network = boxes(2, 4, 4, 1)
    assert best(network) == close(Fraction(20, 7))
    assert best(network, relays=network.switch_nodes) == close(4)
    slower = network.derate("gpu0.0", "box0", "1/2", bidirectional=False)
    assert best(slower, relays=network.switch_nodes) == close(3)


def test_an_unbalanced_cut_gains_over_reduce_scatter_and_allgather() -> None:
    """Eight ranks with equal bandwidth, three of them behind a single link: 1 instead of 0.8."""
    pairs = ["07", "07", "04", "47", "45", "16", "16", "12", "23", "25", "35", "36"]
    network = Topology.from_links([(pair[0], pair[1], 1) for pair in pairs], compute="01234567", bidirectional=True)
    assert collopt.bound(network, "allgather").algbw / 2 == Fraction(4, 5)
    assert best(network) == close(1)


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(topology=st.one_of(eulerian_topologies(max_ranks=5, max_switches=2), switch_free_topologies(max_ranks=5)))
def test_a_second_spelling_agrees_on_random_networks(topology: Topology) -> None:
    """As above, with and without switches and opposites."""
    assert best(topology) == pytest.approx(best_rate(topology), rel=1e-5)


@networks
def test_prices_of_links_prove_the_rate(topology: Topology) -> None:
    """Strong duality: no price is negative, only full links have one, and bandwidth times price adds up to the rate."""
    solution = solve(allreduce.build(topology))
    prices, transit = solution.duals["link_bandwidth"], solution.values["transit"]
    used: dict[tuple[str, str], float] = {}
    for (_, tail, head), amount in transit.items():
        used[tail, head] = used.get((tail, head), 0.0) + amount
    total = 0.0
    for link, price in prices.items():
        room = float(topology.link(*link).bandwidth)
        assert price >= -1e-9
        assert price * (room - used[link]) == pytest.approx(0, abs=1e-6)
        total += price * room
    assert total == close(solution.objective)


@networks
def test_values_are_witnesses(topology: Topology) -> None:
    """Shares fit the bandwidth between ranks, flows the shares, and every rank gets and gives everything."""
    values = solve(allreduce.build(topology)).values
    rate = sum(values["root_rate"].values())
    for pair in values["broadcast_share"]:
        between = sum(amount for (origin, _, head), amount in values["transit"].items() if (origin, head) == pair)
        assert values["broadcast_share"][pair] + values["reduce_share"][pair] <= between + 1e-6
    for kind, sign in (("broadcast", 1), ("reduce", -1)):
        for rank in topology.compute_nodes:
            flow = {key[1:]: amount for key, amount in values[f"{kind}_flow"].items() if key[0] == rank}
            assert all(amount <= values[f"{kind}_share"][pair] + 1e-6 for pair, amount in flow.items())
            net = sum(amount * ((head == rank) - (tail == rank)) for (tail, head), amount in flow.items())
            assert sign * net >= rate - values["root_rate"][rank] - 1e-6


def test_one_root_is_enough_where_links_have_opposites() -> None:
    """Any single root, by number or name, reaches the rate of all."""
    network = NETWORKS["two boxes"]
    whole = best(network)
    assert best(network, roots=[3]) == close(whole)
    assert best(network, roots=["gpu0.1"]) == close(whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"roots": []}, "roots is empty"),
        ({"roots": "gpu0"}, "roots is 'gpu0'; expected a list"),
        ({"roots": [4]}, r"root 4 is not a rank; expected 0\.\.3"),
        ({"roots": [True]}, "root True is not a rank"),
        ({"roots": ["s"]}, "root 's' is not a rank"),
        ({"relays": ["a"]}, "relay 'a' is not a switch"),
        ({"relays": "s"}, "relays is 's'; expected a list"),
    ],
)
def test_refuses_roots_and_relays_that_are_none(options: dict[str, Iterable[Any]], message: str) -> None:
    """Each message names what is wrong."""
    with pytest.raises(UnsupportedError, match=message):
        allreduce.build(NETWORKS["star and chord"], **options)


@networks
@pytest.mark.parametrize("build", [allreduce_cuts.build, allreduce_cuts.build_mirrored], ids=["any", "mirrored"])
def test_cuts_without_end_say_what_flows_say(topology: Topology, build: Any) -> None:
    """With all cuts added, the program in cuts has the same optimum; mirrored, where links have opposites."""
    if build is allreduce_cuts.build_mirrored and allreduce_cuts.opposite_links(topology) is None:
        with pytest.raises(UnsupportedError, match="has a link without an opposite of the same bandwidth"):
            build(topology)
        return
    model = build(topology)
    count = topology.num_ranks
    sets = (np.arange(1, 2**count - 1)[:, None] >> range(count)) & 1
    for direction in model.hops:
        model.add_cuts("all_cuts_" + direction, direction, sets.astype(bool))
    assert solve(model).objective == close(best(topology))
