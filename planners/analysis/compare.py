"""Planners side by side: what each achieves, how far that is from what can be achieved at all, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...schedules.traffic.collective import AnyCollective
from ...topologies import Topology
from ..plans.plan import Plan
from .outcomes import Outcome, outcomes

if TYPE_CHECKING:
    import pandas as pd


def compare(
    topology: Topology,
    collective: AnyCollective,
    *,
    planners: Sequence[str] | None = None,
    bounds: Sequence[str] | None = None,
    sizes: Sequence[int | str] | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    executor: Executor | None = None,
) -> pd.DataFrame:
    """Plan a collective with several planners, and list what each gives beside what can be proved.

    Parameters
    ----------
    topology, collective
        As for `collopt.bound`.
    planners : sequence of str, optional
        Keys of `PLANNERS`; by default all but ``"auto"`` that are about such collectives.
    bounds : sequence of str, optional
        Keys of `BOUNDS`, ways to bound the speed of any schedule; by default all that are about such collectives.
    sizes : sequence of int or str, optional
        Bytes in all, such as ``"1M"``, to predict times for; see `Plan.estimate`.  A single one is also what those
        planners plan for that take a ``size``; with several, their plans are those without.
    root, weights, traffic
        As for `collopt.bound`.
    executor : concurrent.futures.Executor, optional
        Where to run planners at the same time, such as a ``ProcessPoolExecutor``; one after the other by default.

    Returns
    -------
    DataFrame
        One row per bound and per planner.

        - ``kind``: ``"bound"`` or ``"plan"``; ``planner``: the name.
        - ``status``: ``"ok"``, ``"not applicable"`` or ``"failed"``; ``reason``: why, if not ok.
        - ``algbw``, ``algbw_exact``: GB/s that no schedule exceeds, or that the plan achieves.
        - ``bound``, ``bound_exact``: the lowest bound of all, the same in every row.
        - ``gap``: share of it that the plan misses, 0 only if none.
        - ``num_trees``, ``max_height``: trees of the plan, and hops from root to leaf of the highest.
        - ``num_steps``: steps of a plan that has these instead of trees.
        - ``us_<size>``: predicted µs, for each of `sizes`.
        - ``seconds``: wall time of planning and verifying, with what compilation and imports it took; not that of the
          figures in this table, such as heights and predicted times.
        - ``plan``: the `Plan`.

        What a row has not is None, nan or NA, by the kind of the column.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> table = compare(dgx_a100(boxes=2), "allgather", planners=["forestcoll", "ring"], bounds=["forestcoll"])
    >>> print(table[["kind", "planner", "algbw_exact", "gap"]].to_string(index=False))
     kind    planner algbw_exact      gap
    bound forestcoll      1040/3      NaN
     plan forestcoll      1040/3 0.000000
     plan       ring       640/3 0.384615
    """
    found = outcomes(
        topology,
        collective,
        planners=planners,
        bounds=bounds,
        sizes=sizes,
        root=root,
        weights=weights,
        traffic=traffic,
        executor=executor,
    )
    return compared(list(found), sizes or ())


def compared(found: Sequence[Outcome], sizes: Sequence[int | str] = ()) -> pd.DataFrame:
    """Lay outcomes out as `compare` does."""
    import pandas as pd

    limits = [entry.limit for entry in found if entry.limit is not None]
    lowest = min(limits, default=None)
    frame = pd.DataFrame([_row(entry, lowest, sizes) for entry in found])
    return frame.astype(dict.fromkeys(("num_trees", "max_height", "num_steps"), "Int64"))


def _row(entry: Outcome, lowest: Fraction | None, sizes: Sequence[int | str]) -> dict[str, object]:
    answer = entry.answer
    made = answer if isinstance(answer, Plan) else None
    of_trees = made if made is not None and made.schedule.num_trees else None
    return {
        "kind": entry.kind,
        "planner": entry.name,
        "status": entry.status,
        "reason": entry.reason,
        "algbw": None if answer is None else float(answer.algbw),
        "algbw_exact": None if answer is None else answer.algbw,
        "bound": None if lowest is None else float(lowest),
        "bound_exact": lowest,
        "gap": None if made is None or lowest is None else float(1 - made.algbw / lowest),
        "num_trees": None if of_trees is None else of_trees.trees.num_trees,
        "max_height": None if of_trees is None else of_trees.heights.highest,
        "num_steps": None if made is None else made.schedule.num_steps or None,
        **{f"us_{size}": None if made is None else made.estimate(size) for size in sizes},
        "seconds": entry.seconds,
        "plan": made,
    }
