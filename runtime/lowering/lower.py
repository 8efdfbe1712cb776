"""Lowering of schedules of trees, steps and paths to per-rank programs of thread blocks.

One global order of all transfers, in which each comes after all that it waits for, makes programs free of deadlocks;
see docs/explanation/programs.md for the order and the proof.  Receiving and sending on are never fused, because RCCL
from ROCm 6.1 on launches no fused steps (ROCm/rccl#1005).
"""

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import TooLargeError, UnsupportedError
from ...planners import Plan
from ...schedules import (
    COLLECTIVES,
    PAIR_COLLECTIVES,
    AllToAllvSchedule,
    AnyStepSchedule,
    Collective,
    Schedule,
    TreeSchedule,
)
from ...schedules.collective import CollectiveName, as_collective
from ...schedules.trees.tree_schedule import cut_shares, shard_chunks, tree_chunks
from ...schedules.trees.verify import check_trees
from ...support.validation import shown
from ...topologies import Topology
from ...topologies.symmetry.rank_groups import RankGroups, one_group, rank_groups
from ..programs.layout import Layout
from ..programs.program import Program, check_counts
from ..programs.transformations import replicated
from .exchanges import lower_exchange
from .flows import lower_flow, lower_staged_flow, lower_stages
from .rank_writer import LoweringOptions, write_trees
from .trees import (
    MAX_TRANSFERS,
    from_rank_to_rank,
    merged_hops,
    ordered_hops,
    refuse_relays,
    step_shares,
    step_trees,
)

NAME_LENGTH = 63


def lower(
    schedule: Schedule,
    collective: CollectiveName | Collective,
    *,
    max_steps: int = 64,
    max_count: int = 71,
    channels: int = 1,
    instances: int = 1,
    name: str | None = None,
    topology: Topology | None = None,
) -> Program:
    """Lower a schedule to an out-of-place program.

    Raises `UnsupportedError` if the schedule is not for this collective, a parameter is not positive, or there are too
    many chunks; `ProgramError` if the traffic is not that of the collective registered; `CertificateError` if trees,
    steps, paths or stages do not deliver everything, each thing once.

    Parameters
    ----------
    schedule : Schedule
        Trees that span all ranks, where ranks take the place of switches that trees branch at, the weights of each
        rank's trees adding up to ``trees_per_root`` times the weight of its shard; steps, in which every rank gets
        every shard from ranks that hold what they send, and in a reduce-scatter no part twice; a FlowSchedule, whose
        paths carry ``chunks_per_unit`` times the traffic; or an AllToAllvSchedule, whose chunk is the largest amount
        that all its parts are multiples of.
    collective : str or Collective
        ``"allgather"`` for direction "broadcast", ``"reduce_scatter"`` for "reduce", ``"allreduce"`` for both; a forest
        with one root also ``"broadcast"`` and ``"reduce"``.  Flows and stages: ``"all_to_allv"``, with equal
        traffic ``"all_to_all"``, or a registered one with its traffic.
    max_steps, max_count : int
        Steps that one thread block may have, and chunks that one step may move.
    channels : int
        Channels that the transfers of every connection are divided among at least, where it has as many; more channels
        mean more concurrent thread blocks.  `max_steps` may require more.
    instances : int
        Parts that every transfer is divided into, each with thread blocks and channels of its own.
    name : str or None
        Name of the program; by default that of the collective.
    topology : Topology or None
        Network whose nested groups of ranks give the order of transfers of one level, such that no two ranks of a group
        send to the same rank, or to the same other group, at a time; None takes all ranks as one group.

    Returns
    -------
    Program
        Laid out as in `collopt.runtime.programs.layout`: the input of allgather and the output of reduce_scatter hold
        the own shard, everything else all chunks; broadcast has an input, and reduce an output, on the root alone.  The
        buffer of an allreduce is divided among the roots in proportion to their weights, in rank order.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> print(lower(forest, "allgather"))
    allgather: allgather on 2 ranks, 2 chunks, 6 steps, 1 channels
    """
    check_counts({"max_steps": max_steps, "max_count": max_count, "channels": channels, "instances": instances})
    if not isinstance(name, str | None):
        raise UnsupportedError(f"name is {shown(name)}; expected text, or None for that of the collective")
    collective = as_collective(collective, COLLECTIVES.values(), "there is no lowering for")
    _check_fitting(schedule, collective)
    groups = _groups(schedule, topology)
    if topology is not None and isinstance(schedule, Schedule):
        refuse_relays(schedule, topology, "the program")
    options = LoweringOptions(max_steps, max_count, channels, instances, topology, groups)
    with collector_paused():
        return replicated(lowered(schedule, collective, options, name or collective.name), instances)


def lower_plan(plan: Plan, *, max_steps: int, channels: int, instances: int) -> Program:
    """Lower a plan for the files of a runtime, with its name and the groups of its network; see `lower`."""
    return lower(
        plan.schedule,
        plan.collective,
        max_steps=max_steps,
        channels=channels,
        instances=instances,
        name=program_name(plan),
        topology=plan.topology,
    )


def program_name(plan: Plan) -> str:
    """Name of a plan's program in files: letters, digits and ._+- only, as MSCCL's runtimes take at most 63 of them."""
    rooted = plan.collective.has_one_root and plan.schedule.root is not None
    root = f"-root{plan.schedule.root}" if rooted else ""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{plan.collective}{root}-{plan.topology.name}")[:NAME_LENGTH]


MANY_OBJECTS = 10**5  # that the collector goes through in milliseconds


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection, which is slow with millions of objects, none of them in a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            # Counting what others froze goes through all of it, so few new objects are left to the next collection.
            if gc.get_count()[0] > MANY_OBJECTS and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # What is new counts as old, or enabling would go through all of it at once.
            gc.enable()


def _groups(schedule: Schedule | AllToAllvSchedule, topology: Topology | None) -> RankGroups:
    """Nested groups of the ranks of a topology, which has to be as large as the schedule."""
    ranks = getattr(schedule, "num_ranks", None)
    if topology is None or ranks is None:
        # More ranks than transfers are refused later, without an array of them.
        return one_group(ranks if ranks is not None and ranks <= MAX_TRANSFERS else 0)
    if not isinstance(topology, Topology) or topology.num_ranks != ranks:
        size = f"{topology.num_ranks} ranks" if isinstance(topology, Topology) else shown(topology)
        raise UnsupportedError(f"the topology has {size}; expected the {ranks} ranks of the schedule, or None")
    return rank_groups(topology)


def _check_fitting(schedule: Schedule, collective: Collective) -> None:
    """Refuse a schedule of another collective."""
    if not isinstance(schedule, Schedule):
        return
    phases = schedule.phases
    if schedule.demands is not None:
        raise UnsupportedError(f"{collective} was requested, but the schedule is for demands, which are not lowered")
    if bool(phases) == collective.in_pairs:
        raise UnsupportedError(
            f"{collective} was requested, but the schedule is a {type(schedule).__name__}; a FlowSchedule or an "
            f"AllToAllvSchedule is for {' or '.join(map(str, PAIR_COLLECTIVES))}, and nothing else is"
        )
    if collective.has_one_root and not schedule.pipelined:
        raise UnsupportedError(
            f"{collective} was requested, but a schedule in steps is for shards of all ranks; expected allgather, "
            "reduce_scatter or allreduce, or a schedule made of trees"
        )
    if phases != collective.phases:
        needs, has = (directions[0] if len(directions) == 1 else "both" for directions in (collective.phases, phases))
        raise UnsupportedError(
            f"{collective} was requested, but the schedule's {schedule.parts} are for {has}; {collective} needs {needs}"
        )


def lowered(schedule: Schedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a schedule of the collective, or the one that it stands for."""
    if isinstance(schedule, Schedule) and (lower_form := LOWERINGS.get(schedule.expanded.form)):
        return lower_form(schedule.expanded, collective, options, name)
    raise UnsupportedError(
        f"the schedule for {collective} is a {type(schedule).__name__}; only those made of trees, of steps or of "
        "paths can be lowered, and those of schedule_all_to_allv"
    )


def _lowered_trees(schedule: TreeSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    if collective.has_one_root and (roots := int((schedule.root_weights > 0).sum())) != 1:
        raise UnsupportedError(f"{collective} was requested, but {roots} ranks have data; expected one, the root")
    check_trees(schedule)
    switched, schedule = schedule, from_rank_to_rank(schedule)
    shards = shard_chunks(schedule)
    _check_size("trees", schedule, shards, options.max_count, "plan with fewer trees per root")
    ranges = tree_chunks(schedule, shards, options.max_count)
    layout = _layout(collective, shards)
    hops = ordered_hops(schedule, ranges, options.groups, switched)
    return write_trees(name, layout, ranges, hops, options)


def _lowered_steps(schedule: AnyStepSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    schedule.check()
    trees = {half.direction: step_trees(half) for half in schedule.schedules}
    shards, shares = step_shares(schedule, trees)
    _check_size("steps", schedule, shards, options.max_count, "cut shards into fewer chunks")
    layout, ranges = _layout(collective, shards), cut_shares(shares, shards, options.max_count)
    hops = merged_hops(trees, ranges, options.groups, options.max_count, options.borders(layout))
    return write_trees(name, layout, ranges, hops, options)


def _layout(collective: Collective, shards: tuple[int, ...]) -> Layout:
    uneven = () if collective.has_two_phases or len(set(shards)) == 1 else shards
    return Layout.of(collective, len(shards), sum(shards), uneven)


def _check_size(
    what: str, schedule: TreeSchedule | AnyStepSchedule, shards: tuple[int, ...], max_count: int, remedy: str
) -> None:
    """Refuse a division of the data into more chunks than fit in memory."""
    halves, chunks = len(schedule.phases), sum(shards)
    transfers = halves * (schedule.num_ranks - 1) * (chunks // max_count)
    if max(transfers, chunks) > MAX_TRANSFERS:
        raise TooLargeError(
            f"the {what} divide the data into {chunks} chunks, which takes {transfers} transfers of {max_count} chunks "
            f"each; expected at most {MAX_TRANSFERS}: {remedy}"
        )


LOWERINGS: dict[str, Callable[..., Program]] = {
    "trees": _lowered_trees,
    "steps": _lowered_steps,
    "exchange": lower_exchange,
    "flow": lower_flow,
    "staged flow": lower_staged_flow,
    "stages": lower_stages,
}
"""Lowerings by `Schedule.form`."""
