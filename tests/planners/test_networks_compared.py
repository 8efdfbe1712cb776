"""Networks side by side: times of a mix of calls, parts, prices, bisections and the worst failure."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

import collopt
from cli_calls import Cli
from collopt.errors import ColloptError
from collopt.planners import compare_networks, network_parts
from collopt.topologies import Topology, dgx_a100, hypercube, kautz, ring, torus

CALLS = {"allreduce": {"1M": 2, "64M": 1}, "allgather": {"4M": Fraction(1, 2)}}


def test_times_are_those_of_plans_and_bounds_for_each_call() -> None:
    """Three calls on two networks, added up by hand."""
    networks = [ring(3, bandwidth=20, latency=1), ring(4, bandwidth=10, latency=1)]
    table = compare_networks(networks, CALLS)
    for network, row in zip(networks, table.to_dict("records"), strict=True):
        times = {
            (name, size): collopt.plan(network, name, size=size).provenance["predicted_us"]
            for name, sizes in CALLS.items()
            for size in sizes
        }
        assert row["us_allreduce_1M"] == times["allreduce", "1M"]
        counted = 2 * times["allreduce", "1M"] + times["allreduce", "64M"] + times["allgather", "4M"] / 2
        assert row["us"] == pytest.approx(counted)
        least = [2, 1, Fraction(1, 2)]
        pairs = [("allreduce", "1M"), ("allreduce", "64M"), ("allgather", "4M")]
        bounds = [collopt.bound(network, name, size=size).time for name, size in pairs]
        assert row["bound_us"] == float(sum(count * bound for count, bound in zip(least, bounds, strict=True)))
        assert row["bound_us"] <= row["us"]


def _narrowest_halves(network: Topology) -> Fraction:
    """GB/s that leave the halves with the least, by looking at all."""
    nodes = network.compute_nodes
    return min(
        sum((link.bandwidth for link in network.links if link.tail in half and link.head not in half), Fraction(0))
        for half in map(set, combinations(nodes, len(nodes) // 2))
    )


@pytest.mark.parametrize("network", [ring(7), torus((2, 4)), hypercube(3), kautz(2, 2)], ids=str)
def test_no_half_of_the_ranks_has_less_than_the_stated_bandwidth(network: Topology) -> None:
    """Equal traffic between all pairs crosses every pair of halves; on rings and hypercubes it fills the narrowest."""
    (row,) = compare_networks([network], {"allgather": {"1M": 1}}, bisection=True).to_dict("records")
    narrowest = _narrowest_halves(network)
    assert 0 < row["bisection_exact"] <= narrowest
    assert row["bisection_exact"] == narrowest or network.name.startswith(("ring-7", "kautz", "K"))


def test_parts_and_prices_are_counted() -> None:
    """Two boxes of eight GPUs with one NIC each, and a price of each part; between kinds without a bandwidth too."""
    network = dgx_a100(boxes=2)
    parts = network_parts(network).set_index("part")
    assert parts["count"].to_dict() == {
        "gpu": 16, "nvswitch": 2, "nic": 16, "ib": 1, "gpu-nvswitch:300": 16, "gpu-nic:25": 16, "nic-ib:25": 16,
    }  # fmt: skip
    assert parts["ports"].to_dict()["ib"] == 16
    assert parts["between_boxes"].sum() == parts["between_boxes"]["nic-ib:25"] == 16
    prices = dict.fromkeys(["gpu", "nic", "gpu-nvswitch", "gpu-nic:25"], 1) | {
        "nvswitch": 100,
        "ib": 1000,
        "nic-ib": "2.5",
    }
    (row,) = compare_networks([network], {"allgather": {"1G": 1}}, prices=prices).to_dict("records")
    assert row["price"] == 4 * 16 + 2 * 100 + 1000 + 16 * 2.5
    figures = ("switches", "nics", "ports", "cables", "cables_between_boxes")
    assert [row[name] for name in figures] == [3, 16, 8 * 2 + 16, 48, 16]


def test_unequal_switches_boxes_and_directions_are_counted_as_they_are() -> None:
    """A switch of three ports and one of two, cables of one class in a box and out of it, and a slow way back."""
    names = ["box0/gpu0", "box0/gpu1", "box1/gpu0"]
    network = Topology.from_links(
        [(name, "sw0", 10) for name in names] + [(names[0], "sw1", 10), (names[2], "sw1", 10)],
        compute=names,
        switches=["sw0", "sw1"],
        bidirectional=True,
    )
    (row,) = compare_networks([network], {"allgather": {"1M": 1}}).to_dict("records")
    assert (row["switches"], row["ports"], row["cables"]) == (2, 5, 5)
    mixed = Topology.from_links(
        [(names[0], names[1], 10), (names[1], names[0], 5), (names[1], names[2], 10), (names[2], names[1], 10)],
        compute=names,
    )
    cables = network_parts(mixed).set_index("part").loc["gpu-gpu:10"]
    assert (cables["count"], cables["between_boxes"]) == (2, 1)
    assert list(network_parts(mixed)["kind"]).count("cable") == 1


def test_a_planner_that_refuses_what_a_failure_leaves_is_no_loss() -> None:
    """The rates of seven GPUs are unknown to a planner for powers of two."""
    with pytest.raises(ColloptError, match="after box0/gpu0"):
        compare_networks(
            [dgx_a100()],
            {"allgather": {"1M": 1}},
            planner="recursive-halving-doubling",
            failures=["gpu"],
            jobs=1,
        )


def test_the_worst_failure_is_that_of_the_whole_mix() -> None:
    """Link by link, planned anew."""
    network = torus((2, 3), bandwidth=10)
    calls = {"allgather": {"1G": 2}, "broadcast": {"1G": 1}}
    (row,) = compare_networks([network], calls, failures=["link"], jobs=1).to_dict("records")

    def time(left: Topology) -> Fraction:
        return 2 / collopt.plan(left, "allgather").algbw + 1 / collopt.plan(left, "broadcast", root=0).algbw

    pairs = {frozenset(link[:2]) for link in network.links}
    times = [time(network.without_link(*sorted(pair))) for pair in pairs]
    assert row["worst_loss_exact"] == 1 - time(network) / max(times)


def test_a_failure_that_cuts_ranks_off_loses_everything() -> None:
    """One link to each of two neighbors."""
    (row,) = compare_networks(
        [ring(4, bidirectional=False)], {"allgather": {"1M": 1}}, failures=["link"], jobs=1
    ).to_dict("records")
    assert row["worst_loss_exact"] == 1


@pytest.mark.parametrize(
    "options",
    [
        {"calls": {}},
        {"calls": {"allreduce": "1G"}},
        {"calls": {"allreduce": {"1G": 0}}},
        {"calls": {"nothing": {"1G": 1}}},
        {"prices": {"gpu": 1}},
        {"prices": {"gpu": 1, "gpu-gpu": -1}},
        {"failures": ["cable"]},
        {"networks": []},
        {"networks": ring(3)},
        {"prices": 3},
        {"prices": {1: 2}},
        {"calls": {"all_to_allv": {"1M": 1}}},
        {"calls": {collopt.Demands([("item", 1, ["gpu0"], ["gpu1"])]): {"1M": 1}}},
    ],
    ids=str,
)
def test_requests_that_are_not_understood_are_refused(options: dict[str, object]) -> None:
    """Before anything is planned."""
    with pytest.raises(ColloptError):
        compare_networks(**{"networks": [ring(3)], "calls": {"allreduce": {"1M": 1}}, **options})


def test_the_command_writes_parts_and_reads_their_prices(cli: Cli, tmp_path: Path) -> None:
    """Networks are quoted with their options; a table that is not filled in is refused."""
    parts, drawn = tmp_path / "parts.csv", tmp_path / "networks.svg"
    words = ["compare-networks", "ring --nodes 4", "torus --shape 2x2 --set bandwidth=2", "--call", "allgather:1M:2"]
    assert cli(*words, "--parts", parts).status == 0
    assert cli(*words, "--prices", parts).status == 2
    parts.write_text("part,price\ngpu,1\ngpu,2\ngpu-gpu,0.5\n")
    assert cli(*words, "--prices", parts).status == 2
    parts.write_text("part,price\ngpu,1\ngpu-gpu,0.5\n")
    result = cli(*words, "--prices", parts, "--json", "-o", drawn)
    assert [row["price"] for row in result.data] == [6, 6]
    assert drawn.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, ["does not exist"]),
        ("part,price\ngpu,1\ngpu-gpu,-2\n", ["gpu-gpu", "-2"]),
        ("part,price\ngpu,1\ngpu-gpu,1,200\n", ["prices.csv"]),
        ("part,price\ngpu,1,5\ngpu-gpu,1,200\n", ["commas"]),
        ("part,cost\ngpu,1\n", ["cost"]),
        ("", ["prices.csv"]),
    ],
)
def test_damaged_prices_are_refused_with_what_is_wrong(
    cli: Cli, tmp_path: Path, table: str | None, words: list[str]
) -> None:
    """A price with a comma would shift the columns, and a table may not be there."""
    path = tmp_path / "prices.csv"
    if table is not None:
        path.write_text(table)
    result = cli("compare-networks", "ring --nodes 4", "--call", "allgather:1M", "--prices", path)
    assert result.status == 2
    assert all(word in result.err for word in words)


@pytest.mark.parametrize("text", ["ring --nodes", "ring --size 4", "ring --nodes 3 --nodes 4", "ring '", ""])
def test_texts_of_networks_that_are_not_understood_are_refused(cli: Cli, text: str) -> None:
    """In one line."""
    result = cli("compare-networks", text)
    assert result.status == 2
    assert len(result.err.splitlines()) <= 2
