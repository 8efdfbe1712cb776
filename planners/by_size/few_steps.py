"""The planner ``few-steps``: the fastest of the families in few steps that a network has."""

from fractions import Fraction
from functools import partial

from ...errors import UnsupportedError
from ...schedules import as_bytes
from ...schedules.collective import EVERY_ROOT, AnyCollective, as_collective
from ...schedules.timing.predict import Predictor
from ...support.validation import shown
from ...topologies import LINKS_ONLY, Topology
from ...topologies.network.link_costs import as_costs
from ..bounds.from_schedule import bound_of_schedule
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from ..trees.problem import check_request
from .families import MUCH, Family, families

CLOSE_ESTIMATES = 5 / 4  # by the least one: families whose schedules are built, and run
AS_FAST = Fraction(1005, 1000)  # of which the one in the fewest chunks is taken: runtimes limit these
NEAR_ESTIMATES = 1 / 100
MOST_TRIES = 4  # after which no faster one is expected
MAX_RANKS = 2048


@register_planner("few-steps", EVERY_ROOT)
def plan_few_steps(
    topology: Topology, collective: AnyCollective, *, family: str | None = None, size: int | str | None = None
) -> Plan:
    """Plan sends from every rank to every other, along rails and boxes, or trees on rails, for small data.

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
    planned = as_collective(collective, EVERY_ROOT, "schedules in few steps do not implement")
    num_bytes = None if size is None else as_bytes(size)
    if topology.num_ranks > MAX_RANKS:
        raise UnsupportedError(
            f"{topology} has {topology.num_ranks} ranks; few-steps plans for up to {MAX_RANKS}, as a schedule has a "
            "send for each pair of ranks"
        )
    trace = Trace()
    with trace.stage("families"):
        request = (MUCH, LINKS_ONLY) if num_bytes is None or family else (num_bytes, as_costs(None, topology))
        candidates = _named(list(families(topology, planned, *request)), family, topology)
        if num_bytes is None:
            estimates = [family.estimate(*request).time for family in candidates]
            near = [
                candidate
                for candidate, time in zip(candidates, estimates, strict=True)
                if time <= min(estimates) * CLOSE_ESTIMATES
            ]
            best = near[0] if len(near) == 1 else min(near, key=lambda family: family.schedule.inverse_rate(topology))
        else:
            best, time = _fastest(topology, candidates, num_bytes)
            trace.note("predicted_us", float(time))
    trace.note("family", best.name)
    settings = {"family": family, "size": num_bytes}
    options = {name: value for name, value in settings.items() if value is not None}
    find = partial(bound_of_schedule, topology, planned, best.schedule)
    return proved_plan(topology, planned, best.schedule, "few-steps", options, trace, find)


def _named(candidates: list[Family], name: str | None, topology: Topology) -> list[Family]:
    """Families with this name, or all."""
    if not candidates:
        raise UnsupportedError(
            f"{topology} has no schedule in few steps, for its ranks reach each other only past ranks; "
            "the planner 'bfb' is for such networks"
        )
    matches = [family for family in candidates if name in (None, family.name)]
    if not matches:
        names = ", ".join(family.name for family in candidates)
        raise UnsupportedError(f"{topology} has no family {shown(name)}; expected one of {names}")
    return matches


def _fastest(topology: Topology, candidates: list[Family], num_bytes: int) -> tuple[Family, Fraction]:
    """Choose by predicted time of those with the least estimates; of equally fast ones, by chunks.

    Estimates that differ by less count as equal, so that families in fewer steps are run before.  Others are run only
    if what their busiest link takes alone is less than the best time so far, until some in turn were no faster.
    """
    costs = as_costs(None, topology)
    estimates = [family.estimate(num_bytes, costs) for family in candidates]
    limit = min(estimate.time for estimate in estimates)
    near = [pair for pair in zip(estimates, candidates, strict=True) if pair[0].time <= limit * CLOSE_ESTIMATES]
    times: dict[Family, Fraction] = {}
    tries = MOST_TRIES
    for estimate, family in sorted(near, key=lambda pair: int(pair[0].time / limit / NEAR_ESTIMATES)):
        best = min(times.values(), default=None)
        if tries and (best is None or estimate.minimum * AS_FAST < best):
            times[family] = Predictor(family.schedule, topology, costs).time(num_bytes)
            tries = MOST_TRIES if best is None or times[family] < best else tries - 1
    fast = [family for family, time in times.items() if time <= min(times.values()) * AS_FAST]
    best_family = min(fast, key=lambda family: max(family.schedule.load_units))
    return best_family, times[best_family]
