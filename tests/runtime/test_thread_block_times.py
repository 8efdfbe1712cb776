"""Time of programs whose thread blocks finish one transfer before the next, slice by slice, on first-come ports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import collopt
from collopt.runtime.programs.channels import assign_channels
from collopt.schedules.message_order import ordered_transfers
from collopt.schedules.timed_run import Rules, TimedTransfers
from collopt.schedules.transfers import Transfers
from collopt.topologies import LINKS_ONLY, dgx_a100, dgx_h100

SIZE = 2**28


def in_slices(transfers: Transfers, slices: int) -> Transfers:
    """Make transfers of their own of all slices, slice after slice."""
    count, waits = len(transfers.senders), np.repeat(np.arange(slices), len(transfers.before)) * len(transfers.senders)
    names = ("senders", "receivers", "firsts", "amounts", "adds", "hop_links")
    return replace(
        transfers,
        **{name: np.tile(getattr(transfers, name), slices) for name in names},
        unit=transfers.unit / slices,
        levels=np.zeros(count * slices, dtype=np.int64),
        hop_starts=np.concatenate([[0], np.cumsum(np.tile(np.diff(transfers.hop_starts), slices))]),
        before=np.tile(transfers.before, slices) + waits,
        after=np.tile(transfers.after, slices) + waits,
    )


def in_blocks(transfers: Transfers, blocks: np.ndarray) -> Transfers:
    """Let each transfer wait for the one before it in its thread block."""
    order = np.argsort(blocks, kind="stable")
    same = blocks[order][1:] == blocks[order][:-1]
    before = np.concatenate([transfers.before, order[:-1][same]])
    return replace(transfers, before=before, after=np.concatenate([transfers.after, order[1:][same]]))


def over_bound(network: collopt.Topology, channels: int) -> float:
    """Time of an allgather in 16 slices over its time at the rate of the bound."""
    plan = collopt.plan(network, "allgather", in_network=False)
    transfers = ordered_transfers(plan.schedule, network)
    ends = list(zip(transfers.senders.tolist(), transfers.receivers.tolist(), strict=True))
    chosen = np.array(assign_channels(ends, transfers.amounts.tolist(), 10**6, channels))
    blocks = (transfers.senders * network.num_ranks + transfers.receivers) * (chosen.max() + 1) + chosen
    program = in_blocks(in_slices(transfers, 16), np.tile(blocks, 16))
    rules = Rules(LINKS_ONLY, forwarding="store-and-forward", service="arrival")
    run = TimedTransfers(program, network, rules, pipelined=True).run(SIZE, 1)
    return float(run.time * 1000 * plan.bound.algbw / SIZE)


@pytest.mark.parametrize(
    "network", [dgx_a100(boxes=2), pytest.param(dgx_h100(boxes=4), marks=pytest.mark.slow)], ids=str
)
def test_a_second_channel_helps_many_trees(network: collopt.Topology) -> None:
    """With one, thread blocks that wait for what they pass on hold back the rank's own slices."""
    assert over_bound(network, 1) > 1.3
    assert over_bound(network, 2) < 1.25
