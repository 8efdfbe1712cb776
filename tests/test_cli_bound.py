"""`collopt bound`."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings

import collopt
from cli_calls import call, netfile
from collopt.topologies import Topology, mi250
from sample_sizes import examples
from strategies import eulerian_topologies


def test_two_boxes_of_mi250_as_the_paper_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    """1/x* = 15/166, 354.13 GB/s and k = 83 (ForestColl, Table 1)."""
    answer = call(capsys, "bound", "mi250", "--boxes", 2, "allgather", "--json")
    assert answer.status == 0
    assert answer.err == ""
    data = answer.data
    assert data["inverse_rate"] == "15/166"
    assert (round(data["algbw"], 2), data["algbw_exact"]) == (354.13, "5312/15")
    assert data["trees_per_root"] == 83
    assert (data["topology"], data["collective"], data["num_ranks"]) == ("mi250-2boxes", "allgather", 32)
    assert data["digest"] == mi250(boxes=2).digest


def test_mi250_with_half_of_each_box_as_the_paper_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The 8+8 setting: 1/x* = 1/13."""
    answer = call(capsys, "bound", "mi250", "--boxes", 2, "--ranks", "0-7,16-23", "allgather", "--json")
    assert (answer.data["inverse_rate"], answer.data["num_ranks"]) == ("1/13", 16)


def test_the_cut_that_is_printed_proves_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """Its ranks over the bandwidth that leaves it is 1/x*, added up here."""
    data = call(capsys, "bound", "mi250", "--boxes", 2, "allgather", "--json").data
    network, inside = mi250(boxes=2), set(data["cut"])
    leaving = sum(
        (link.bandwidth for link in network.links if link.tail in inside and link.head not in inside), Fraction(0)
    )
    ranks = len(inside & set(network.compute_nodes))
    assert (data["cut_ranks"], Fraction(data["cut_bandwidth"])) == (ranks, leaving)
    assert ranks / leaving == Fraction(data["inverse_rate"])
    assert 0 < ranks < network.num_ranks


def test_people_read_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Two decimals, and the exact value where they round."""
    answer = call(capsys, "bound", "mi250", "--boxes", 2, "allgather")
    assert answer.out.splitlines()[:5] == [
        "allgather on mi250-2boxes, 32 ranks",
        "  algbw            at most 354.13 GB/s (5312/15)",
        "  busbw            at most 343.07 GB/s (5146/15)",
        "  time             at least 0.0904 ns (15/166) per byte of a shard",
        "  trees per root   83 attain the bound exactly",
    ]
    assert answer.err == ""


def test_switches_inside_the_cut_are_named_only_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    """A ring has none."""
    assert "switches inside" in call(capsys, "bound", "dgx-a100", "--boxes", 2, "allgather").out
    assert "switches inside" not in call(capsys, "bound", "ring", "--nodes", 4, "allgather").out


def test_a_file_has_the_bound_of_what_it_describes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A ring of four with 25 GB/s: 3/50."""
    assert call(capsys, "bound", netfile(tmp_path), "allgather", "--json").data["inverse_rate"] == "3/50"


def test_a_name_with_square_brackets_is_no_markup(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Names go to the terminal library as they are."""
    strange = Topology.from_links(
        [("[red]a", "b[/]", 1), ("b[/]", "[red]a", 1)], compute=["[red]a", "b[/]"], name="[bold]pair[/dim] :smile:"
    )
    answer = call(capsys, "bound", netfile(tmp_path, strange), "allgather")
    assert answer.status == 0
    assert "allgather on [bold]pair[/dim] :smile:, 2 ranks" in answer.out


@settings(max_examples=examples(30))
@given(eulerian_topologies())
def test_the_trees_per_root_of_a_bound_are_those_of_the_plan_that_meets_it(topology: Topology) -> None:
    """Computed from 1/x* and the unit of bandwidth alone."""
    assert (
        collopt.bound(topology, "allgather").trees_per_root
        == collopt.plan(topology, "allgather").schedule.trees_per_root
    )


def test_least_time_at_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    """With what must get where, and whether the costs are guesses."""
    answer = call(capsys, "bound", "dgx-a100", "--boxes", 2, "allgather", "--size", "4M", "--costs", "fused")
    assert answer.out.splitlines() == [
        "allgather on dgx-a100-2boxes, 16 ranks (not calibrated)",
        "  size   4M (4194304 bytes)",
        "  time   at least 19.7 µs",
        "  algbw  at most 212.81 GB/s",
        "  busbw  at most 199.51 GB/s",
        "  flow   3932.16 kB of box0/gpu1..7, box1/gpu0..7 must reach box0/gpu0",
    ]


def test_least_times_at_several_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    """A table, or the same figures as JSON and CSV, each size once."""
    words = ("bound", "ring", "--set", "n=4", "--set", "latency=1", "allgather", "--size", "1K", "--size", "1M")
    assert call(capsys, *words, "--size", "1K").out.splitlines()[1:] == [
        "size  time at least  algbw at most  busbw at most  by its",
        "1K    2.13 µs        481.20 MB/s    360.90 MB/s    flow",
        "1M    394 µs         2.66 GB/s      1.99 GB/s      flow",
    ]
    data = call(capsys, *words, "--json").data
    assert (data["topology"], data["num_ranks"], data["costs"], data["costs_label"]) == ("ring-4", 4, {}, "links alone")
    assert [row["bytes"] for row in data["sizes"]] == [2**10, 2**20]
    times = [collopt.bound(collopt.topologies.ring(4, latency=1), "allgather", size=size).time for size in ("1K", "1M")]
    assert [Fraction(row["time_exact"]) for row in data["sizes"]] == times
    lines = call(capsys, *words, "--csv").out.splitlines()
    assert lines[0] == "size,bytes,time_us,time_exact,algbw,busbw,argument,reason"
    assert len(lines) == 3
