"""Plans for trees that one switch branches: NVLS sums and copies between two barriers of all GPUs.

Every GPU stores the shard of its own rank: the sum of all inputs (``glres``) in an allreduce, its input (``gstore``) in
an allgather or broadcast.  The first barrier says that all GPUs have started, the second one that all data has arrived.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import gcd

import numpy as np

from ...errors import TooLargeError, UnsupportedError
from ...schedules import ALLGATHER, ALLREDUCE, BROADCAST, Collective, Forest, TreeSchedule
from ...topologies import Topology
from ..programs.program import Buffer
from . import executor
from .execution_plan import ExecutionPlan, Gpu, Operation, Place, SwitchGroup
from .lower import PlanOptions, finished
from .thread_blocks import SyncedBlock, batches

Round = tuple[list[int], list[int]]
"""GPUs that one signals in a round of a barrier, and those whose signals it waits for."""


def is_star_schedule(schedule: object, collective: Collective) -> bool:
    """Whether every tree leads from its root to one switch, and from there to all other ranks directly."""
    if collective not in (ALLREDUCE, ALLGATHER, BROADCAST):
        return False
    forests: Sequence[Forest] = getattr(schedule, "forests", ())
    weights = forests[0].root_weights if forests else np.zeros(0)
    if not len(weights) or (collective.is_sharded and len(set(weights.tolist())) > 1):
        return False
    return all(map(_is_star_forest, forests))


def _is_star_forest(forest: Forest) -> bool:
    ranks = forest.num_ranks
    if not len(forest.switches) or (np.diff(forest.path_starts) != 2).any():
        return False
    for root, parents in zip(forest.roots.tolist(), forest.parents, strict=True):
        above = set(np.delete(parents[:ranks], root).tolist())
        if len(above) != 1 or min(above) < ranks or parents[min(above)] != root:
            return False
    return True


def star_plan(
    schedule: TreeSchedule, collective: Collective, name: str, options: PlanOptions, instances: int = 1
) -> ExecutionPlan:
    """Make the plan of a schedule that `is_star_schedule`, with `instances` thread blocks per GPU."""
    in_place, ranks = options.in_place, schedule.num_ranks
    weights = schedule.root_weights.tolist()
    blocks = min(instances, options.max_thread_blocks)
    shards = [weight // gcd(*weights) * blocks for weight in weights]
    firsts = list(accumulate(shards, initial=0))
    group = tuple(range(ranks))
    reduces = collective is ALLREDUCE
    inputs: tuple[Buffer, ...] = ("input",) if reduces and not in_place else ()
    switches = tuple(SwitchGroup(buffer, group) for buffer in (*inputs, "output"))
    gpus = []
    for rank in range(ranks):
        rounds = _barrier(rank, ranks)
        peers = sorted({peer for both in rounds for end in both for peer in end})
        count, begin = shards[rank] // blocks, 0 if collective.is_sharded else firsts[rank]
        source: Buffer = "output" if reduces and in_place else "input"
        thread_blocks = []
        for block in range(blocks):
            ends = {peer: block * len(peers) + at for at, peer in enumerate(peers)}
            operation = Operation(
                "glres" if reduces else "gstore",
                "switch",
                (0, len(switches) - 1) if reduces else (0,),
                (Place(rank, source, begin + block * count, count),),
                (Place(rank, "output", firsts[rank] + block * count, count),),
            )
            thread_blocks.append(_block(operation if count else None, rounds, ends))
        own = shards[rank] if collective.is_sharded else firsts[-1]
        gpus.append(
            Gpu(own, firsts[-1], 0, {"memory": tuple(peers) * blocks, "port": ()}, (), tuple(thread_blocks), switches)
        )
    return finished(name, collective, tuple(gpus), options)


def _barrier(rank: int, ranks: int) -> list[Round]:
    """Rounds after which a GPU knows of all others: one of all pairs, or those of a dissemination barrier."""
    if ranks - 1 <= executor.MAX_CHANNELS:
        peers = [peer for peer in range(ranks) if peer != rank]
        return [(peers, peers)]
    rounds = [([(rank + 2**step) % ranks], [(rank - 2**step) % ranks]) for step in range((ranks - 1).bit_length())]
    if 2 * len(rounds) > executor.MAX_CHANNELS:
        raise TooLargeError(
            f"a barrier of {ranks} ranks takes {2 * len(rounds)} channels, a thread block of the MSCCL++ executor has "
            f"{executor.MAX_CHANNELS}; plan with in_network=False (--no-in-network)"
        )
    return rounds


def _block(operation: Operation | None, rounds: Sequence[Round], ends: dict[int, int]) -> tuple[Operation, ...]:
    """Operations of a thread block: barrier, operation, barrier; `ends`: its channel to each other GPU."""
    block = SyncedBlock()
    for work in (operation, None):
        for targets, sources in rounds:
            for part in batches([ends[peer] for peer in targets], executor.MAX_CHANNELS_PER_OPERATION):
                block.signal(Operation("signal", "memory", part))
            for part in batches([ends[peer] for peer in sources], executor.MAX_CHANNELS_PER_OPERATION):
                block.wait(Operation("wait", "memory", part))
        if work is not None:
            block.work(work)
    return tuple(block.operations)


ADDED_TYPES = ("int32", "uint32", "float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
"""Types that ``glres`` adds (``execution_kernel.hpp``, line 523, ``switch_channel_device.hpp``, line 70)."""


def check_sums(schedule: TreeSchedule, topology: Topology) -> None:
    """Refuse sums at switches that add nothing which the executor asks for."""
    names = topology.nodes
    used = {names[switch] for forest in schedule.forests for switch in forest.switches.tolist()}
    for limits in topology.limits:
        if limits.switch not in used:
            continue
        for what, supported, executed in (
            ("operators", limits.operators, ("sum",)),
            ("types", limits.types, ADDED_TYPES),
        ):
            if supported and not set(supported) & set(executed):
                raise UnsupportedError(
                    f"switch {limits.switch!r} has the {what} {', '.join(supported)} only, MSCCL++ adds there with "
                    f"{', '.join(executed)}; plan with in_network=False (--no-in-network)"
                )
