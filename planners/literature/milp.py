"""Plans in few steps by integer programming, in the manner of TACCL (NSDI 2023) and TE-CCL (SIGCOMM 2024)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter
from typing import Any

from ...errors import UnsupportedError
from ...formulations import synthesis
from ...formulations.modelling.inputs import hop_distances
from ...schedules import StepSchedule
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...support.formatting import bandwidth_text, count_text
from ...support.validation import as_whole
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .step_plans import plan_in_steps
from .synthesis import Synthesis, search, ways_between

PLAN_SECONDS = 5.0  # for the integer programs of one allgather or reduce-scatter
MAX_SENDS = 2**13  # variables of such a program, about


@register_planner("milp", EVERY_ROOT)
def plan_milp(topology: Topology, collective: AnyCollective, *, chunks: int | None = None) -> Plan:
    """Plan the best schedule in few steps that an integer program finds in seconds, as TACCL and TE-CCL do.

    It has one step more than the diameter, and as many chunks per shard as given, or one and then two.

    The search ends after `PLAN_SECONDS`: its best schedule is the plan's, and ``provenance["search"]`` says what HiGHS
    has proved of all schedules with as many steps and chunks, over one way for each pair of ranks.  A reduce-scatter is
    the reverse of an allgather on the transposed network, an allreduce is both.  Plans differ from run to run only
    where time runs out.
    """
    counts = [1, 2] if chunks is None else [as_whole(chunks, "chunks", high=MAX_SENDS)]
    searches: list[tuple[int, Synthesis]] = []

    def build(problem: TreeProblem) -> StepSchedule:
        searches.append(_best(_broadcast_network(problem), counts))
        return replace(searches[-1][1].schedule, direction=problem.direction)

    options = {} if chunks is None else {"chunks": counts[0]}
    plan = plan_in_steps(topology, collective, "milp", build, options)
    steps, answer = searches[-1]
    limit = (
        sum((search_answer.limit for _, search_answer in searches), Fraction(0))
        / len(searches)
        * len(plan.schedule.phases)
    )
    rate_limit = bandwidth_text(topology.num_ranks / limit, 2)
    each_phase = " + ".join([str(steps)] * len(plan.schedule.phases))
    size = f"{each_phase} steps, {count_text(answer.schedule.chunks_per_shard, 'chunk')} per shard"
    return replace(plan, provenance={**plan.provenance, "search": f"branch and bound: at most {rate_limit} in {size}"})


def _broadcast_network(problem: TreeProblem) -> Topology:
    """Return the network with its links in the direction from roots to leaves."""
    network = problem.topology
    if problem.direction == "broadcast":
        return network
    links = [link._replace(tail=link.head, head=link.tail) for link in network.links]
    return Topology.from_links(links, compute=network.compute_nodes, switches=network.switch_nodes, name=network.name)


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
