"""Trade-off between few trees and throughput: plans for several numbers of trees per root."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedError
from ...schedules import as_bytes
from ...schedules.collective import AnyCollective
from ...support import progress
from ...support.validation import as_options
from ...topologies import Topology
from ...topologies.builders import refuse_network_options
from ..plans.plan import Plan
from ..plans.registry import plan
from ..trees.problem import checked_count

if TYPE_CHECKING:
    import pandas as pd

MAX_COUNTS = 8
OPTIONS = ("root", "weights", "in_network")


def scan_trees_per_root(
    topology: Topology,
    collective: AnyCollective,
    counts: Iterable[int] | None = None,
    *,
    planner: str = "auto",
    size: int | str = "1G",
    **options: Any,
) -> pd.DataFrame:
    """Plan with several numbers of trees per root and tabulate the results.

    Parameters
    ----------
    topology, collective, planner
        As for `collopt.plan`; a planner that takes ``trees_per_root``.
    counts : iterable of int, optional
        Numbers of trees per root; by default 1 up to 8, but fewer than ForestColl's optimum takes.  The planner's best
        for any number is always added, as the last row.
    size : int or str
        For the estimated time, as for `Plan.estimate`.
    **options : object
        As for `collopt.plan`: ``root``, ``weights``, ``in_network``.

    Returns
    -------
    DataFrame
        One row per plan: ``trees_per_root``, ``algbw`` (GB/s), ``gap``, ``num_trees``, ``min_height``, ``mean_height``,
        ``max_height``, ``estimate_us``; ``pareto`` marks rows that no other beats in throughput, height and number of
        trees at once; ``plan`` is the `Plan`, ``planner`` who made it.  Where roots have unequal parts of the data,
        ``trees_per_root`` is the number per unit of such a part.

    Examples
    --------
    >>> from collopt.topologies import mi250
    >>> scan_trees_per_root(mi250(boxes=2), "allgather", [1, 2])["algbw"].round(2).tolist()
    [320.0, 341.33, 354.13]
    """
    import pandas as pd

    as_bytes(size)  # refused before the work
    if unknown := sorted(set(options) - set(OPTIONS)):
        refuse_network_options(scan_trees_per_root, topology, {name: options[name] for name in unknown})
        raise UnsupportedError(f"there is no option {unknown[0]!r} here; expected one of {', '.join(OPTIONS)}")
    numbers = None if counts is None else [checked_count(count) for count in as_options(counts, "counts")]
    if numbers == []:
        raise UnsupportedError("counts is empty; name at least one number of trees per root")
    best = plan(topology, collective, planner=planner, **options)
    if numbers is None:
        # Up to the best plan's own number, where it is one per rank and so of the same kind.
        enough = best.trees.forests[-1].trees_per_root if best.planner == "forestcoll" else MAX_COUNTS + 1
        numbers = list(range(1, min(enough, MAX_COUNTS + 1)))
    plans = [
        plan(topology, collective, planner=planner, trees_per_root=count, **options)
        for count in progress.iterate(numbers, len(numbers))
    ]
    plans.append(best)
    frame = pd.DataFrame([_row(scanned, size) for scanned in plans])
    better = frame[["algbw", "max_height", "num_trees"]] * [-1, 1, 1]
    frame["pareto"] = [
        not ((better <= row).all(axis=1) & (better < row).any(axis=1)).any() for _, row in better.iterrows()
    ]
    return frame


def _row(scanned: Plan, size: int | str) -> dict[str, object]:
    heights = scanned.heights
    return {
        "trees_per_root": scanned.trees.forests[-1].trees_per_root,
        "algbw": float(scanned.algbw),
        "gap": float(scanned.gap),
        "num_trees": scanned.trees.num_trees,
        "min_height": heights.lowest,
        "mean_height": heights.mean,
        "max_height": heights.highest,
        "estimate_us": scanned.estimate(size),
        "planner": scanned.planner,
        "plan": scanned,
    }
