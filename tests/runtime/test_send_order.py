"""Order of sends in programs: rounds in which no two ranks send to the same one, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import collopt
from collopt.errors import UnsupportedError
from collopt.runtime import Program, lower, run_program
from collopt.runtime.execution.execute import program_of
from collopt.runtime.execution.rounds import rounds_of
from collopt.runtime.lowering.trees import Hop, from_rank_to_rank, ordered_hops
from collopt.schedules import AllToAllvSchedule, Forest, Send, StepSchedule
from collopt.schedules.message_order import sending_turns
from collopt.schedules.trees.tree_schedule import shard_chunks, tree_chunks
from collopt.topologies import Topology, dgx_a100, dgx_h100, fat_tree, torus
from collopt.topologies.symmetry.rank_groups import rank_groups
from switched_forests import random_switched_forest

NETWORKS = [dgx_a100(boxes=1), dgx_a100(boxes=2), dgx_h100(boxes=3), fat_tree(4), torus(3, 4)]


def peers(rank: int, ranks: int) -> list[int]:
    """Return all ranks but one."""
    return [other for other in range(ranks) if other != rank]


def direct_trees(ranks: int) -> Forest:
    """Every rank sends its shard to each other, as a tree."""
    return Forest.from_paths(
        ranks, 1, [(root, 1, [(root, each) for each in peers(root, ranks)]) for root in range(ranks)]
    )


def direct_steps(ranks: int) -> StepSchedule:
    """Every rank sends its shard to each other, in one step."""
    sends = [Send(0, root, 0, 1, (root, each)) for root in range(ranks) for each in peers(root, ranks)]
    return StepSchedule.from_sends(ranks, 1, sends)


def receivers(program: Program) -> list[list[int]]:
    """Return the receivers of each rank's sends, by thread block."""
    return [[block.send_peer for block in rank.thread_blocks if block.send_peer is not None] for rank in program.ranks]


@pytest.mark.parametrize("schedule", [direct_trees, direct_steps])
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_no_two_ranks_send_to_one_at_a_time(
    network: Topology, schedule: Callable[[int], Forest | StepSchedule]
) -> None:
    """Every rank's first sends, its second ones, ... have different receivers; a box sends out of it as a whole."""
    program = lower(schedule(network.num_ranks), "allgather", topology=network)
    boxes = rank_groups(network).digits[:, 0]
    for turn in zip(*receivers(program), strict=True):
        assert sorted(turn) == list(range(network.num_ranks))
        leaves = boxes != boxes[list(turn)]
        assert leaves.all() or not leaves.any()
    run_program(program, interleavings=1)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_messages_of_rounds_are_posted_in_turn(network: Topology) -> None:
    """The k-th messages of all ranks have different receivers, and come before the next ones."""
    ranks = network.num_ranks
    (only,) = rounds_of(lower(direct_steps(ranks), "allgather", max_steps=ranks, topology=network))
    ends = [(message.sender, message.receiver) for message in only.messages]
    assert len(ends) == ranks * (ranks - 1)
    for begin in range(0, len(ends), ranks):
        senders, receivers = zip(*ends[begin : begin + ranks], strict=True)
        assert sorted(senders) == sorted(receivers) == list(range(ranks))


def test_the_network_is_as_large_as_the_schedule() -> None:
    """Another topology is refused."""
    with pytest.raises(UnsupportedError, match="the topology has 16 ranks; expected the 8 ranks of the schedule"):
        lower(direct_trees(8), "allgather", topology=dgx_a100(boxes=2))
    with pytest.raises(UnsupportedError, match="the topology has 'ring'"):
        lower(direct_trees(8), "allgather", topology="ring")  # type: ignore[arg-type]


def test_a_schedule_is_lowered_for_its_network() -> None:
    """One schedule on two networks is two programs; each is made once."""

    class On:
        collective, schedule = "allgather", direct_trees(12)

        def __init__(self, topology: Topology) -> None:
            self.topology = topology

    grid, fabric = On(torus(3, 4)), On(torus(12))
    assert program_of(grid) is program_of(grid)
    assert receivers(program_of(grid)) != receivers(program_of(fabric))


def test_copies_of_a_switch_stay_together() -> None:
    """All sends of a rank that become one store follow one another, as these are one node of the order."""
    network = dgx_h100(boxes=2)
    switched = random_switched_forest(2, 8, 2, seed=5)
    schedule = from_rank_to_rank(switched)
    assert isinstance(schedule, Forest)
    ranges = tree_chunks(schedule, shard_chunks(schedule), 71)
    hops = [Hop(*row) for row in ordered_hops(schedule, ranges, rank_groups(network), switched).tolist()]
    copies = np.array([hop.copy for hop in hops])
    changes = np.flatnonzero(np.diff(copies)) + 1
    runs = copies[np.concatenate([[0], changes])]
    named = runs[runs >= 0]
    assert len(named) == len(np.unique(named)) > 0


def test_stages_take_servers_as_groups() -> None:
    """Turns inside servers of three GPUs, and between them, are permutations of the ranks."""
    traffic = np.full((6, 6), 6)
    np.fill_diagonal(traffic, 0)
    schedule = collopt.schedule_all_to_allv(traffic, servers=2, gpus_per_server=3)
    assert isinstance(schedule, AllToAllvSchedule)
    program = lower(schedule, "all_to_allv")
    run_program(program, interleavings=1)
    for turn in zip(*receivers(program), strict=True):
        assert sorted(turn) == list(range(6))


def test_programs_send_uneven_traffic_as_simulations_do() -> None:
    """On a fat tree the thread blocks of each rank are in the order of the turns, and the data is right."""
    network = fat_tree(4)
    chance = np.random.default_rng(3)
    plan = collopt.plan(network, "all_to_allv", traffic=chance.integers(0, 9, (16, 16)))
    program = lower(plan.schedule, "all_to_allv", topology=network)
    run_program(program, interleavings=1)
    transfers = plan.schedule.transfers(network)
    turns = sending_turns(plan.schedule, transfers, network, rank_groups(network))
    first: dict[tuple[int, int], int] = {}
    for sender, receiver, turn in sorted(
        zip(transfers.senders.tolist(), transfers.receivers.tolist(), turns.tolist(), strict=True)
    ):
        first.setdefault((sender, receiver), turn)
    for rank, others in enumerate(receivers(program)):
        begun = [first[rank, other] for other in others]
        assert begun == sorted(begun)
