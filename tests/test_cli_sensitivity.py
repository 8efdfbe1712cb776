"""`collopt sensitivity`."""

import csv
from fractions import Fraction

import pytest

from cli_calls import call
from collopt import bound, sensitivity
from collopt.topologies import dgx1_v100, dgx_a100, torus


def test_classes_of_links_are_widened_together(capsys: pytest.CaptureFixture[str]) -> None:
    """The gain is that of the bounds with all links of the class, or of two in a row, 10 % wider."""
    data = call(capsys, "sensitivity", "dgx-a100", "--boxes", 2, "allgather", "--json").data
    intact = dgx_a100(boxes=2)
    for row in data["links"]:
        kinds = [set(name.split("-")) for name in row["group"].split(" + ")]
        widened = intact.with_bandwidths(
            {
                (link.tail, link.head): link.bandwidth * Fraction(11, 10)
                for link in intact.links
                if {end.split("/")[-1].rstrip("0123456789") for end in (link.tail, link.head)} in kinds
            }
        )
        gain = bound(widened, "allgather").algbw - bound(intact, "allgather").algbw
        assert Fraction(row["gain"]) == 10 * gain <= Fraction(row["worth"])
    alone = [row for row in data["links"] if "+" not in row["group"]]
    assert [row["links"] for row in data["links"]] == [32, 64, 32, 32]
    assert sum(Fraction(row["worth"]) for row in alone) == bound(intact, "allgather").algbw
    assert len(alone) == 3


def test_links_in_a_row_gain_together_what_neither_does(capsys: pytest.CaptureFixture[str]) -> None:
    """All that 32 GPUs in four boxes add up passes two links of each NIC."""
    data = call(capsys, "sensitivity", "dgx-h100", "--boxes", 4, "allreduce", "--json").data
    best, *others = data["links"]
    assert best == {"group": "gpu-nic + nic-ib", "links": 128, "bandwidth": "50", "gain": "800/3", "worth": "800/3"}
    assert {row["group"]: row["gain"] for row in others} == {"gpu-nic": "0", "nic-ib": "0", "gpu-nvswitch": "0"}


def test_single_links_are_those_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each link, the most rewarding first; people read the first 32."""
    text = call(capsys, "sensitivity", "torus", "--shape", "3x3", "allgather", "--links", "--csv").out
    rows = list(csv.DictReader(text.splitlines()))
    frame = sensitivity(torus(3, 3), "allgather")
    columns = (frame[name] for name in ("tail", "head", "worth"))
    worth = {f"{tail}--{head}": str(each) for tail, head, each in zip(*columns, strict=True)}
    assert {row["group"]: row["worth"] for row in rows} == worth
    assert len(rows) == 36
    shown = call(capsys, "sensitivity", "torus", "--shape", "3x3", "allgather", "--links").out.splitlines()
    assert (len(shown), shown[-1]) == (35, "and 4 more; --csv has all")


def test_people_read_gains_in_bandwidth(capsys: pytest.CaptureFixture[str]) -> None:
    """Twice the links of one kind in a DGX-1."""
    answer = call(capsys, "sensitivity", "dgx1-v100", "allgather", "--step", 1)
    assert answer.out.splitlines()[1].split("  ")[-2:] == ["gain at +100 %", "at +100 %, at most"]
    gain = bound(dgx1_v100().scaled(1), "allgather").algbw * Fraction(2, 3)
    assert answer.out.splitlines()[2].split("  ")[-1].strip() == f"{float(gain):.2f} GB/s"
