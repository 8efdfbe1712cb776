"""The planner ``few-steps``: the fastest of the families in few steps that a network has."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from ...errors import UnsupportedError
from ...schedules import as_bytes
from ...schedules.timing.predict import Predictor
from ...schedules.traffic.collective import EVERY_ROOT, AnyCollective, as_collective
from ...support.validation import shown
from ...topologies import LINKS_ONLY, Topology
from ...topologies.network.assumed_costs import as_costs
from ..from_schedule import bound_of_schedule
from ..plans.plan import Plan, proved_plan
from ..plans.stages import Trace
from ..trees.problem import check_request
from .families import Family, families

CLOSE_ESTIMATES = 5 / 4  # by the least one: families whose schedules are built, and run
AS_FAST = Fraction(1005, 1000)  # of which the one in the fewest chunks is taken: runtimes limit these
MAX_RANKS = 2048
MUCH = 2**50  # bytes for which no latency counts


def plan_few_steps(
    topology: Topology, collective: AnyCollective, *, family: str | None = None, size: int | str | None = None
) -> Plan:
    """Plan a collective by schedules in few steps: every rank to every other, along rails and boxes, or trees on rails.

    The plan is verified.  Raises `UnsupportedError` if the network has no family of this name.

    Parameters
    ----------
    topology : Topology
        Whose groups of ranks reach each other past no rank, as through switches.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"`` or ``"allreduce"``.
    family : str, optional
        Which one, such as ``"direct"`` or ``"rails-then-box"``; by default the fastest.
    size : int or str, optional
        Bytes in all for which it is the fastest, with the costs that the topology states; by default for infinitely
        much data.

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> plan_few_steps(dgx_h100(boxes=4), "allgather", size="4K").provenance["family"]
    'direct'
    """
    check_request(topology, collective)
    known = as_collective(collective, EVERY_ROOT, "schedules in few steps do not implement")
    num_bytes = None if size is None else as_bytes(size)
    if topology.num_ranks > MAX_RANKS:
        raise UnsupportedError(
            f"{topology!r} has {topology.num_ranks} ranks; few-steps plans for up to {MAX_RANKS}, as a schedule has a "
            "send for each pair of ranks"
        )
    trace = Trace()
    with trace.stage("families"):
        chosen = _fastest(topology, _named(list(families(topology, known)), family, topology), num_bytes)
    trace.note("family", chosen.name)
    given = {"family": family, "size": num_bytes}
    options = {name: value for name, value in given.items() if value is not None}
    find = partial(bound_of_schedule, topology, known, chosen.schedule)
    return proved_plan(topology, known, chosen.schedule, "few-steps", options, trace, find)


def _named(found: list[Family], name: str | None, topology: Topology) -> list[Family]:
    """Families with this name, or all."""
    if not found:
        raise UnsupportedError(
            f"{topology!r} has no schedule in few steps, for its ranks reach each other only past ranks; "
            "the planner 'bfb' is for such networks"
        )
    chosen = [each for each in found if name in (None, each.name)]
    if not chosen:
        names = ", ".join(each.name for each in found)
        raise UnsupportedError(f"{topology!r} has no family {shown(name)}; expected one of {names}")
    return chosen


def _fastest(topology: Topology, found: list[Family], num_bytes: int | None) -> Family:
    """Choose by bandwidth, or by predicted time of those with the least estimates; of equally fast ones, by chunks."""
    costs = LINKS_ONLY if num_bytes is None else as_costs(None, topology)
    estimates = [family.estimate(num_bytes or MUCH, costs) for family in found]
    near = [family for family, time in zip(found, estimates, strict=True) if time <= min(estimates) * CLOSE_ESTIMATES]
    if len(near) == 1:
        return near[0]
    if num_bytes is None:
        return min(near, key=lambda family: family.schedule.inverse_rate(topology))
    times = [Predictor(family.schedule, topology, costs).time(num_bytes) for family in near]
    fast = (family for family, time in zip(near, times, strict=True) if time <= min(times) * AS_FAST)
    return min(fast, key=lambda family: max(family.schedule.load_units))
