"""Times that beat the line rate of links, and what explains them: another algorithm, or bandwidths stated too low."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from ....errors import ColloptError
from ....planners import plan
from ....planners.registry import as_planner
from ....schedules import Collective
from ....topologies import Topology
from .cost_fit import CostFit, Told, Unknown
from .measured_times import MeasuredTimes
from .model_times import NS_PER_US, AssumedRun, Group, LinkGroups, PlanRun

TOLERANCE = 1e-9
ALGORITHMS = ("ring", "hierarchical-ring", "double-binary-tree", "nvls", "nvls-tree", "collnet", "auto")
"""What libraries run, and the fastest plan."""


def at_line_rate(inverse: Told | None) -> bool:
    """Whether an inverse efficiency is at its bound of 1."""
    return inverse is not None and inverse.value <= 1 + TOLERANCE


def beyond_line_rate(groups: LinkGroups, fit: CostFit) -> dict[Group, float]:
    """Find groups of links whose times are those of faster links, and how many times as fast."""
    told = {group: fit.told.get(Unknown("inverse", group)) for group in groups.classes}
    return {
        group: 2 / (inverse.low + inverse.high)
        for group, inverse in told.items()
        if inverse is not None and at_line_rate(inverse) and inverse.high < 1
    }


def stated_too_low(groups: LinkGroups, group: Group, factor: float) -> str:
    """Say what the times would make of the bandwidths of links."""
    stated = [float(each.bandwidth) for each in groups.classes[group]]
    rates, given = ", ".join(f"{each * factor:.3g}" for each in stated), ", ".join(f"{each:g}" for each in stated)
    return f"the stated bandwidth may be too low: the times give {rates} GB/s instead of {given}"


def other_plans(
    groups: LinkGroups,
    runs: Sequence[AssumedRun],
    measured: Sequence[MeasuredTimes],
    fit: CostFit,
    fast: Mapping[Group, float],
) -> str:
    """Say whose plans are as fast as times that beat the modelled plan; empty if there are none."""
    for run, times, terms in zip(runs, measured, fit.terms, strict=True):
        if isinstance(run, PlanRun) and (beaten := [fast[group] for group in terms.loads if group in fast]):
            reached = float(1 / sum(terms.loads.values()) / NS_PER_US)
            rate = reached * max(beaten)
            if plans := _as_fast(groups.topology, times.collective, rate):
                return (
                    f"{times.source}: its times give an algbw of {rate:.4g} GB/s, and {run.planner} has {reached:.4g} "
                    f"at line rate; others reach that, in GB/s: {plans}"
                )
    return ""


def _as_fast(topology: Topology, collective: Collective | str | None, rate: float) -> str:
    """Name the pipelined plans that reach an algbw at line rate, the slowest first."""
    assert isinstance(collective, Collective)  # A plan was made for it
    found = {}
    for name in ALGORITHMS:
        with suppress(ColloptError):
            made = plan(topology, collective, planner=as_planner(name), root=0 if collective.has_one_root else None)
            if made.schedule.pipelined and made.algbw >= rate * (1 - TOLERANCE):
                found[made.planner] = made.algbw
    return ", ".join(f"{name} {float(algbw):.4g}" for name, algbw in sorted(found.items(), key=lambda each: each[1]))
