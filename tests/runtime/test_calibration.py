"""Fitting the costs of a runtime on a network to measured times."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from measured_sweeps import SIZES, measured

from collopt.errors import TopologyError, UnsupportedError
from collopt.planners import plan
from collopt.runtime import Calibration, Measurement, calibrate
from collopt.runtime.measuring.calibrate import FittedCost
from collopt.runtime.measuring.measured_times import MeasuredRow, MeasuredTimes
from collopt.topologies import RuntimeCosts, Topology, complete, dgx_a100, dgx_h100, link_classes, mi250, ring, torus

BOX, NET = ("gpu-nvswitch",), ("gpu-nic", "nic-ib")
COSTS = RuntimeCosts(8, launch=20, efficiency={"gpu-nvswitch": "0.7", "gpu-nic": "0.9", "nic-ib": "0.9"})


def cost(found: Calibration, title: str) -> FittedCost:
    """One of the costs, by its name and class."""
    (only,) = (each for each in found.costs if each.title == title)
    return only


def timed(topology: Topology, costs: RuntimeCosts, collective: str, planner: str = "ring") -> Callable[[int], Any]:
    """Times of a planner's schedule."""
    made = plan(topology, collective, planner=planner, **({"root": 0} if collective == "broadcast" else {}))
    return lambda size: made.estimate(size, costs=costs)


def point(found: Calibration) -> RuntimeCosts:
    """The costs without their extremes."""
    assert found.topology.costs is not None
    return replace(found.topology.costs, ends=())


def two_ranks() -> MeasuredTimes:
    """Times of a message over an NVSwitch with `COSTS`."""
    return measured(lambda size: 28.7 + size / 210e3, source="box.txt", noise=0.01)


def test_classes_get_their_own_efficiencies() -> None:
    """Times inside a box and between two boxes give efficiencies; excess latency is that of links."""
    box = measured(lambda size: 4 + size / 240e3, source="box.txt")
    net = measured(lambda size: 12 + size / 22e3, source="net.txt")
    before = dgx_a100(boxes=2)
    found = calibrate(before, [Measurement(box, BOX), Measurement(net, NET)])
    assert point(found) == RuntimeCosts(
        "3.3", efficiency={"gpu-nvswitch": "0.8", "gpu-nic": "0.88", "nic-ib": "0.88"}, calibrated=True
    )
    after = found.topology
    assert [link.bandwidth for link in after.links] == [link.bandwidth for link in before.links]
    nic, fabric = after.link("box1/gpu3", "box1/nic3"), after.link("box1/nic3", "ib")
    assert 3.3 + 2 * float(nic.latency + fabric.latency) == pytest.approx(12, rel=0.01)
    # In the proportion that they had.
    assert nic.latency / fabric.latency == pytest.approx(0.35 / 0.5, rel=0.01)
    assert after.link("box0/gpu3", "box0/nvswitch").latency == Fraction(35, 100)
    assert [run.model for run in found.runs] == [
        "box.txt: sendrecv of 2 ranks, one message over box0/gpu0 - box0/nvswitch - box0/gpu1, 1 hop",
        "net.txt: sendrecv of 2 ranks, one message over box0/gpu0 - box0/nic0 - ib - box0/nic1 - box0/gpu1, 1 hop",
    ]
    assert cost(found, "efficiency gpu-nic").together == NET
    assert cost(found, "launch").reason == "not told apart from alpha"
    assert found.notes == (
        (
            "launch and alpha cannot be told apart, as every measurement has 1 hop: alpha has both, and predicted "
            "times are ranges; measure two ranks and all ranks to tell them"
        ),
    )
    assert (after.compute_nodes, after.switch_nodes) == (before.compute_nodes, before.switch_nodes)


@pytest.mark.parametrize(("alpha", "launch"), [("0", 40), ("0.5", 0), ("0.5", 40)])
@pytest.mark.parametrize("seed", range(4))
def test_costs_that_one_sweep_does_not_tell_apart_stay_apart(alpha: str, launch: int, seed: int) -> None:
    """The truth lies between the extremes, and times of the smallest size in the range that is predicted for them."""
    network, truth = dgx_a100(boxes=2), RuntimeCosts(alpha, launch=launch)
    time = timed(network, truth, "allreduce")
    sweep = measured(time, "allreduce", 16, source="all.txt", noise=0.04, seed=seed)
    costs = calibrate(network, [sweep], planner="ring").topology.costs
    assert costs is not None
    for column, value in zip(zip(*costs.ends, strict=True), (truth.alpha, truth.launch), strict=True):
        assert min(column) <= value <= max(column)
    ring_plan = plan(network.changed(costs=costs), "allreduce", planner="ring")
    low, high = ring_plan.time_range(sweep.rows[0].size) or (0, 0)
    assert low <= sweep.rows[0].microseconds <= high < 1.3 * low
    few = plan(network.changed(costs=costs), "allreduce", planner="few-steps", size="1K")
    low, high = few.time_range("1K") or (0, 0)
    assert low <= few.simulate("1K", costs=truth) <= high


def test_two_ranks_and_all_ranks_tell_launch_from_alpha() -> None:
    """They also tell the classes of links, of which the ring's busiest are those to the NICs."""
    network = dgx_a100(boxes=2)
    ranks = measured(timed(network, COSTS, "allgather"), "allgather", 16, source="all.txt", noise=0.01, seed=1)
    found = calibrate(network, [Measurement(two_ranks(), BOX), ranks])
    costs = found.topology.costs
    assert costs is not None
    assert costs.ends == ()
    assert costs.calibrated
    assert (costs.launch, costs.alpha) == (pytest.approx(20, rel=0.02), pytest.approx(8, rel=0.01))
    shares = dict(costs.efficiency)
    assert shares == {name: pytest.approx(float(share), rel=0.01) for name, share in COSTS.efficiency}
    assert found.runs[1].model == "all.txt: allgather of 16 ranks, the plan of ring, fully pipelined, 15 hops"
    assert found.notes == (
        "fitted to ring on 16 ranks; other sets of ranks and other algorithms take measurements of their own",
    )
    made = plan(found.topology, "allgather", planner="ring")
    assert [made.estimate(row.size) for row in ranks.rows] == pytest.approx(
        [row.microseconds for row in ranks.rows], rel=0.02
    )
    fitted = cost(found, "alpha")
    assert fitted.low is not None
    assert fitted.high is not None
    assert fitted.low <= 8 <= fitted.high


def test_reductions_are_told_where_one_run_adds_and_another_does_not() -> None:
    """One run alone leaves the cost as it is."""
    network = dgx_a100(boxes=2)
    slow = RuntimeCosts(8, launch=20, reduction=4, efficiency=COSTS.efficiency)
    runs = [
        measured(timed(network, slow, collective), collective, 16, noise=0.01, seed=seed)
        for seed, collective in enumerate(("allgather", "allreduce"))
    ]
    found = calibrate(network, runs)
    assert cost(found, "reduction").value == pytest.approx(4, rel=0.05)
    assert cost(calibrate(network, runs[1:]), "reduction").reason == "not told apart from the efficiency"
    plain = measured(timed(network, COSTS, "allreduce"), "allreduce", 16, noise=0.01, seed=1)
    assert cost(calibrate(network, [runs[0], plain]), "reduction").reason == "0 is in its 95 % interval"


@pytest.mark.parametrize(
    ("network", "collective", "planner"),
    [
        (torus(4, 4), "all_to_all", "shortest-paths"),
        (mi250(), "reduce_scatter", "forestcoll"),
        (dgx_a100(boxes=2), "allreduce", "forestcoll"),
    ],
)
def test_calibrated_networks_predict_what_was_measured(network: Topology, collective: str, planner: str) -> None:
    """Estimates by any schedule are the measured times, and a second calibration changes nothing."""
    costs = RuntimeCosts(6, efficiency={each.kinds: "0.6" for each in link_classes(network)})
    times = measured(timed(network, costs, collective, planner), collective, network.num_ranks)
    found = calibrate(network, [times], planner=planner)
    again = calibrate(found.topology, [times], planner=planner)
    assert again.topology.costs == found.topology.costs
    assert again.topology.name == found.topology.name == f"{network.name}, calibrated"
    made = plan(found.topology, collective, planner=planner)
    assert [made.estimate(size) for size in SIZES] == pytest.approx([row.microseconds for row in times.rows], rel=1e-3)


def test_a_link_cannot_be_faster_than_it_is() -> None:
    """The costs stay at line rate, and a note names the contradiction."""
    found = calibrate(complete(2, bandwidth=20, latency=1), [measured(lambda size: 6 + size / 25e3, noise=0.01)])
    assert point(found) == RuntimeCosts(cost(found, "alpha").value, efficiency={"gpu-gpu": 1}, calibrated=True)
    assert found.topology.links[0].bandwidth == 20
    assert found.notes[1] == (
        "gpu-gpu: line rate reached; the stated bandwidth may be too low: the times give 25 GB/s instead of 20"
    )
    found = calibrate(complete(2, bandwidth=25), [measured(lambda size: 6 + size / 25e3)])
    assert found.notes[1] == "gpu-gpu: line rate reached"
    with pytest.raises(UnsupportedError, match=r"may be too low: the times give 1\d\d GB/s instead of 25; half of"):
        calibrate(complete(2, bandwidth=25), [measured(lambda size: 6 + size / 200e3)])


def test_times_that_rings_cannot_have_name_the_planner_that_can() -> None:
    """On two boxes of H100, rings give an allreduce 213 GB/s; no link becomes faster than it is stated to be."""
    network = dgx_h100(boxes=2)
    times = measured(lambda size: 120 + size / 230e3, "allreduce", 16, noise=0.001)
    with pytest.raises(UnsupportedError) as refusal:
        calibrate(network, [times])
    why = (
        r"times.txt: its times give an algbw of (\S+) GB/s, and ring has 213.3 at line rate; others reach that, in GB/s"
    )
    match = re.match(f"{why}: (.*); name the planner", str(refusal.value))
    assert match
    assert float(match[1]) == pytest.approx(230, rel=0.01)
    named = dict(each.split() for each in match[2].split(", "))
    assert "double-binary-tree" in named
    for name, rate in named.items():
        assert float(rate) == pytest.approx(float(plan(network, "allreduce", planner=name).algbw), rel=1e-3)
        assert float(rate) >= 230
        share = cost(calibrate(network, [times], planner=name), "efficiency gpu-nic").value
        assert float(share) == pytest.approx(230 / float(rate), rel=0.01)
    told = calibrate(network, [times], planner="ring")
    assert {share for _, share in told.topology.costs.efficiency} == {1}  # type: ignore[union-attr]
    assert [link.bandwidth for link in told.topology.links] == [link.bandwidth for link in network.links]
    assert sum(match[2] in note for note in told.notes) == 1
    # Nobody's plan is as fast as these: the links are.
    beyond = measured(lambda size: 120 + size / 450e3, "allreduce", 16)
    notes = calibrate(network, [beyond]).notes
    assert any("may be too low: the times give" in note for note in notes)
    assert not any("others reach" in note for note in notes)


def test_residuals_say_where_the_model_is_above_the_times() -> None:
    """Residuals have sizes and a figure; here one time is twice as long as all others say."""
    times = measured(lambda size: 6 + size / 20e3 if size != 2**20 else 2 * (6 + size / 20e3))
    found = calibrate(complete(2, bandwidth=25), [times])
    (run,) = found.runs
    assert run.sizes == SIZES
    assert dict(zip(run.sizes, run.residuals, strict=True))[2**20] == pytest.approx(-0.5, abs=0.01)
    assert run.worst_residual == max(map(abs, run.residuals))
    (axes,) = found.plot().axes
    assert axes.lines[0].get_xdata().tolist() == list(SIZES)
    assert axes.lines[0].get_ydata().tolist() == [100 * each for each in run.residuals]


def test_an_alpha_that_may_be_zero_keeps_its_default() -> None:
    """The default is that of the network, or none; stated latencies that are too high are noted."""
    large = [row for row in measured(lambda size: 5 + size / 25e3, noise=0.02).rows if row.size >= 2**26]
    times = MeasuredTimes("times.txt", "sendrecv", 2, tuple(large))
    network = complete(2, bandwidth=30, latency=7)
    found = calibrate(network, [times])
    assert (cost(found, "alpha").value, cost(found, "alpha").reason) == (0, "0 is in its 95 % interval")
    assert found.topology.links[0].latency == 7
    assert cost(found, "efficiency gpu-gpu").value == pytest.approx(25 / 30, rel=0.03)
    found = calibrate(complete(2, bandwidth=25, latency=7), [measured(lambda size: 5 + size / 25e3, noise=0.01)])
    assert (cost(found, "alpha").value, cost(found, "alpha").reason) == (0, "0 fits best")
    assert "times are shorter than the stated latencies of links, which may be too high" in found.notes
    guessed = RuntimeCosts(10, "0.5", efficiency={"gpu-gpu": "0.5"})
    found = calibrate(replace(network, costs=guessed), [times])
    assert found.topology.costs is not None
    assert (found.topology.costs.alpha, found.topology.costs.send) == (10, Fraction(1, 2))


def test_links_that_nobody_measured_stay_as_they_are() -> None:
    """Their row has the reason."""
    before = dgx_a100(boxes=2)
    found = calibrate(before, [Measurement(measured(lambda size: 4 + size / 240e3), BOX)])
    assert found.topology.link("box0/nic0", "ib") == before.link("box0/nic0", "ib")
    row = found.rows()[-1]
    assert (row["cost"], row["class"], row["value"], row["low"]) == ("efficiency", "nic-ib", 1.0, None)
    assert row["reason"] == "not measured"
    runs = [Measurement(two_ranks(), BOX), measured(timed(before, COSTS, "allgather", "forestcoll"), "allgather", 16)]
    found = calibrate(before, runs, planner="forestcoll")
    assert cost(found, "efficiency nic-ib").reason == "never the busiest links"


@pytest.mark.parametrize(
    ("collective", "share", "messages"),
    [
        ("broadcast", 1, 1),
        ("allgather", 0.5, 1),
        ("reduce_scatter", 0.5, 1),
        ("all_to_all", 0.5, 1),
        ("allreduce", 1, 2),
    ],
)
def test_collectives_of_two_ranks_count_bytes_and_messages(collective: str, share: float, messages: int) -> None:
    """Each collective counts its size as nccl-tests does."""
    times = measured(lambda size: 6 * messages + size * share / 50e3, collective)
    costs = point(calibrate(complete(2, bandwidth=100), [times]))
    assert costs == RuntimeCosts(6, efficiency={"gpu-gpu": "0.5"}, calibrated=True)


def rows(*sizes: int) -> MeasuredTimes:
    """A time for each size."""
    return MeasuredTimes("times.txt", "sendrecv", 2, tuple(MeasuredRow(size, 5.0) for size in sizes))


@pytest.mark.parametrize(
    ("times", "classes", "message"),
    [
        (rows(64, 64), ("gpu-nic", "nic-ib"), "times.txt: there are 2 measured times; expected at least 3"),
        (rows(64, 64, 64), ("gpu-nic", "nic-ib"), "cannot separate latency from bandwidth; measure at least two"),
        (measured(float, None), ("gpu-nvswitch",), "times.txt does not say which collective was measured"),
        (measured(float), (), "measured on 2 ranks, and the network has 16; name the link classes between them"),
        (measured(float, num_ranks=4), (), "measured on 4 ranks, and the network has 16; give the network"),
        (measured(float, num_ranks=16), ("nic-ib",), "link classes go with times between two"),
        (
            measured(float, num_ranks=16),
            (),
            "measured sendrecv on 16 ranks, which no plan models; measure it between",
        ),
        (measured(float, "gather", 16), (), "name the link classes between them: --class NAMES=FILE"),
        (measured(float, "all_to_allv", 16), (), "times.txt: "),
        (measured(float), ("nic-ib",), "no two ranks are connected by these links alone"),
        (measured(float), ("gpu-nvswitch", "gpu-nic", "nic-ib"), "is about gpu-nic, but the shortest path"),
        (measured(float, "all_to_allv"), ("gpu-nvswitch",), "there is no model of all_to_allv between two ranks"),
    ],
)
def test_measurements_that_do_not_fit_are_refused(times: MeasuredTimes, classes: tuple[str, ...], message: str) -> None:
    """The message names the file or the classes."""
    with pytest.raises(UnsupportedError) as caught:
        calibrate(dgx_a100(boxes=2), [Measurement(times, classes)])
    assert message in str(caught.value)


def test_classes_are_measured_together_or_apart() -> None:
    """Overlapping classes, missing measurements, unknown classes, noise and plans in steps are refused."""
    runs = [Measurement(measured(float), BOX), Measurement(measured(float), ("gpu-nvswitch", "gpu-nic"))]
    with pytest.raises(UnsupportedError, match="are both about gpu-nvswitch"):
        calibrate(dgx_a100(boxes=2), runs)
    with pytest.raises(UnsupportedError, match="no measurements"):
        calibrate(dgx_a100(), [])
    with pytest.raises(UnsupportedError, match="plans in steps here"):
        calibrate(ring(4, bandwidth=5), [measured(float, "allgather", 4)], planner="bfb")
    noise = tuple(MeasuredRow(size, 10.0 ** (number % 5)) for number, size in enumerate(SIZES))
    with pytest.raises(UnsupportedError, match=r"times\.txt: the times determine neither latency nor bandwidth"):
        calibrate(complete(2, bandwidth=10**5), [MeasuredTimes("times.txt", "sendrecv", 2, noise)])
    with pytest.raises(TopologyError, match=r"no link class 'gpu-nick' \(did you mean gpu-nic or gpu-nvswitch\?\)"):
        calibrate(dgx_a100(boxes=2), [Measurement(measured(float), ("gpu-nick",))])
