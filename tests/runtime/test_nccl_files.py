"""What NCCL is told: rings as graph files, and lines for its tuner."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import defusedxml.ElementTree
import numpy as np
import pytest

import collopt
from collopt.errors import UnsupportedError
from collopt.planners import plan_of_schedule
from collopt.runtime import MeasuredTimes, write_measured_tuner, write_nccl_tuner
from collopt.runtime.measuring.measured_times import MeasuredRow
from collopt.runtime.nccl.graph import ring_channels
from collopt.runtime.nccl.tuner import FORMS
from collopt.schedules import Forest
from collopt.topologies import Topology, complete, dgx1_v100, dgx_a100, dgx_b200, dgx_h100, mi250, rail, ring


def graph_of(path: Path) -> tuple[dict[str, str], list[list[tuple[str, int]]]]:
    """Attributes of the graph, and its channels as (kind, number) of what they pass, in hexadecimal."""
    root = defusedxml.ElementTree.parse(path).getroot()
    assert (root.tag, root.attrib) == ("graphs", {"version": "1"})
    [graph] = root
    channels = [[(each.tag, int(each.attrib["dev"], 16)) for each in channel] for channel in graph]
    return graph.attrib, channels


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_rings_of_one_box_are_listed_channel_by_channel(collective: str, tmp_path: Path) -> None:
    """Both ways around, each as fast as its share of the bus bandwidth; no declaration in front."""
    plan = collopt.plan(ring(5, bandwidth=20), collective, planner="ring")
    plan.export("nccl-graph-xml", tmp_path / "graph.xml", type_intra="PIX")
    graph, channels = graph_of(tmp_path / "graph.xml")
    assert channels == [[("gpu", each) for each in order] for order in ((0, 1, 2, 3, 4), (0, 4, 3, 2, 1))]
    assert graph == {
        "id": "0",
        "pattern": "4",
        "crossnic": "0",
        "nchannels": "2",
        "speedintra": "20",
        "speedinter": "20",
        "latencyinter": "0",
        "typeintra": "PIX",
        "typeinter": "PIX",
        "samechannels": "0",
    }
    text = (tmp_path / "graph.xml").read_text()
    assert text.startswith("<graphs ")
    assert "\t" not in text
    assert "'" not in text


@pytest.mark.parametrize("box", [0, 1])
def test_rings_enter_and_leave_a_box_through_nics(box: int, tmp_path: Path) -> None:
    """Every box has its GPUs, by their numbers there, between the NICs of the first and of the last."""
    plan = collopt.plan(dgx_a100(boxes=2), "allreduce", planner="ring")
    nics = [0, 0, 1, 1, 2, 2, 3, 3]
    plan.export("nccl-graph-xml", tmp_path / "graph.xml", gpus_per_box=8, box=box, nics=nics)
    graph, channels = graph_of(tmp_path / "graph.xml")
    assert int(graph["nchannels"]) == len(channels)
    assert float(graph["speedinter"]) == pytest.approx(float(plan.busbw) / len(channels), rel=1e-5)
    for channel, whole in zip(channels, ring_channels(plan), strict=True):
        (_, enters), *gpus, (_, leaves) = channel
        assert sorted(gpu for _, gpu in gpus) == list(range(8))
        assert (enters, leaves) == (nics[gpus[0][1]], nics[gpus[-1][1]])
        ranks = [gpu + 8 * box for _, gpu in gpus]
        start = whole.index(ranks[0])
        assert [whole[(start + step) % 16] for step in range(8)] == ranks
    assert graph["crossnic"] == str(int(any(channel[0][1] != channel[-1][1] for channel in channels)))


def test_numbers_of_gpus_and_nics_are_hexadecimal(tmp_path: Path) -> None:
    """NCCL reads both so: with 16 GPUs in a box, 15 is not 21."""
    plan = collopt.plan(mi250(2), "allgather", planner="ring")
    plan.export("nccl-graph-xml", tmp_path / "graph.xml", nics=range(16))
    text = (tmp_path / "graph.xml").read_text()
    assert {'<gpu dev="f"', '<net dev="f"'} <= set(re.findall('<... dev="."', text))
    assert not re.search('dev="1[0-9]"', text)


@pytest.mark.parametrize(
    ("topology", "channels", "speed"),
    [
        (dgx_a100(), 12, 20),
        (dgx_h100(), 12, 30),
        (dgx_b200(), 16, 45),
        (dgx1_v100(), 6, 20),
        (dgx_a100(2), 8, 25),
        (dgx_h100(2), 8, 50),
        (rail(2, nvswitch_bandwidth=300, nic_bandwidth=40), 16, 20),
    ],
    ids=str,
)
def test_rings_are_divided_into_channels_as_by_nccl(
    topology: Topology, channels: int, speed: float, tmp_path: Path
) -> None:
    """The first is NCCL 2.30.7's figure in one box, after it doubled six of 40, six of 60 and eight of 90 GB/s."""
    plan = collopt.plan(topology, "allgather", planner="ring")
    plan.export("nccl-graph-xml", tmp_path / "graph.xml")
    graph, listed = graph_of(tmp_path / "graph.xml")
    assert (int(graph["nchannels"]), float(graph["speedintra"])) == (channels, speed)
    assert len(listed) == channels
    # Every ring of the plan has as many of them.
    rings = Counter(ring_channels(plan))
    assert sum(rings.values()) * (channels // sum(rings.values())) == channels


def test_shares_of_rings_become_numbers_of_channels() -> None:
    """Two thirds of the data one way and one third the other are two channels and one."""
    around = [(weight, step) for weight, step in ((2, 1), (1, 3))]
    trees = [
        (root, weight, [((root + step * hop) % 4, (root + step * (hop + 1)) % 4) for hop in range(3)])
        for root in range(4)
        for weight, step in around
    ]
    plan = plan_of_schedule(ring(4), "allgather", Forest.from_paths(4, 3, trees))
    assert ring_channels(plan) == ((0, 1, 2, 3), (0, 1, 2, 3), (0, 3, 2, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus_per_box": 3}, "gpus_per_box is 3; expected a number that divides the 16 ranks"),
        ({"gpus_per_box": True}, "gpus_per_box is True"),
        ({"gpus_per_box": 8, "box": 2}, "box is 2; expected a number from 0 to 1"),
        ({"nics": 5}, "nics is 5; expected a number of at least 0 for each of 16 GPUs"),
        ({"nics": [0]}, "nics is .*; expected a number of at least 0 for each of 16 GPUs"),
        ({"type_intra": "NVLINK"}, "type_intra is 'NVLINK'; expected one of LOC, NVL"),
        ({"type_intra": "C2C"}, "type_intra is 'C2C'"),
        ({"type_inter": "DIS"}, "type_inter is 'DIS'"),
        ({"gpus_per_box": 2}, "enters the box of ranks 0 to 1 2 times"),
    ],
)
def test_graph_files_refuse_what_makes_no_sense(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """And nothing is written."""
    order = [0, 2, 1, 3, *range(4, 16)]
    plan = collopt.plan(complete(16), "allgather", planner="ring", order=order)
    with pytest.raises(UnsupportedError, match=message):
        plan.export("nccl-graph-xml", tmp_path / "graph.xml", **options)
    assert not list(tmp_path.iterdir())


def test_other_plans_are_no_rings() -> None:
    """Trees that branch, steps, more rings than channels, and roots with rings of their own are refused."""
    with pytest.raises(UnsupportedError, match="has trees in which a rank sends to several others; expected the same"):
        ring_channels(collopt.plan(dgx_a100(boxes=2), "allgather"))
    with pytest.raises(UnsupportedError, match="consists of steps; expected one of trees"):
        ring_channels(collopt.plan(ring(4), "allgather", planner="bfb"))
    chains = [
        ((root, 1, [((root + hop * way) % 3, (root + (hop + 1) * way) % 3) for hop in (0, 1)]))
        for root, way in ((0, 1), (1, 2), (2, 1))
    ]
    with pytest.raises(UnsupportedError, match="sends the data of some ranks around other rings"):
        ring_channels(plan_of_schedule(ring(3), "allgather", Forest.from_paths(3, 1, chains)))
    mixed = [
        (root, weight, [((root + hop * way) % 3, (root + (hop + 1) * way) % 3) for hop in (0, 1)])
        for root in range(3)
        for weight, way in ((1, 1), (36, 2))
    ]
    with pytest.raises(UnsupportedError, match="makes 37 channels; NCCL takes 32"):
        ring_channels(plan_of_schedule(ring(3), "allgather", Forest.from_paths(3, 37, mixed)))
    with pytest.raises(UnsupportedError, match="the plan is 3; expected a Plan"):
        ring_channels(3)


def lines_of(path: Path) -> list[list[str]]:
    """Fields of all lines that are no comments, read as the plugin does."""
    return [line.split(",") for line in path.read_text().splitlines() if line and not line.startswith("#")]


CHANNELS: dict[str, dict[str, int]] = {"ring": {"channels": 2}, "double-binary-tree": {}}


@pytest.mark.parametrize(
    ("collective", "planner", "expected"),
    [
        ("reduce_scatter", "ring", "reducescatter,0,4294967295,ring,simple,0,-1,4"),
        ("allgather", "ring", "allgather,0,4294967295,ring,simple,0,-1,4"),
        ("allreduce", "double-binary-tree", "allreduce,0,4294967295,tree,simple,0,-1,4"),
    ],
)
def test_the_tuner_is_told_the_algorithm_of_a_plan(
    collective: str, planner: str, expected: str, tmp_path: Path
) -> None:
    """In NCCL's words, for all sizes, any number of boxes and NCCL's channels by default: -1 would be one."""
    collopt.plan(complete(4), collective, planner=planner, **CHANNELS[planner]).export(
        "nccl-tuner-csv", tmp_path / "tuner.conf"
    )
    assert lines_of(tmp_path / "tuner.conf") == [expected.split(",")]


@pytest.mark.parametrize(
    ("planner", "topology", "collective", "expected"),
    [
        ("nvls", dgx_h100(), "reduce_scatter", "reducescatter,0,4294967295,nvls,simple,0,-1,8"),
        ("nvls-tree", dgx_h100(2), "allreduce", "allreduce,0,4294967295,nvls_tree,simple,0,-1,16"),
        ("collnet", rail(2, 4, sharp=True), "allreduce", "allreduce,0,4294967295,collnet_direct,simple,0,-1,8"),
    ],
    ids=str,
)
def test_the_tuner_knows_algorithms_for_switches(
    planner: str, topology: Topology, collective: str, expected: str, tmp_path: Path
) -> None:
    """Which have one protocol in NCCL."""
    plan = collopt.plan(topology, collective, planner=planner)  # type: ignore[arg-type]
    plan.export("nccl-tuner-csv", tmp_path / "tuner.conf")
    assert lines_of(tmp_path / "tuner.conf") == [expected.split(",")]
    with pytest.raises(UnsupportedError, match="with the protocol simple alone, not ll128"):
        plan.export("nccl-tuner-csv", tmp_path / "tuner.conf", protocol="ll128")


@pytest.mark.slow
def test_the_fastest_algorithm_is_told_for_every_size(tmp_path: Path) -> None:
    """Windows cover all sizes once, and at powers of two each has the plan that is predicted to be faster."""
    topology = dgx_a100(boxes=4)
    plans = [collopt.plan(topology, "allreduce", planner=planner) for planner in ("ring", "double-binary-tree")]
    write_nccl_tuner(plans, tmp_path / "tuner.conf", boxes=4, max_bytes=2**34 - 1)
    with pytest.raises(UnsupportedError, match="boxes is 2; expected 4, as in dgx-a100-4boxes, or -1 for any number"):
        write_nccl_tuner(plans, tmp_path / "other.conf", boxes=2)
    lines = lines_of(tmp_path / "tuner.conf")
    assert {line[3] for line in lines} == {"ring", "tree"}
    assert (lines[0][1], lines[-1][2]) == ("0", str(2**34 - 1))
    assert all(int(line[2]) + 1 == int(after[1]) for line, after in pairwise(lines))
    for power in range(34):
        [line] = [line for line in lines if int(line[1]) <= 2**power <= int(line[2])]
        times = [plan.estimate(2**power) for plan in plans]
        assert line[3] == ("ring", "tree")[int(np.argmin(times))]


def test_plans_that_nccl_cannot_tell_apart_have_one_line(tmp_path: Path) -> None:
    """The rings of one root in several parts are one ring to NCCL, whichever number of parts is fastest."""
    plans = [
        collopt.plan("dgx-h100", "broadcast", planner="ring", root=0, costs="generic", channels=count)
        for count in (1, 2, 4)
    ]
    write_nccl_tuner(plans, tmp_path / "tuner.conf")
    assert lines_of(tmp_path / "tuner.conf") == [["broadcast", "0", str(2**32 - 1), "ring", "simple", "0", "-1", "8"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_bytes": 5, "max_bytes": 4}, "max_bytes is 4, less than min_bytes, 5"),
        ({"min_bytes": -1}, "min_bytes -1 is not understood"),
        ({"max_bytes": 10**30}, "max_bytes 1000000000000000000000000000000 is too large; expected less than 10"),
        ({"boxes": 5}, "boxes is 5; expected 1 to 4, the ranks of ring-4, or -1"),
        ({"protocol": "LL"}, "protocol is 'LL'; expected one of ll, ll128, simple"),
        ({"channels": -1}, "channels is -1; expected 1 to 32, or 0 to leave it to NCCL"),
        ({"channels": 33}, "channels is 33; expected 1 to 32"),
        ({"boxes": 0}, "boxes is 0; expected 1 to 4, the ranks of ring-4, or -1"),
    ],
)
def test_tuner_files_refuse_what_makes_no_sense(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """And nothing is written."""
    with pytest.raises(UnsupportedError, match=message):
        collopt.plan(ring(4), "allgather", planner="ring").export("nccl-tuner-csv", tmp_path / "a", **options)
    assert not list(tmp_path.iterdir())


def test_tuner_files_refuse_plans_that_nccl_has_no_algorithm_for(tmp_path: Path) -> None:
    """Optimal trees, all-to-alls, other topologies, and no plans at all."""
    best = collopt.plan(dgx_a100(boxes=2), "allreduce")
    with pytest.raises(UnsupportedError, match="expected the same rings"):
        best.export("nccl-tuner-csv", tmp_path / "a")
    with pytest.raises(UnsupportedError, match="the plan is for all_to_all, which NCCL's tuner does not support"):
        collopt.plan(ring(3), "all_to_all").export("nccl-tuner-csv", tmp_path / "a")
    pair: Sequence[collopt.Plan] = [collopt.plan(ring(ranks), "allgather", planner="ring") for ranks in (3, 4)]
    with pytest.raises(UnsupportedError, match="the plans are for allgather on ring-3 and for allgather on ring-4"):
        write_nccl_tuner(pair, tmp_path / "a")
    with pytest.raises(UnsupportedError, match=r"the plans are \[\]; expected at least one Plan"):
        write_nccl_tuner([], tmp_path / "a")


def test_other_libraries_are_told_the_same(tmp_path: Path) -> None:
    """NCCLX by intervals of bytes per rank, and UCC by ranges whose ends belong to them."""
    plans = [collopt.plan(complete(4), "reduce_scatter", planner="ring")]
    for form in FORMS:
        write_nccl_tuner(plans, tmp_path / form, form=form, max_bytes=2**20 - 1)
    assert lines_of(tmp_path / "ncclx-csv") == [["reducescatter", "[0", f"{2**18})", "ring", "simple", "-1", "*", "*"]]
    assert json.loads((tmp_path / "ncclx-json").read_text())["rules"] == [
        {
            "filter": {
                "collective": "reducescatter", "bytesPerRank": f"[0,{2**18})", "nNodes": "*", "nLocalRanks": "*"
            },
            "config": {"algorithm": "ring", "protocol": "simple", "channels": -1},
        }
    ]  # fmt: skip
    assert (tmp_path / "ucc").read_text() == f"UCC_TL_UCP_TUNE=reduce_scatter:0-{2**18 - 1}:[4]:@ring\n"
    with pytest.raises(UnsupportedError, match="UCC has no nvls"):
        write_nccl_tuner([collopt.plan(dgx_h100(), "allreduce", planner="nvls")], tmp_path / "a", form="ucc")
    with pytest.raises(UnsupportedError, match="form is 'xml'"):
        write_nccl_tuner(plans, tmp_path / "a", form="xml")
    assert not (tmp_path / "a").exists()


def sweep(*times: float, collective: str = "allreduce", ranks: int | None = 8) -> MeasuredTimes:
    """Times of 1, 2, 4 ... KiB."""
    rows = tuple(MeasuredRow(2**10 << step, time) for step, time in enumerate(times))
    return MeasuredTimes("sweep", collective, ranks, rows)  # type: ignore[arg-type] # which it looks up


def test_measured_sweeps_choose_by_size(tmp_path: Path) -> None:
    """A range begins at the first size at which its algorithm was the fastest."""
    sweeps = {"ring simple": sweep(9, 9, 9, 1), "tree LL": sweep(5, 5, 10, 10), "nvls simple": sweep(9, 9, 8)}
    write_measured_tuner(sweeps, tmp_path / "a", boxes=1)
    assert lines_of(tmp_path / "a") == [
        ["allreduce", "0", "4095", "tree", "ll", "0", "1", "8"],
        ["allreduce", "4096", str(2**32 - 1), "nvls", "simple", "0", "1", "8"],
    ]
    write_measured_tuner({"tree ll": sweep(1, 2)}, tmp_path / "b", form="ncclx-csv", boxes=2)
    assert lines_of(tmp_path / "b") == [["allreduce", "[0", f"{2**29})", "tree", "ll", "-1", "2", "4"]]


@pytest.mark.parametrize(
    ("sweeps", "options", "words"),
    [
        ({}, {}, "the sweeps are"),
        ({"ring": sweep(1)}, {}, "a sweep is called 'ring'"),
        ({"ring simple": 3}, {}, "sweep 'ring simple'"),
        ({"ring simple": sweep(1), "tree ll": sweep(1, ranks=4)}, {}, "the same ranks"),
        ({"ring simple": sweep(1, ranks=None)}, {}, "unknown number"),
        ({"ring simple": sweep(1, collective="all_to_all")}, {}, "all_to_all"),
        ({"nvls ll": sweep(1)}, {}, "nvls with the protocol simple"),
        ({"ring simple": sweep(1)}, {"form": "ncclx-csv", "boxes": 3}, "does not divide 8"),
        ({"ring simple": sweep(1), "tree ll": sweep()}, {}, "only wrong|no size"),
    ],
)
def test_measured_sweeps_that_do_not_compare_are_refused(
    sweeps: Any, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """And nothing is written."""
    with pytest.raises(UnsupportedError, match=words):
        write_measured_tuner(sweeps, tmp_path / "a", **options)
    assert not list(tmp_path.iterdir())
