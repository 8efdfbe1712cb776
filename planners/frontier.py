"""Fewer trees or more throughput: plans for several numbers of trees per root, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedError
from ..schedules import as_bytes
from ..topologies import Topology
from ..topologies.validation import shown
from .registry import bound, plan
from .requests import checked_count

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["scan_trees_per_root"]

MAX_COUNTS = 8
OPTIONS = ("root", "weights")


def scan_trees_per_root(
    topology: Topology,
    collective: str,
    counts: Iterable[int] | None = None,
    *,
    size: int | str = "1G",
    **options: Any,
) -> pd.DataFrame:
    """Plan with several numbers of trees per root and list what each gives.

    Parameters
    ----------
    topology : Topology
        As for `collopt.plan`.
    collective : str
        As for `collopt.plan`.
    counts : iterable of int, optional
        Numbers of trees per root; 1 up to 8 by default.  The optimum is always added, as the last row.
    size : int or str
        For the estimated time, as for `Plan.estimate`.
    **options : object
        As for `collopt.plan`: ``root``, ``weights``.

    Returns
    -------
    DataFrame
        One row per plan: ``trees_per_root``, ``algbw`` (GB/s), ``gap``, ``num_trees``, ``min_height``, ``mean_height``,
        ``max_height``, ``estimate_us``; ``pareto`` marks rows that no other beats in throughput, height and number of
        trees at once; ``plan`` is the `Plan`.

    Raises
    ------
    UnsupportedError
        If `counts` is empty or no list of whole numbers, or as for `collopt.plan`.

    Examples
    --------
    >>> from collopt.topologies import mi250
    >>> scan_trees_per_root(mi250(boxes=2), "allgather", [1, 2])["algbw"].round(2).tolist()
    [320.0, 341.33, 354.13]
    """
    import pandas as pd

    as_bytes(size)  # refused before the work
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise UnsupportedError(f"there is no option {unknown[0]!r} here; expected one of {', '.join(OPTIONS)}")
    best = bound(topology, collective, **options).trees_per_root
    asked = range(1, min(best, MAX_COUNTS + 1)) if counts is None else _checked_counts(counts)
    plans = [plan(topology, collective, trees_per_root=count, **options) for count in asked]
    plans.append(plan(topology, collective, **options))
    rows = []
    for made in plans:
        heights = made.heights
        rows.append(
            {
                "trees_per_root": made.schedule.forests[-1].trees_per_root,
                "algbw": float(made.algbw),
                "gap": float(made.gap),
                "num_trees": made.schedule.num_trees,
                "min_height": heights.lowest,
                "mean_height": heights.mean,
                "max_height": heights.highest,
                "estimate_us": made.estimate(size),
                "plan": made,
            }
        )
    frame = pd.DataFrame(rows)
    better = frame[["algbw", "max_height", "num_trees"]] * [-1, 1, 1]
    frame["pareto"] = [
        not ((better <= row).all(axis=1) & (better < row).any(axis=1)).any() for _, row in better.iterrows()
    ]
    return frame


def _checked_counts(counts: Iterable[int]) -> list[int]:
    if isinstance(counts, (str, bytes)) or not isinstance(counts, Iterable):
        raise UnsupportedError(f"counts is {shown(counts)}; expected a list of numbers of trees per root")
    if not (asked := [checked_count(count) for count in counts]):
        raise UnsupportedError("counts is empty; name at least one number of trees per root")
    return asked
