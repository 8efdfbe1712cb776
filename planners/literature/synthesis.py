"""Synthesis of schedules in few steps on small networks, by integer programs that also the planner ``milp`` solves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ...errors import CertificateError, UnsupportedError
from ...formulations import synthesis
from ...formulations.inputs import hop_distances
from ...formulations.pyomo_model import total
from ...schedules import ALLGATHER, Bound, StepSchedule, rate_of_loads
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...solvers.lp.options import HighsOptions
from ...solvers.lp.session import solve
from ...solvers.lp.solution import PrimalStatus
from ...support import progress
from ...support.formatting import bandwidth_text, count_text
from ...support.validation import as_list, as_whole
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..bounds import bound
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem, tree_problem
from .fixed_pattern import plan_in_steps
from .routes import Hops, LinkLoads

if TYPE_CHECKING:
    import pandas as pd


TIME_LIMIT = 60.0  # seconds for each integer program, if nobody says otherwise
TOLERANCE = 1e-6  # how far above a whole number of ticks HiGHS's bound may lie and still mean that number
FURTHER_STEPS = 3
MAX_RANKS = 256
PLAN_SECONDS = 5.0  # for the integer programs of one allgather or reduce-scatter
MAX_SENDS = 2**13  # variables of such a program, about


@dataclass(frozen=True, eq=False)
class Synthesis:
    """Result of `synthesise`: an allgather in steps, its rate, and a bound on better ones.

    Attributes
    ----------
    topology : Topology
        The network that it is for.
    schedule : StepSchedule
        What every rank sends in every step.
    inverse_rate : Fraction
        ns per byte of shard, latency left out: what the schedule's own loads add up to.
    bound : Bound
        What no schedule can beat, with any number of steps and chunks.
    limit : Fraction
        The same for as many chunks in the steps allowed.  It rests on HiGHS's branch and bound.
    """

    topology: Topology
    schedule: StepSchedule
    inverse_rate: Fraction
    bound: Bound
    limit: Fraction

    @property
    def proved(self) -> bool:
        """Whether no schedule with as many chunks and at most as many steps is faster."""
        return self.inverse_rate <= self.limit

    @property
    def algbw(self) -> Fraction:
        """Algorithm bandwidth in GB/s as in nccl-tests: bytes in all over time, latency left out."""
        return self.topology.num_ranks / self.inverse_rate

    @property
    def gap(self) -> Fraction:
        """Exact share of the bound that is missed; 0 means that no schedule has a larger bandwidth."""
        return 1 - self.bound.inverse_rate / self.inverse_rate

    def verify(self) -> None:
        """Check the schedule, its rate and the bound; `CertificateError` if anything is not as claimed."""
        self.bound.verify()
        if self.bound.collective is not ALLGATHER or self.bound.topology.digest != self.topology.digest:
            raise CertificateError(f"the bound is for {self.bound.collective} on {self.bound.topology}")
        reached = rate_of_loads(self.schedule.verified_loads(self.topology), self.schedule, self.topology)
        if reached != self.inverse_rate or reached < self.limit:
            raise CertificateError(
                f"the schedule takes {reached} ns per byte of shard; {self.inverse_rate} is claimed, and a limit of "
                f"{self.limit}"
            )

    def __str__(self) -> str:
        quality = "least for its steps and chunks" if self.proved else "not proved to be the least"
        return (
            f"allgather on {self.topology.name}: {self.schedule.num_steps} steps, "
            f"{self.schedule.chunks_per_shard} chunks per shard, {float(self.algbw):.2f} GB/s, {quality}"
        )


def synthesise(
    topology: Topology, *, steps: int | None = None, chunks: int = 1, time_limit: float | None = TIME_LIMIT
) -> Synthesis:
    """Find the allgather with the least bandwidth time within a number of steps, and verify it.

    Switches pass data through within a step, over one way for each pair of ranks.  Raises `UnsupportedError` if an
    option is not of its form; `NoAnswerError` if the time was over before any schedule was found.

    Parameters
    ----------
    topology : Topology
        Small: a few dozen links, or 16 ranks on switches; every rank reaches every other.
    steps : int, optional
        At least the diameter, which is the default.
    chunks : int
        Chunks per shard.  More allow a better balance and take longer to search.
    time_limit : float, optional
        Seconds, or None for as long as it takes.  When they are over, the best schedule found so far is the answer.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> found = synthesise(ring(4, bandwidth=25), chunks=2)
    >>> found.schedule.num_steps, found.inverse_rate, found.gap
    (2, Fraction(3, 50), Fraction(0, 1))
    """
    ways = ways_between(topology)
    steps = int(hop_distances(topology, ways).max()) if steps is None else steps
    return search(synthesis.build(topology, steps=steps, chunks=chunks, ways=ways), time_limit)


def ways_between(topology: Topology) -> synthesis.Ways:
    """Choose a way for each pair of ranks that reach each other past no rank."""
    if as_topology(topology).num_ranks > MAX_RANKS:
        raise UnsupportedError(f"integer programs are for up to {MAX_RANKS} ranks here; {topology} has more")
    problem = tree_problem(topology, "broadcast", ())
    hops, loads, names = Hops(problem), LinkLoads(problem.capacities), topology.nodes
    ranks = topology.num_ranks
    pairs = [(tail, head) for tail in range(ranks) for head in hops.distances(tail) if tail != head < ranks]
    node_paths = (tuple(names[node] for node in loads.take(hops.routes(*pair)).nodes) for pair in pairs)
    return {(way[0], way[-1]): way for way in node_paths}


def search(
    model: synthesis.SynthesisModel, time_limit: float | None, start: Mapping[str, Any] | None = None
) -> Synthesis:
    """Solve the program, which no better than the bound of all schedules can be, and verify the schedule."""
    topology, cut = model.topology, bound(model.topology, ALLGATHER)
    least_ticks = ceil(cut.inverse_rate / model.tick)
    model.constrain("least", total(model.variables.duration.values()) >= least_ticks)
    solution = solve(model, HighsOptions(time_limit=time_limit), start=start)
    # HiGHS reads a start only once there is time.
    answer = start if start and solution.status.primal is not PrimalStatus.FEASIBLE else solution.values
    schedule = synthesis.as_schedule(model, answer["send"])
    reached = rate_of_loads(schedule.verified_loads(topology), schedule, topology)
    ticks = ceil(solution.bound - TOLERANCE) if solution.bound > 0 else 0
    result = Synthesis(topology, schedule, reached, cut, max(ticks * model.tick, cut.inverse_rate))
    result.verify()
    return result


def synthesis_frontier(
    topology: Topology,
    *,
    steps: Iterable[int] | None = None,
    chunks: Iterable[int] = (1,),
    time_limit: float | None = TIME_LIMIT,
) -> pd.DataFrame:
    """Trade steps for bandwidth: the fastest allgather for several numbers of steps and chunks.

    Parameters
    ----------
    topology : Topology
        As for `synthesise`.
    steps : iterable of int, optional
        Most steps that a schedule may take; from the diameter to three more by default, until the bound is met.
    chunks : iterable of int
        Numbers of chunks per shard to try with each.
    time_limit : float, optional
        As for `synthesise`, for each schedule.

    Returns
    -------
    DataFrame
        One row per schedule: ``steps`` and ``chunks`` that it takes, ``inverse_rate`` (Fraction, ns per byte of shard),
        ``algbw`` (Fraction, GB/s), ``gap`` (Fraction), ``proved``; ``pareto`` marks rows that no other beats in steps
        and rate at once, nor equals in both with fewer chunks; ``synthesis`` is the `Synthesis`.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> synthesis_frontier(ring(4), chunks=[1, 2])[["steps", "chunks", "inverse_rate", "pareto"]].values.tolist()
    [[2, 1, Fraction(2, 1), False], [2, 2, Fraction(3, 2), True]]
    """
    import pandas as pd

    diameter = int(hop_distances(topology, ways_between(topology)).max())
    usual = range(diameter, diameter + FURTHER_STEPS + 1)
    counts, lengths = as_list(chunks, "chunks"), as_list(usual if steps is None else steps, "steps")
    if not counts or not lengths:
        raise UnsupportedError(f"{'steps' if counts else 'chunks'} is empty; name at least one number")
    answers: list[Synthesis] = []
    for length in progress.iterate(lengths, len(lengths)):
        answers += [synthesise(topology, steps=length, chunks=count, time_limit=time_limit) for count in counts]
        if steps is None and min(answer.gap for answer in answers) == 0:
            break
    columns = ("inverse_rate", "algbw", "gap", "proved")
    frame = pd.DataFrame(
        {
            "steps": [answer.schedule.num_steps for answer in answers],
            "chunks": [answer.schedule.chunks_per_shard for answer in answers],
            **{name: [getattr(answer, name) for answer in answers] for name in columns},
            "synthesis": answers,
        }
    )
    # Pareto-optimal in steps and rate; of equals, the one with the fewest chunks.
    ordered = frame.sort_values(["steps", "inverse_rate", "chunks"], kind="stable")["inverse_rate"]
    lowest = list(accumulate(ordered, min))
    fresh = [place == 0 or rate < lowest[place - 1] for place, rate in enumerate(ordered)]
    frame.insert(len(frame.columns) - 1, "pareto", pd.Series(fresh, index=ordered.index))
    return frame


@register_planner("milp", EVERY_ROOT)
def plan_milp(topology: Topology, collective: AnyCollective, *, chunks: int | None = None) -> Plan:
    """Plan the best schedule in few steps that an integer program finds in seconds, as TACCL and TE-CCL do.

    It has one step more than the diameter, and as many chunks per shard as given, or one and then two.  The search ends
    after `PLAN_SECONDS`: ``provenance["search"]`` says what HiGHS has proved of all schedules with as many steps and
    chunks, over one way for each pair of ranks.
    """
    counts = [1, 2] if chunks is None else [as_whole(chunks, "chunks", high=MAX_SENDS)]
    searches: list[tuple[int, Synthesis]] = []

    def build(problem: TreeProblem) -> StepSchedule:
        network = problem.topology
        if problem.direction == "reduce":
            links = [link._replace(tail=link.head, head=link.tail) for link in network.links]
            ranks, switches = network.compute_nodes, network.switch_nodes
            network = Topology.from_links(links, compute=ranks, switches=switches, name=network.name)
        searches.append(_best(network, counts))
        return replace(searches[-1][1].schedule, direction=problem.direction)

    options = {} if chunks is None else {"chunks": counts[0]}
    plan = plan_in_steps(topology, collective, "milp", build, options)
    steps, answer = searches[-1]
    phases = len(plan.schedule.phases)
    limit = sum((answer.limit for _, answer in searches), Fraction(0)) / len(searches) * phases
    rate_limit = bandwidth_text(topology.num_ranks / limit, 2)
    size = (
        f"{' + '.join([str(steps)] * phases)} steps, {count_text(answer.schedule.chunks_per_shard, 'chunk')} per shard"
    )
    return replace(plan, provenance={**plan.provenance, "search": f"branch and bound: at most {rate_limit} in {size}"})


def _best(topology: Topology, counts: Sequence[int]) -> tuple[int, Synthesis]:
    """Search with each number of chunks that is not too large; return the steps allowed, and the best answer."""
    ways = ways_between(topology)
    steps = int(hop_distances(topology, ways).max()) + 1
    size = topology.num_ranks * len(ways) * steps
    if size * counts[0] > MAX_SENDS:
        raise UnsupportedError(
            f"the integer program for {topology} has about {size * counts[0]} variables; a plan takes up to "
            f"{MAX_SENDS}: call collopt.planners.synthesise, which takes more"
        )
    answers: list[Synthesis] = []
    small_counts = [chunks for chunks in counts if size * chunks <= MAX_SENDS]
    for chunks in small_counts:
        if not answers or answers[-1].gap:
            model = synthesis.build(topology, steps=steps, chunks=chunks, ways=ways)
            answers.append(search(model, PLAN_SECONDS / len(small_counts), _soonest(model)))
    return steps, min(answers, key=lambda answer: answer.inverse_rate)


def _soonest(model: synthesis.SynthesisModel) -> dict[str, Any]:
    """Return the values of a schedule in which all arrives as soon as can be, over links with little to do."""
    keys = list(model.variables.send)
    choices: dict[tuple[str, int, str], list[tuple[Any, ...]]] = {}
    for key in sorted(keys, key=itemgetter(-1)):
        source, chunk, _, head, step = key
        usable = choices.setdefault((source, chunk, head), [key])
        if step == usable[0][-1] and key != usable[0]:
            usable.append(key)
    loads, used_keys, ticks = Counter[tuple[str, str, int]](), set(), model.program.ticks
    for usable in choices.values():
        step = usable[0][-1]
        routes = {key: list(pairwise(model.ways[key[2:4]])) for key in usable}
        soonest = min(usable, key=lambda key: max((loads[*link, step] + 1) * ticks[link].value for link in routes[key]))
        loads.update((*link, step) for link in routes[soonest])
        used_keys.add(soonest)
    return {"send": {key: float(key in used_keys) for key in keys}}
