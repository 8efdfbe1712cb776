"""FAST as a planner: boxes are found, plans certified, files and programs right, and other networks refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from cli_calls import call, refusal
from collopt.errors import CertificateError, FileFormatError, UnsupportedError
from collopt.planners import Plan
from collopt.runtime import lower, run_program, simulate
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.schedules import Cut, schedule_from_json, schedule_to_json
from collopt.topologies import Topology, dgx1_v100, dgx_h100, fat_tree, mi300x, rail, ring
from sample_sizes import examples

LARGE = 2**31 - 1


def boxes(sizes: Sequence[int], *, up: int = 90, out: int = 10, mesh: bool = False) -> Topology:
    """Boxes of GPUs on a switch or a mesh, each GPU with a NIC on one fabric; latencies of 1 µs."""
    links: list[tuple[str, str, int, int]] = []
    for box, size in enumerate(sizes):
        gpus = [f"b{box}/g{gpu}" for gpu in range(size)]
        if mesh:
            links += [(one, other, up, 1) for place, one in enumerate(gpus) for other in gpus[:place]]
        else:
            links += [(gpu, f"b{box}/s", up, 1) for gpu in gpus]
        links += [(gpu, gpu.replace("/g", "/n"), out, 1) for gpu in gpus]
        links += [(gpu.replace("/g", "/n"), "fabric", out, 1) for gpu in gpus]
    ranks = [f"b{box}/g{gpu}" for box, size in enumerate(sizes) for gpu in range(size)]
    switches = dict.fromkeys(node for link in links for node in link[:2] if node not in ranks)
    return Topology.from_links(links, compute=ranks, switches=switches, bidirectional=True, name="boxes")


def skewed(ranks: int, seed: int = 1) -> npt.NDArray[np.int64]:
    """Traffic by a heavy-tailed law."""
    amounts = np.random.default_rng(seed).pareto(0.8, (ranks, ranks))
    return np.minimum(amounts * 100, 10**5).astype(np.int64) + 1


def box_bound(traffic: npt.NDArray[np.int64], size: int, nic: int) -> Fraction:
    """Largest row or column sum of a box, over its NICs."""
    tiles = traffic.reshape(len(traffic) // size, size, -1, size).sum(axis=(1, 3))
    np.fill_diagonal(tiles, 0)
    return Fraction(int(max(tiles.sum(axis=0).max(), tiles.sum(axis=1).max())), size * nic)


def planned(topology: Topology, traffic: npt.ArrayLike, **options: object) -> Plan:
    """What FAST plans."""
    return collopt.plan(topology, "all_to_allv", traffic=traffic, planner="fast", **options)


def test_four_boxes_come_close_to_the_cut_of_the_busiest() -> None:
    """That is what its NICs send or receive; links of a mesh cost more than a switch."""
    made = planned(dgx_h100(boxes=4), traffic := skewed(32))
    assert made.bound.inverse_rate == box_bound(traffic, 8, 50)
    assert isinstance(made.bound.witness, Cut)
    assert 0 < made.gap < Fraction(1, 50)
    traffic = np.random.default_rng(1).integers(0, 1000, (32, 32))
    mesh = planned(mi300x(boxes=4), traffic)
    assert mesh.bound.inverse_rate == box_bound(traffic, 8, 50)
    assert Fraction(1, 50) < mesh.gap < Fraction(1, 10)


def test_nics_are_shared_and_chosen() -> None:
    """Two GPUs on one NIC, two that reach two alike, and a box that has lost a GPU."""
    traffic = skewed(8)
    links = [(f"{box}g{gpu}", f"{box}s", 90) for box in "ab" for gpu in range(4)]
    links += [(f"{box}g{gpu}", f"{box}p{gpu // 2}", 20) for box in "ab" for gpu in range(4)]
    ranks = [f"{box}g{gpu}" for box in "ab" for gpu in range(4)]
    one = [(f"{box}p{half}", "fabric", 10) for box in "ab" for half in range(2)]
    two = [(f"{box}p{half}", f"{box}n{half}{nic}", 10) for box in "ab" for half in range(2) for nic in range(2)]
    two += [(nic, "fabric", 10) for _, nic, _ in two]
    for more, nics in ((one, 2), (two, 4)):
        switches = dict.fromkeys(node for link in links + more for node in link[:2] if node not in ranks)
        made = planned(Topology.from_links(links + more, compute=ranks, switches=switches, bidirectional=True), traffic)
        assert made.bound.inverse_rate == box_bound(traffic, 4, 10) * Fraction(4, nics)
        assert made.gap < Fraction(1, 100)
    even = np.random.default_rng(1).integers(500, 1000, (8, 8))
    assert planned(boxes([3, 3, 3]).without_node("b1/g2"), even).gap < Fraction(1, 50)


HURT = {
    "dead": (dgx_h100(boxes=3).without_node("box1/nic3"), 1, Fraction(7)),
    "slow": (dgx_h100(boxes=3).derate("box1/gpu2", "box1/nic2", "1/2"), 1, Fraction(15, 2)),
    "dead and slow": (
        dgx_h100(boxes=3).without_node("box1/nic3").derate("box0/gpu2", "box0/nic2", "1/4"),
        1,
        Fraction(7),
    ),
    "dead, without a spine": (rail(3, 8, oversubscription=None).without_node("box1/nic3"), 1, Fraction(7)),
}


@pytest.mark.parametrize("case", HURT)
def test_nics_that_fail_or_are_slow_are_left_alone_or_send_less(case: str) -> None:
    """The bound is that of the box's other NICs, and plans come close; the box has most traffic."""
    topology, box, nics = HURT[case]
    traffic = np.random.default_rng(3).integers(500, 1000, (24, 24))
    traffic[8 * box : 8 * box + 8] *= 2
    made = planned(topology, traffic)
    outside = traffic[8 * box : 8 * box + 8].sum() - traffic[8 * box : 8 * box + 8, 8 * box : 8 * box + 8].sum()
    assert made.bound.inverse_rate == Fraction(int(outside)) / (nics * 50)
    assert made.gap < Fraction(1, 40)
    made.verify()


def test_even_traffic_is_planned_too() -> None:
    """And a size takes longer stages, for less data fewer steps."""
    topology = boxes([4, 4, 4])
    topology = replace(topology, costs=collopt.topologies.guessed_costs("fused", topology))
    endless = collopt.plan(topology, "all_to_all", planner="fast")
    small, large = (collopt.plan(topology, "all_to_all", planner="fast", size=size) for size in ("64K", "1G"))
    assert small.num_steps < large.num_steps <= endless.num_steps
    assert small.estimate("64K") < endless.estimate("64K")
    assert large.gap < Fraction(1, 50)
    assert small.provenance["planned_for"] == "65536 bytes"


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[Topology, npt.NDArray[np.int64]]:
    """Boxes of all kinds, and traffic with zeros."""
    sizes = draw(st.sampled_from([[2, 2], [2, 2, 2], [3, 3], [4, 2], [2, 2, 1]]))
    topology = boxes(sizes, mesh=draw(st.booleans()), up=draw(st.sampled_from([3, 90])))
    chance = np.random.default_rng(draw(st.integers(0, 2**30)))
    traffic = chance.integers(0, 9, (sum(sizes),) * 2) * (chance.random((sum(sizes),) * 2) < draw(st.floats(0.1, 1)))
    traffic[0, -1] += 1
    return topology, traffic


@given(exchange=exchanges(), size=st.sampled_from([None, "4K", "1G"]))
@settings(max_examples=examples(15))
def test_every_byte_arrives_by_stages_that_take_no_less_than_the_bound(
    exchange: tuple[Topology, npt.NDArray[np.int64]], size: str | None
) -> None:
    """Verified, interpreted and simulated; the bound is that of the cuts, and never above the exact optimum."""
    topology, traffic = exchange
    made = planned(topology, traffic) if size is None else planned(topology, traffic, size=size)
    made.verify()
    program = lower(made.schedule, "all_to_allv", max_steps=LARGE, max_count=LARGE, topology=topology)
    run_program(program, interleavings=1)
    least = 10**6 / (made.bound.algbw * 1000)
    assert least <= simulate(made, 10**6).time <= made.schedule.time(topology, 10**6)
    assert made.bound.inverse_rate <= collopt.bound(topology, "all_to_allv", traffic=traffic).inverse_rate


def test_plans_come_back_from_files(tmp_path: Path) -> None:
    """What was changed in them is refused."""
    made = planned(boxes([2, 2]), skewed(4))
    made.save(path := tmp_path / "plan.json")
    again = collopt.load_plan(path, boxes([2, 2]))
    assert again.to_json() == made.to_json()
    assert schedule_to_json(schedule_from_json(schedule_to_json(made.schedule), "x")) == made.to_json()["schedule"]
    text = path.read_text()
    for old, new, message in (
        ('"servers": [0', '"servers": [-1', "field schedule.servers has the negative number -1"),
        ('"servers"', '"homes"', "is not of the kind .staged-flow.; expected the fields"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(FileFormatError, match=message):
            collopt.load_plan(path)
    document = json.loads(text)
    document["link_loads"][0][0] += 1
    path.write_text(json.dumps(document))
    with pytest.raises(CertificateError, match=r"step 0 puts \d+ chunks on the link from .*; the plan states"):
        collopt.load_plan(path)


REFUSED = {
    "one box": (dgx_h100(), "form one box, and FAST is for traffic between several"),
    "no switches": (ring(4), "form one box"),
    "a cube mesh": (dgx1_v100(boxes=2), "'box0/gpu0' and 'box0/gpu5' of one box .* not joined by a switch or a link"),
    "one switch that data turns at": (fat_tree(4), "to others of its box passes the same switch again"),
    "two rails cut": (
        rail(3, 2, oversubscription=None).without_node("box0/nic0").without_node("box1/nic1"),
        "GPU 'box0/gpu0' reaches 'box1/gpu0', its peer in another box of .*, by no path without other GPUs",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_networks_are_refused_with_what_is_missing(case: str) -> None:
    """The error says what is missing, and where."""
    topology, message = REFUSED[case]
    traffic = np.eye(topology.num_ranks, k=5, dtype=np.int64) + 1
    with pytest.raises(UnsupportedError, match=message):
        planned(topology, traffic)


def test_too_many_pairs_are_refused_and_wrong_networks_on_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan has paths for a limited number of pairs."""
    assert "one box" in refusal(call(capsys, "plan", "dgx-h100", "all_to_all", "--planner", "fast"))
    monkeypatch.setattr("collopt.planners.literature.fast.MAX_PAIRS", 15)
    with pytest.raises(UnsupportedError, match=r"16 pairs of ranks of .*; expected at most 15"):
        collopt.plan(boxes([2, 2]), "all_to_all", planner="fast")


def _run(rank: int, folder: str) -> bool:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=4)
    traffic = [[1, 0, 9, 3], [2, 1, 0, 4], [0, 7, 2, 0], [5, 0, 1, 3]]
    made = planned(boxes([2, 2]), traffic)
    sends, takes = [8 * part for part in traffic[rank]], [8 * row[rank] for row in traffic]
    data = torch.arange(sum(sends), dtype=torch.int32) + 1000 * rank
    output, wanted = (torch.empty(sum(takes), dtype=torch.int32) for _ in range(2))
    collopt.runtime.execute(made, output, data)
    dist.all_to_all_single(wanted, data, takes, sends)
    return torch.equal(output, wanted)


@pytest.mark.slow
def test_ranks_that_run_a_plan_agree_with_torch() -> None:
    """On Gloo."""
    assert run_ranks(_run, 4, timeout_s=120) == [True] * 4
