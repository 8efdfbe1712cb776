"""FAST: figures 12 to 17, and the numbers of its text, simulated on its two testbeds."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collopt.schedules.stages.two_tier_cost import H200, MI300X, TwoTierModel

from . import fast_traffic as traffic
from .rows import Item, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERVERS = 4
PER_GPU = (100, 200, 400, 1000)
"""MB."""
SKEW, SKEWS = 0.8, (0.3, 0.5, 0.7, 0.9)
KERNELS = "measured there, modeled here: no kernels, no congestion beyond receivers' shares"
PLANNING = {2: "3.1", 4: "25", 8: "221", 12: "805", 40: "77000"}
"""Servers, and what sections 4.4 and 5.3 print, in µs."""
RATIOS = (2, 4, 9, 16, 36)
LARGE = (4, 8, 12, 16, 24, 40)
MEAN_MB = 50
EXPERTS, CHOICES, MOE_SKEW = (16, 24, 32), (1, 2, 4), 0.6
TRAINING = "training measured there, with congestion; here the all-to-allv alone, modeled without"


class Peer(NamedTuple):
    """What the paper says of a peer: its name there, our schedule for it, and the factors of the text."""

    name: str
    baseline: str
    random: str
    zipf: str


NVIDIA = (
    Peer("NCCL", "pxn", "1.01-1.1", "1.2-1.3"),
    Peer("DeepEP", "two-hop", "1.5-1.9", "1.2-1.5"),
    Peer("TACCL, padded", "padded", "1.5-1.7", "over 3"),
)
AMD = (
    Peer("TACCL, padded", "padded", "1.3-1.8", "2.9-3.8"),
    Peer("SpreadOut", "spread-out", "1.9-2.1", "2.5-2.8"),
    Peer("RCCL, all at once", "at-once", "1.1-10", "1.3-2.6"),
)
BY_SKEW = {"RCCL, all at once": ("at-once", "1.6-10"), "SpreadOut": ("spread-out", "2.1-3.1"),
           "TACCL, padded": ("padded", "2.1-4.5")}  # fmt: skip


def _row(case: str, where: str, printed: str, found: tuple[float, float] | float, why: str = KERNELS) -> Row:
    """With the reason only if there is a difference."""
    if printed.startswith("over") and isinstance(found, tuple):
        text = f"{found[0]:.2f}-{found[1]:.2f}"
        return Row(case, where, printed, text, "x", why if found[0] <= float(printed.split()[1]) else "in the range")
    plain = Row(case, where, printed, found, "x", why)
    return plain if plain.differs else Row(case, where, printed, found, "x")


def _testbed(figure: str, model: TwoTierModel, peers: tuple[Peer, ...], small: bool) -> Iterator[Row]:
    """Factors over FAST with its own pipeline, over transfers of 100 MB to 1 GB per GPU."""
    sizes = PER_GPU[:1] if small else PER_GPU
    matrices = {"random": [traffic.random_cells(SERVERS, size) for size in sizes]}
    for name, reading in traffic.READINGS.items():
        matrices[f"Zipf 0.8, {name}"] = [reading(SERVERS, size, SKEW) for size in sizes]
    for workload, each in matrices.items():
        part = "a" if workload == "random" else "b"
        if not small:
            own = [traffic.papers_us(matrix, model) for matrix in each]
            for peer in peers:
                times = [traffic.peer_us(matrix, model, peer.baseline) for matrix in each]
                printed = peer.random if part == "a" else peer.zipf
                gains = traffic.extremes(np.divide(times, own))
                yield _row(f"{workload}: {peer.name} / FAST", f"figure {figure}{part}, section 5.1.1", printed, gains)
        matrix = each[0]
        optimum = traffic.optimum_us(matrix, model)
        where = f"figure {figure}{part}, 100 MB"
        yield Row(f"{workload}: FAST / optimum", where, "", traffic.papers_us(matrix, model) / optimum, "x")
        yield Row(f"{workload}: what runs here / optimum", where, "", traffic.ours_us(matrix, model) / optimum, "x")


def nvidia(small: bool) -> Iterator[Row]:
    """Figure 12."""
    return _testbed("12", H200, NVIDIA, small)


def amd(small: bool) -> Iterator[Row]:
    """Figure 13."""
    return _testbed("13", MI300X, AMD, small)


def by_skew(small: bool) -> Iterator[Row]:
    """Figure 14: factors over FAST, and FAST over the optimum."""
    for name, reading in traffic.READINGS.items():
        matrices = [reading(SERVERS, 400, skew) for skew in SKEWS]
        own = [traffic.papers_us(matrix, MI300X) for matrix in matrices]
        for peer, (baseline, printed) in BY_SKEW.items():
            if not small:
                times = [traffic.peer_us(matrix, MI300X, baseline) for matrix in matrices]
                gains = traffic.extremes(np.divide(times, own))
                yield _row(f"{name}: {peer} / FAST", "figure 14a, section 5.1.3", printed, gains)
        optimum = [traffic.optimum_us(matrix, MI300X) for matrix in matrices]
        for skew, time, best in zip(SKEWS, own, optimum, strict=True):
            printed = "1.08" if skew == SKEWS[-1] else ""
            where = "figure 14b, section 5.1.3" if printed else "figure 14b"
            why = "of one matrix; that of the paper is not given"
            yield _row(f"{name}, skew {skew}: FAST / optimum", where, printed, time / best, why)


def training(small: bool) -> Iterator[Row]:
    """Figure 15: the all-to-allv of a mixture of experts alone; the paper measures whole training steps."""
    parts = {
        "a": (EXPERTS, (2,), "1.18-4.48", "by expert parallelism, top-2"),
        "b": (EXPERTS[-1:], CHOICES, "1.75-7.88", "by K, 32 experts"),
    }
    for part, (experts, choices, printed, name) in parts.items():
        gains = []
        for gpus, count in [(gpus, count) for gpus in experts for count in choices][: 1 if small else None]:
            matrix = traffic.routed(gpus, count, MOE_SKEW)
            own, optimum = traffic.ours_us(matrix, MI300X), traffic.optimum_us(matrix, MI300X)
            gains.append(traffic.peer_us(matrix, MI300X, "at-once") / own)
            case, where = f"{gpus} experts, top-{count}", f"figure 15{part}"
            yield Row(f"{case}: all at once / what runs here ({part})", where, "", gains[-1], "x")
            yield Row(f"{case}: what runs here / optimum ({part})", where, "", own / optimum, "x")
        if not small:
            yield _row(
                f"RCCL / FAST, {name}", f"figure 15{part}, section 5.2", printed, traffic.extremes(gains), TRAINING
            )


def planning(small: bool) -> Iterator[Row]:
    """Figure 16: planning times of the whole schedule, one core."""
    for servers, printed in PLANNING.items():
        if not small or servers == SERVERS:
            why = "another machine, and matchings are kept from stage to stage"
            if servers == min(PLANNING):
                why = "a call from Python costs more than the search"
            found = traffic.planning_us(servers)
            case, where = f"{servers} servers, {servers * traffic.GPUS} GPUs", "sections 4.4 and 5.3, figure 16"
            yield Row(case, where, printed, found, "µs", why, measured=True)


def larger(small: bool) -> Iterator[Row]:
    """Figure 17a: 50 MB from each GPU to each other one on average."""
    worst, halves, optima = [], [], []
    for servers in LARGE[:2] if small else LARGE:
        matrix = traffic.random_cells(servers, MEAN_MB * servers * traffic.GPUS)
        optimum, here = traffic.optimum_us(matrix, H200), traffic.ours_us(matrix, H200)
        spread = traffic.peer_us(matrix, H200, "spread-out")
        where = f"figure 17a, {servers} servers"
        yield Row(f"{servers} servers: what runs here / optimum", where, "", here / optimum, "x")
        yield Row(f"{servers} servers: FAST / optimum", where, "", traffic.papers_us(matrix, H200) / optimum, "x")
        yield Row(f"{servers} servers: SpreadOut / optimum", where, "", spread / optimum, "x")
        worst.append(here / optimum)
        optima.append(optimum)
        halves.append(here / spread)
    if not small:
        text = f"at most {100 * (max(worst) - 1):.1f} %"
        yield Row("what runs here over the optimum", "section 5.4, FAST raw", "within 5 %", text, "", "in the range")
        spent = [traffic.planning_us(servers) / optimum for servers, optimum in zip(LARGE, optima, strict=True)]
        text = f"at most {100 * (max(map(sum, zip(worst, spent, strict=True))) - 1):.1f} %"
        case = "what runs here and its planning over the optimum"
        why = "a plan takes a thousandth of the time of its transfers"
        yield Row(case, "section 5.4, with scheduling time", "10 %", text, "", why, measured=True)
        why = "random cells of 0 to 100 MB; more even ones would leave SpreadOut more"
        yield _row("SpreadOut's bandwidth over that of what runs here", "section 5.4", "0.5", max(halves), why)


def ratios(small: bool) -> Iterator[Row]:
    """Figure 17b: bandwidth of a GPU over its scale-out bandwidth, by the ratio of the two tiers."""
    matrix = traffic.random_cells(SERVERS, 1000)
    for ratio in RATIOS[:2] if small else RATIOS:
        model = TwoTierModel(ratio * H200.scale_out, H200.scale_out)
        each = float(matrix.sum()) / len(matrix) / 1000 / float(H200.scale_out)
        where = f"figure 17b, ratio {ratio}"
        yield Row(f"ratio {ratio}: what runs here", where, "", each / traffic.ours_us(matrix, model), "x")
        yield Row(f"ratio {ratio}: FAST", where, "", each / traffic.papers_us(matrix, model), "x")
    least = float(matrix.sum()) / float(traffic.optimum_us(matrix, H200)) / len(matrix) / 1000
    why = "a quarter of random traffic stays inside only on average; in this matrix slightly more"
    yield _row("bandwidth of the optimum", "section 5.4, below", "1.25", least / float(H200.scale_out), why)


def text(small: bool) -> Iterator[Row]:
    """Numbers of the text: bounds, the balanced exchange, memory."""
    del small
    ratio = Fraction(50, 450)
    printed = 1 + ratio * (8 + Fraction(8, 4))
    why = "1 + (8 + 8/4) / 9 is 19/9; and the theorem does not hold as printed"
    yield Row("Theorem 3 as printed, 4 servers, 9:1", "section 4.4", "2.12", printed, "x", why)
    yield Row("Theorem 3 corrected, 4 servers, 9:1", "appendix A.1", "", H200.worst_factor(8), "x")
    yield Row(
        "optimal bandwidth, 1/4 inside", "section 5, metrics", "66.6", Fraction(200, 3), "GB/s", "200/3, truncated"
    )
    even = np.full((32, 32), 10**9 // 32)
    for name, time in (("what runs here", traffic.ours_us(even, H200)), ("FAST", traffic.papers_us(even, H200))):
        why = "kernels and links reach less than their nominal bandwidth"
        bandwidth = float(even.sum()) / 32 / time / 1000
        yield Row(f"balanced, 1 GB per GPU: {name}", "section 5.1.2", "58", bandwidth, "GB/s", why)
    matrix = traffic.random_cells(SERVERS, 1000)
    for name, schedule in (("what runs here", traffic.planned(matrix)), ("FAST", traffic.as_in_the_paper(matrix))):
        share = 100 * float(schedule.scratch_bytes.max()) / float(matrix.sum(axis=1).mean())
        why = {"FAST": "the paper does not say what its buffers hold; here all that GPUs balance and pass on"}
        short = "scratch is that of one short stage"
        yield Row(f"memory for random traffic: {name}", "section 5.3", "30", share, "%", why.get(name, short))


def _lines(rows: list[Row], places: tuple[str, ...], label: str, height: str) -> Figure:
    """Curves of the rows whose cases are "<number><label>: <curve>"."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    for curve, marker in zip(places, "os^", strict=False):
        points = [row for row in rows if row.case.endswith(f": {curve}") and isinstance(row.ours, int | float)]
        numbers = [float(row.case.removeprefix("ratio ").split()[0].rstrip(":")) for row in points]
        axes.plot(numbers, [float(row.ours) for row in points], marker=marker, label=curve)  # type: ignore[arg-type]
    axes.set(xlabel=label, ylabel=height)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _larger_plot(rows: list[Row]) -> Figure:
    curves = ("what runs here / optimum", "FAST / optimum", "SpreadOut / optimum")
    return _lines(rows, curves, "servers of 8 GPUs", "time over the optimum")


def _ratios_plot(rows: list[Row]) -> Figure:
    return _lines(
        rows, ("what runs here", "FAST"), "bandwidth inside servers over that between", "bandwidth over NIC's"
    )


SIMULATED = (
    "Four servers of eight GPUs. Times are simulated: factors are over FAST with its pipeline of section 4.3; what "
    "runs here has short stages, each balanced in the step before it. Zipf's law is read in two ways, as sizes that "
    "are drawn and as shares of what a GPU sends; the paper does not say which."
)
ALONE = (
    "The paper measures the throughput of Megatron-LM, and explains it by the congestion of many senders to one "
    "receiver. A model without congestion shows only what skew costs: the time of one all-to-allv of routed tokens, "
    "with one expert on each GPU and experts popular by Zipf's law of 0.6, in the middle of what the paper found in "
    "traces."
)
ITEMS = (
    Item("figure-12", "all-to-allv on H200, 100 MB to 1 GB per GPU", "Section 5.1.1", nvidia, SIMULATED),
    Item("figure-13", "all-to-allv on MI300X, 100 MB to 1 GB per GPU", "Section 5.1.1", amd, SIMULATED),
    Item("figure-14", "by skew, on MI300X, 400 MB per GPU", "Section 5.1.3", by_skew, SIMULATED),
    Item("figure-15", "training of a mixture of experts, on MI300X", "Section 5.2", training, ALONE),
    Item("figure-16", "planning times", "Sections 4.4 and 5.3", planning),
    Item("figure-17a", "more servers", "Section 5.4", larger, plot=_larger_plot),
    Item("figure-17b", "by the ratio of the two tiers", "Section 5.4", ratios, plot=_ratios_plot),
    Item("text", "numbers of the text", "Sections 4.4 to 5.3", text),
)
