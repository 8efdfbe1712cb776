"""Comparison of planners and bounds, and of numbers of trees per root: rate, gap to the best bound, and run time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...errors import BoundError, CapacityOverflowError, ColloptError, UnsupportedError
from ...schedules import (
    ALLREDUCE,
    COLLECTIVES,
    EVERY_SCHEDULE,
    PAIR_COLLECTIVES,
    TREE_COLLECTIVES,
    Bound,
    Collective,
    Demands,
    as_bytes,
)
from ...schedules.collective import DEMANDS, AnyCollective, as_collective
from ...schedules.timed_run import MANY_EVENTS, Predictor
from ...solvers import HighsOptions
from ...support import progress
from ...support.kernels import timed_compilation
from ...support.validation import as_options, shown
from ...topologies import RuntimeCosts, Topology
from ...topologies.builders import NetworkLike, refuse_network_options, refuse_options
from ...topologies.builders import topology as as_network
from ...topologies.network.link_costs import CostsName, as_costs
from ..all_to_all.flows import check_pairs_reachable
from ..all_to_all.multicommodity import checked_traffic
from ..bounds import bound
from ..plans.plan import Plan
from ..plans.registry import PLANNERS, Planner, plan, unknown_name
from ..plans.stages import Trace
from ..trees.lp_bounds import lp_bound
from ..trees.problem import check_reachable, checked_count, shard_weights
from ..trees.steiner import check_abilities, steiner_bound
from ..trees.strength import strength_bound

if TYPE_CHECKING:
    import pandas as pd


Kind = Literal["bound", "plan"]
Status = Literal["ok", "not applicable", "failed"]
Shards = Mapping[str, Any]
"""Root, weights or traffic of the collective."""


class Predicted(NamedTuple):
    """A predicted time in µs, and the range of those by costs that measured times do not tell apart."""

    microseconds: float
    ends: tuple[float, float] | None


@dataclass(frozen=True)
class Outcome:
    """Result of one planner or one bound."""

    kind: Kind  # whether `answer` is an upper bound or an achieved plan
    name: str  # a key of `BOUNDS` or of `PLANNERS`
    answer: Bound | Plan | None  # None where there is none
    status: Status  # planners that do not suit a topology are not applicable; failures indicate a defect
    reason: str  # why there is no answer; of a bound that is not about all schedules, what it is about
    seconds: float  # wall time of planning, with what imports it took, without the compilation of kernels
    compile_seconds: float  # of that compilation, which only the first run of all needs
    times: Mapping[int | str, Predicted]  # by size, of the plan for that size

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bound that this result is, or those that its plan has."""
        own = (self.answer.bound, self.answer.scoped_bound) if isinstance(self.answer, Plan) else (self.answer,)
        return tuple(filter(None, own))


def check_feasible(
    topology: Topology,
    collective: Collective,
    *,
    root: int | str | None = None,
    traffic: Any = None,
    weights: Sequence[object] | None = None,
) -> None:
    """Raise `BoundError` if ranks cannot reach each other; parameters as `compare`."""
    if isinstance(collective, Demands):
        collective.ends(topology)
        return
    if collective.in_pairs:
        check_pairs_reachable(topology, checked_traffic(topology, collective, traffic, root))
    else:
        check_reachable(topology, collective, root=root, weights=weights)


def _outcome(
    topology: Topology, collective: Collective, kind: Kind, name: str, shards: Shards, sizes: Sequence[int | str]
) -> Outcome:
    """Run one planner, or compute one bound."""
    answer: Bound | Plan | None = None
    times: dict[int | str, Predicted] = {}
    status: Status = "ok"
    start = time.perf_counter()
    with timed_compilation() as compilation:
        try:
            with Trace().stage(f"{kind} by {name}"):
                if kind == "plan":
                    answer, times = candidate, _ = plan_and_times(topology, collective, PLANNERS[name], shards, sizes)
                    reason = str(candidate.provenance.get("search", ""))
                else:
                    covered, function = BOUNDS[name]
                    as_collective(collective, covered, f"the bound by {name} does not cover")
                    answer = limit = function(topology, collective, shards)
                    reason = "" if limit.scope == EVERY_SCHEDULE else f"holds for {limit.scope} only"
        except (UnsupportedError, BoundError, CapacityOverflowError) as error:
            status, reason = "not applicable", str(error)
        except ColloptError as error:
            status, reason = "failed", str(error)
        except Exception as error:  # noqa: BLE001 - a defect of one planner, which must not cost the others' answers
            message = str(error).strip().partition("\n")[0]
            status, reason = "failed", ": ".join(filter(None, (type(error).__name__, message)))
    seconds = time.perf_counter() - start - compilation.seconds
    return Outcome(kind, name, answer, status, reason, seconds, compilation.seconds, times)


def plan_and_times(
    topology: Topology, collective: Collective, planner: Planner, shards: Shards, sizes: Sequence[int | str]
) -> tuple[Plan, dict[int | str, Predicted]]:
    """Plan, and predict the time for each size; those that plan for sizes do so for each."""
    if "size" not in planner.keywords:
        unsized = plan(topology, collective, planner=planner, **shards)
        return unsized, _predicted(unsized, sizes)
    sized = {size: plan(topology, collective, planner=planner, size=size, **shards) for size in sizes}
    times = {size: _predicted(sized_plan, [size])[size] for size, sized_plan in sized.items()}
    if len(sized) == 1:
        return next(iter(sized.values())), times
    return plan(topology, collective, planner=planner, **shards), times


def _predicted(candidate: Plan, sizes: Sequence[int | str]) -> dict[int | str, Predicted]:
    """Predict the times of a plan, by size."""
    costs = as_costs(None, candidate.topology)
    predictors = {end: Predictor(candidate.schedule, candidate.topology, end) for end in (costs, *costs.extremes)}
    times: dict[int | str, Predicted] = {}
    for size in sizes:
        time_at = partial(_time_at, predictors, as_bytes(size))
        times[size] = Predicted(time_at(costs), costs.range_of(time_at))
    return times


def _time_at(predictors: Mapping[RuntimeCosts, Predictor], num_bytes: int, costs: RuntimeCosts) -> float:
    return float(predictors[costs].time(num_bytes, MANY_EVENTS))


def _names(names: Sequence[str] | None, what: str, known_names: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Check the given names, or return the usual ones, without repeats."""
    if isinstance(names, str) or not isinstance(names, Sequence | None):
        raise UnsupportedError(f"{what} is {shown(names)}; expected a list of names: {', '.join(known_names)}")
    for name in names or ():
        if not isinstance(name, str) or name not in known_names:
            raise unknown_name(what.removesuffix("s"), name, known_names)
    return list(dict.fromkeys(usual if names is None else names))


LARGEST_PROGRAM = 10_000  # columns beyond which the linear program is not solved just for comparison
TIME_LIMIT = 30  # seconds that the linear program may take


def _general_bound(topology: Topology, collective: Collective, shards: Shards) -> Bound:
    limit: Bound = bound(topology, collective, **shards)
    return limit


def _linear_program_bound(topology: Topology, collective: Collective, shards: Shards) -> Bound:
    columns = topology.num_ranks * topology.num_links * len(collective.phases)
    if columns > LARGEST_PROGRAM:
        limit = f"expected up to {LARGEST_PROGRAM} for a comparison: call collopt.planners.lp_bound to solve it"
        raise UnsupportedError(f"the linear program has about {columns} columns; {limit}")
    return lp_bound(topology, collective, **shards, options=HighsOptions(time_limit=TIME_LIMIT))


def _steiner_bound(topology: Topology, collective: Collective, shards: Shards) -> Bound:
    check_abilities(topology)
    return steiner_bound(topology, collective, **shards)


BOUNDS: dict[str, tuple[Collection[Collective], Callable[[Topology, Collective, Shards], Bound]]] = {
    "forestcoll": (TREE_COLLECTIVES, _general_bound),
    "strength": ([ALLREDUCE], lambda topology, *_: strength_bound(topology)),
    "linear-program": (TREE_COLLECTIVES, _linear_program_bound),
    "steiner": (TREE_COLLECTIVES, _steiner_bound),
    "multicommodity": (PAIR_COLLECTIVES, _general_bound),
    "steiner-trees": ((DEMANDS,), _general_bound),
}
"""Ways to bound the speed of a collective, with the collectives that they are about."""


def compare(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    planners: Sequence[str] | None = None,
    bounds: Sequence[str] | None = None,
    sizes: Sequence[int | str] | None = None,
    costs: RuntimeCosts | CostsName | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> pd.DataFrame:
    """Plan a collective with several planners, and compare the results with the bounds.

    Parameters
    ----------
    topology, collective
        As for `collopt.bound`.
    planners : sequence of str, optional
        Keys of `PLANNERS`; by default all that are about such collectives, ``"auto"`` only with `sizes`.
    bounds : sequence of str, optional
        Keys of `BOUNDS`; by default all that are about such collectives.
    sizes : sequence of int or str, optional
        Bytes in all, such as ``"1M"``, to predict times for.  Planners that plan for a size do so for each; their rows
        show the plan for a single size, or else the one for large data.
    costs, root, weights, traffic
        As for `collopt.bound`.
    **unknown
        Refused; options of a network belong to `collopt.topology`.

    Returns
    -------
    DataFrame
        One row per bound and per planner; what a row has not is None, nan or NA, by the kind of the column.

        - ``kind``: ``"bound"`` or ``"plan"``; ``planner``: the name.
        - ``status``: ``"ok"``, ``"not applicable"`` or ``"failed"``; ``reason``: why, if not ok.
        - ``algbw``, ``algbw_exact``: GB/s that no schedule exceeds, or that the plan achieves.
        - ``bound``, ``bound_exact``: the lowest bound of all, the same in every row.
        - ``gap``: share of it that the plan misses, 0 only if none.
        - ``tree_bound``, ``tree_bound_exact``, ``tree_gap``: the same for trees, where bounds of these alone count too.
        - ``num_trees``, ``max_height``, ``num_steps``: trees of the plan and hops of the highest, or its steps.
        - ``us_<size>``: predicted µs, for each of `sizes`; ``range_us_<size>``: least and largest, where measured times
          do not tell costs apart.
        - ``seconds``: wall time of planning and verifying; ``compile_seconds``: of compiling kernels besides.
        - ``plan``: the `Plan`.

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
    import pandas as pd

    refuse_options(compare, topology, unknown)
    network = as_network(topology)
    planned = as_collective(collective, (*COLLECTIVES.values(), DEMANDS), "there is no planner or bound for")
    shard_weights(network, planned, root, weights)
    if isinstance(sizes, str) or not isinstance(sizes, Sequence | None):
        raise UnsupportedError(f"sizes is {shown(sizes)}; expected a list such as ['1M', '1G']")
    amounts = tuple(sizes or ())
    for size in amounts:
        as_bytes(size)
    if costs is not None:
        network = network.changed(costs=as_costs(costs, network))
    problem = {"root": root, "weights": weights, "traffic": traffic}
    shards = {name: value for name, value in problem.items() if value is not None}
    # Usual are those of the collective's kind, but auto, which runs others, only for sizes.
    kind: Collection[Collective] = PAIR_COLLECTIVES if planned.in_pairs else TREE_COLLECTIVES
    kind = (DEMANDS,) if planned.has_items else kind
    everyone = [*(name for name in PLANNERS if name != "auto"), "auto"]
    usual = [name for name in everyone if any(map(PLANNERS[name].plans, kind)) and (amounts or name != "auto")]
    of_kind = [name for name, (covered, _) in BOUNDS.items() if any(entry in covered for entry in kind)]
    tasks: list[tuple[Kind, str]] = [("bound", name) for name in _names(bounds, "bounds", list(BOUNDS), of_kind)]
    tasks += [("plan", name) for name in _names(planners, "planners", everyone, usual)]
    if not tasks:
        raise UnsupportedError("there is nothing to compare; name a planner or a bound")
    outcomes = [_outcome(network, planned, *task, shards, amounts) for task in progress.iterate(tasks, len(tasks))]
    limits = [(limit.scope, limit.algbw) for entry in outcomes for limit in entry.bounds]
    lowest = min((algbw for scope, algbw in limits if scope == EVERY_SCHEDULE), default=None)
    # A bound of fewer than all schedules is about trees.
    by_trees = min((algbw for _, algbw in limits), default=None)
    frame = pd.DataFrame([_row(entry, lowest, by_trees, amounts) for entry in outcomes])
    return frame.astype(dict.fromkeys(("num_trees", "max_height", "num_steps"), "Int64"))


def _row(
    entry: Outcome, lowest: Fraction | None, by_trees: Fraction | None, sizes: Sequence[int | str]
) -> dict[str, object]:
    answer = entry.answer
    candidate = answer if isinstance(answer, Plan) else None
    of_trees = candidate if candidate is not None and candidate.schedule.num_trees else None
    return {
        "kind": entry.kind,
        "planner": entry.name,
        "status": entry.status,
        "reason": entry.reason,
        "algbw": None if answer is None else float(answer.algbw),
        "algbw_exact": None if answer is None else answer.algbw,
        "bound": None if lowest is None else float(lowest),
        "bound_exact": lowest,
        "gap": None if candidate is None or lowest is None else float(1 - candidate.algbw / lowest),
        "tree_bound": None if by_trees is None else float(by_trees),
        "tree_bound_exact": by_trees,
        "tree_gap": None if of_trees is None or by_trees is None else float(1 - of_trees.algbw / by_trees),
        "num_trees": None if of_trees is None else of_trees.trees.num_trees,
        "max_height": None if of_trees is None else of_trees.heights.highest,
        "num_steps": None if candidate is None else candidate.schedule.num_steps or None,
        **{f"us_{size}": entry.times[size].microseconds if size in entry.times else None for size in sizes},
        **{f"range_us_{size}": time.ends for size, time in entry.times.items() if time.ends},
        "seconds": entry.seconds,
        "compile_seconds": entry.compile_seconds,
        "plan": candidate,
    }


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
    topology, collective
        As for `collopt.plan`.
    counts : iterable of int, optional
        Numbers of trees per root; by default 1 up to 8, but fewer than ForestColl's optimum takes.  The planner's best
        for any number is always added, as the last row.
    planner : str
        One that takes ``trees_per_root``.
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
    frame = pd.DataFrame(
        {
            "trees_per_root": scanned.trees.forests[-1].trees_per_root,
            "algbw": float(scanned.algbw),
            "gap": float(scanned.gap),
            "num_trees": scanned.trees.num_trees,
            **{f"{name}_height": height for name, height in zip(("min", "mean", "max"), scanned.heights, strict=True)},
            "estimate_us": scanned.estimate(size),
            "planner": scanned.planner,
            "plan": scanned,
        }
        for scanned in plans
    )
    better = frame[["algbw", "max_height", "num_trees"]] * [-1, 1, 1]
    frame["pareto"] = [
        not ((better <= row).all(axis=1) & (better < row).any(axis=1)).any() for _, row in better.iterrows()
    ]
    return frame
