"""ForestColl's measurements beside the model: tables 2 and 3 of the version on arXiv, figures 10 to 12."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from collopt import Plan, plan
from collopt.errors import ColloptError
from collopt.runtime import calibrate
from collopt.runtime.measuring.measured_times import MeasuredRow, MeasuredTimes
from collopt.topologies import Topology, dgx_a100, dgx_h100, mi250

from .published_times import SERIES, SIZES, Series
from .rows import Item, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NETWORKS = {
    "A100": dgx_a100(boxes=2),
    "MI250 16+16": mi250(boxes=2),
    "MI250 8+8": mi250(boxes=2).restrict([*range(8), *range(16, 24)]),
}
PLANNERS = {"forestcoll": "forestcoll", "ring": "ring", "tree": "double-binary-tree", "blink": "blink"}
"""Those of ours that stand for what was measured; there is none for TACCL."""
NAMES = {"forestcoll": "ForestColl", "ring": "ring", "tree": "tree", "blink": "Blink+Switch"}
"""Rows of the tables; those of rings and trees have the name of the vendor's library before."""
SIZE_NAMES = ("1M", "16M", "128M", "1G")
FITTED_TO = (0, 2)
LAST = SIZES[-1]
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")


@cache
def planned(platform: str, algorithm: str, collective: str) -> Plan:
    """Plan what stands for a measured algorithm."""
    return plan(NETWORKS[platform], collective, planner=PLANNERS[algorithm])


@cache
def fitted_network(platform: str, algorithm: str) -> Topology | None:
    """Fit costs to 1M and 128M of all collectives, where there are several."""
    runs = [
        MeasuredTimes(
            each.collective,
            each.collective,
            NETWORKS[platform].num_ranks,
            tuple(MeasuredRow(SIZES[size], each.times[size]) for size in FITTED_TO),
        )
        for each in SERIES
        if (each.platform, each.algorithm) == (platform, algorithm)
    ]
    if len(runs) == 1:
        return None
    return calibrate(NETWORKS[platform], runs, planner=PLANNERS[algorithm]).topology


def algbw(found: Plan, size: int, costs: object = None) -> float:
    """GB/s by the plan's estimate."""
    return size / found.estimate(size, costs=costs) / 1e3  # type: ignore[arg-type]


def published(platforms: tuple[str, ...], small: bool) -> Iterator[Row]:
    """Every series that we can plan: links alone, guessed costs, costs fitted to two sizes."""
    for each in SERIES:
        if each.platform not in platforms or each.algorithm not in PLANNERS:
            continue
        if small and (each.algorithm != "forestcoll" or each.platform == "MI250 16+16"):
            continue
        found = planned(each.platform, each.algorithm, each.collective)
        network = fitted_network(each.platform, each.algorithm)
        for number, size in enumerate(SIZES):
            values = {"links": algbw(found, size), "guessed": algbw(found, size, "generic")}
            if network is not None:
                values["fitted"] = algbw(found, size, network.costs)
            name = f"{each.platform}, {each.collective}, {each.algorithm}, {SIZE_NAMES[number]}"
            table = "table 3" if each.platform == "A100" else f"table 2, {each.platform.split()[1]}"
            where = f"arXiv, {table}, {each.collective}, row {NAMES[each.algorithm]}, column {SIZE_NAMES[number]}"
            text = ", ".join(f"{value:.3g} {key}" for key, value in values.items())
            yield Row(name, where, f"{each.algbw[number]:g}", text, "GB/s", _reason(each, found, number))


def _reason(each: Series, found: Plan, number: int) -> str:
    share = each.algbw[number] / float(found.algbw)
    return f"measured: {share:.0%} of {float(found.algbw):.4g} GB/s at line rate without latency"


def arxiv_2(small: bool) -> Iterator[Row]:
    """MI250, 16+16 and 8+8."""
    return published(("MI250 16+16", "MI250 8+8"), small)


def arxiv_3(small: bool) -> Iterator[Row]:
    """Two boxes of A100."""
    return published(("A100",), small)


CLAIMS = (
    ("MI250 16+16", "allreduce", "blink", "section 6.2.1, 16+16 at 1G", "16"),
    ("MI250 8+8", "allreduce", "blink", "section 6.2.1, 8+8 at 1G", "36"),
    ("MI250 8+8", "allgather", "ring", "section 6.2.1, 8+8 at 1G: 2.7x", "170"),
    ("MI250 8+8", "reduce_scatter", "ring", "section 6.2.1, 8+8 at 1G: 2.42x", "142"),
    ("MI250 8+8", "allreduce", "tree", "section 6.2.1, 8+8 at 1G: 1.66x", "66"),
    ("A100", "allgather", "ring", "section 6.2.2, 1G", "32"),
    ("A100", "reduce_scatter", "ring", "section 6.2.2, 1G", "30"),
    ("A100", "allreduce", "tree", "section 6.2.2, 1G", "26"),
)
"""What the text says of ForestColl over a peer, in percent."""


def claims(platforms: tuple[str, ...]) -> Iterator[Row]:
    """How much faster than its peers ForestColl is at 1G: at line rate, and by guessed costs."""
    for platform, collective, peer, where, percent in CLAIMS:
        if platform not in platforms:
            continue
        own, other = (planned(platform, each, collective) for each in ("forestcoll", peer))
        guessed = algbw(own, LAST, "generic") / algbw(other, LAST, "generic")
        text = f"{float(own.algbw / other.algbw) - 1:.1%} at line rate, {guessed - 1:.0%} with guessed costs"
        rates = {
            each.algorithm: each.algbw[3] / float(planned(platform, each.algorithm, collective).algbw)
            for each in SERIES
            if (each.platform, each.collective) == (platform, collective) and each.algorithm in ("forestcoll", peer)
        }
        why = f"measured at {rates['forestcoll']:.0%} of its line rate, its peer at {rates[peer]:.0%} of our {peer}'s"
        yield Row(f"{platform}, {collective}, over {peer}", where, f"{percent}%", text, "", why)


def figure_10(small: bool) -> Iterator[Row]:
    """MI250; what the figure's curves are at line rate, and what the text says of 1G."""
    if not small:
        yield from claims(("MI250 16+16", "MI250 8+8"))
    for platform in ("MI250 16+16", "MI250 8+8"):
        yield from _line_rates(platform, small)


def figure_11(small: bool) -> Iterator[Row]:
    """A100."""
    worse = planned("A100", "forestcoll", "allgather").algbw / planned("A100", "ring", "allgather").algbw - 1
    yield Row("A100, allgather: a ring is slower by", "arXiv, section 5.3", "62.5", 100 * worse, "%")
    yield from claims(("A100",))
    yield from _line_rates("A100", small)


def _line_rates(platform: str, small: bool) -> Iterator[Row]:
    for collective in ("allgather", "reduce_scatter", "allreduce"):
        for algorithm in PLANNERS:
            if (small and algorithm != "forestcoll") or (collective != "allreduce" and algorithm in ("tree", "blink")):
                continue
            found = planned(platform, algorithm, collective)
            unlike = algorithm == "forestcoll" and found.gap != 0
            why = f"the best allreduce has {float(found.bound.algbw):g} GB/s" if unlike else ""
            where = f"figure {11 if platform == 'A100' else 10}, {collective}, curve {NAMES[algorithm]}"
            yield Row(f"{platform}, {collective}, {algorithm}, line rate", where, "", found.algbw, "GB/s", why)


def curves(platform: str) -> Figure:
    """Published points over simulated curves with fitted or guessed costs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, collective in zip(
        figure.subplots(1, 3, sharey=True), ("allgather", "reduce_scatter", "allreduce"), strict=True
    ):
        series = [each for each in SERIES if (each.platform, each.collective) == (platform, collective)]
        for each, color in zip((each for each in series if each.algorithm in PLANNERS), COLORS, strict=False):
            network = fitted_network(platform, each.algorithm)
            costs = "generic" if network is None else network.costs
            found = planned(platform, each.algorithm, collective)
            sizes = [2**power for power in range(20, 31)]
            axes.plot([size / 2**20 for size in sizes], [algbw(found, size, costs) for size in sizes], color=color)
            axes.plot([size / 2**20 for size in SIZES], each.algbw, "o", color=color, label=each.algorithm)
        axes.set(xscale="log", xlabel="MiB", title=collective)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.axes[0].set_ylabel("algbw, GB/s")
    return figure


BOXES = (1, 2, 4, 8, 16)
NVLS = {1: ("nvls", "strength"), 2: ("nvls-tree", "strength")}
H100 = (("allgather", "32"), ("reduce_scatter", "14"), ("allreduce", "25"))


def figure_12(small: bool) -> Iterator[Row]:
    """H100 with and without NVLS: the rates of the curves, and the advantage over NCCL's ring at 1G."""
    for boxes in BOXES[:2] if small else BOXES:
        topology = dgx_h100(boxes=boxes)
        for collective, percent in H100:
            where = f"figure 12, {boxes}x8"
            own = plan(topology, collective)
            ring = plan(topology, collective, planner="ring")
            plain = plan(topology, collective, in_network=False)
            names = {"ours": own, "ours without NVLS": plain, "ring": ring}
            for planner in ("nvls", "nvls-tree"):
                try:
                    names[planner] = plan(topology, collective, planner=planner)
                except ColloptError:
                    continue
            for name, found in names.items():
                yield Row(f"{boxes} boxes, {collective}, {name}", where, "", found.algbw, "GB/s")
            if boxes == BOXES[-1]:
                share = float(plan(topology, collective).algbw / ring.algbw) - 1
                why = "measured with kernels of their own: the text names implementation beside schedules"
                text = f"{share:.1%} at line rate"
                yield Row(f"{boxes} boxes, {collective}, over NCCL at 1G", "section 6.3", f"{percent}%", text, "", why)


COMPUTE_SHARES = {"Gemma-2-27b": (65, "14"), "Llama-2-70b": (50, "20"), "Llama-3-119b": (43, "20")}
"""Percent of the iteration that is compute, and by how many percent ForestColl shortens it."""


def figure_13(small: bool) -> Iterator[Row]:
    """Iterations of training: what allgathers and reduce-scatters at line rate leave of the exposed communication."""
    del small
    own, ring = (
        sum(planned("A100", each, phase).inverse_rate for phase in ("allgather", "reduce_scatter"))
        for each in ("forestcoll", "ring")
    )
    saved = 1 - own / ring
    for model, (compute, printed) in COMPUTE_SHARES.items():
        less = float((100 - compute) * saved)
        why = "at line rate; how much hides behind compute is not printed"
        yield Row(f"{model}: iteration shorter by", "figure 13, section 6.4", printed, less, "%", why)
    least, less = 88, float(12 * saved)
    case = f"Gemma-2-2b, Llama-2-7b, Llama-3-8b, compute over {least} %: iteration shorter by"
    yield Row(case, "figure 13, section 6.4", "less than 5", f"less than {less:.1f}", "%", "in the range")


def bars(rows: list[Row]) -> Figure:
    """Rates by the number of boxes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (collective, _) in zip(panels, H100, strict=True):
        for name, color in zip(("ours", "ours without NVLS", "ring", "nvls-tree"), COLORS, strict=False):
            cases = {f"{boxes} boxes, {collective}, {name}": boxes for boxes in BOXES}
            points = [(cases[row.case], float(row.ours)) for row in rows if row.case in cases]  # type: ignore[arg-type]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", color=color, label=name)
        axes.set(xscale="log", xticks=BOXES, xticklabels=BOXES, xlabel="boxes", title=collective)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("algbw at line rate, GB/s")
    panels[2].legend(fontsize=7)
    return figure


MODEL = (
    "Of ours: estimates of the plan with links alone, with the guessed costs `generic`, and with costs that `collopt"
    " calibrate` fits to 1M and 128M. TACCL's schedules are not published, so we have none of it."
)
MEASURED = (
    Item("arxiv-table-2", "measured on MI250, beside estimates", "Table 2 of arXiv 2402.06787", arxiv_2, MODEL),
    Item("arxiv-table-3", "measured on A100, beside estimates", "Table 3 of arXiv 2402.06787", arxiv_3, MODEL),
    Item(
        "figure-10",
        "MI250, 16+16 and 8+8",
        "Section 6.2.1",
        figure_10,
        "Points of the plot are those of arXiv's table 2 for 16+16, lines are estimates; see there.",
        lambda _: curves("MI250 16+16"),
    ),
    Item(
        "figure-11",
        "two boxes of A100",
        "Section 6.2.2",
        figure_11,
        "As figure 10, with arXiv's table 3.",
        lambda _: curves("A100"),
    ),
    Item(
        "figure-12",
        "H100, 1 to 16 boxes, with NVLS",
        "Section 6.3",
        figure_12,
        "The figure has no numbers but those of the text; rates are at line rate.",
        bars,
    ),
    Item(
        "figure-13",
        "training with sharded data parallelism on two boxes of A100",
        "Section 6.4",
        figure_13,
        "Compute times are not printed, but shares of compute with NCCL are: of the rest, our share is that of the best"
        " plan at line rate over a ring's.",
    ),
)
