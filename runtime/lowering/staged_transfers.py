"""Which chunks of an `AllToAllvSchedule` go by which ranks, and when.

A chunk is the largest amount of which all pieces of the schedule are multiples, so the program moves exactly the bytes
that the schedule says.  With bytes dealt out evenly that is often a single one, so there is a limit, `MAX_CHUNKS`.

Steps.  Stage t between servers is step t + 1.  What proxies send in it is handed to them in step t, and what peers got
in it for others of their server goes there in step t + 2.  That is the pipeline of
`collopt.schedules.fast.two_tier_cost` that balances by stage.  Balancing goes on beside the stages, and scratch never
holds all that is handed over: in any step there are what a rank takes in as a proxy and sends as one, and the same as a
peer, each of one stage; and gaps between them.  What stays in a server goes beside the first stage.

Stages follow one another: a rank begins to send, or receive, in one once it has finished the one before.  Otherwise
several could share a link between servers, which stages are there to avoid.  These waits are not about data, so
`collopt.runtime.execute`, whose rounds go by data alone, does not keep them; `collopt.runtime.all_to_all_single` runs
the schedule in its stages.
"""

from __future__ import annotations

from math import gcd, lcm

import numpy as np

from ...errors import UnsupportedError
from ...schedules import AllToAllvSchedule, Collective
from ..programs.layout import Layout
from .flow_transfers import FlowStrand, pair_layout
from .tree_transfers import pieces

MAX_CHUNKS = 2**22
"""Chunks of a program: every check, and every rank that runs it, looks at each of them."""
LOCAL_STEP = 1
"""That of the first stage."""


def staged_layout(schedule: AllToAllvSchedule, collective: Collective) -> tuple[Layout, int]:
    """Lay out what ranks have for each other, and say how much a chunk is.

    Units: result in bytes.
    """
    amounts = schedule.traffic.ravel().tolist()
    parts = (schedule.pieces(server) for server in range(schedule.servers))
    chunk = gcd(*amounts, *(int(np.gcd.reduce(column)) for each in parts for column in (each.first, each.length)))
    if not chunk:
        raise UnsupportedError(
            "the schedule's traffic is 0 everywhere, so there is nothing to send; expected some traffic"
        )
    if sum(amounts) // chunk > MAX_CHUNKS:
        raise UnsupportedError(
            f"parts of the schedule are multiples of {chunk}, of {sum(amounts)} in all, which makes "
            f"{sum(amounts) // chunk} chunks; expected at most {MAX_CHUNKS}: schedule larger units, such as tokens for "
            f"bytes, or traffic rounded up to multiples of {_coarser(schedule, sum(amounts))}"
        )
    return pair_layout(collective, schedule.num_ranks, [amount // chunk for amount in amounts]), chunk


def _coarser(schedule: AllToAllvSchedule, total: int) -> int:
    """Find multiples that make few enough chunks.

    All from one server for another is dealt out evenly to pairs of their parts, and of each of these to the GPUs of a
    part.
    """
    m = schedule.gpus_per_server
    shares = lcm(*(one // m * (other // m) * m for one in schedule.sizes for other in schedule.sizes))
    return -(-2 * total // MAX_CHUNKS) * shares


def staged_strands(schedule: AllToAllvSchedule, layout: Layout, chunk: int, max_count: int) -> list[FlowStrand]:
    """Give every piece of the schedule its chunks and ranks, in strands of at most `max_count`, as equal as can be."""
    ranks = schedule.num_ranks
    found: list[FlowStrand] = []
    for server in range(schedule.servers):
        each = schedule.pieces(server)
        columns = (each.stage, each.origin, each.proxy, each.peer, each.final, each.first, each.length)
        for stage, origin, proxy, peer, final, first, length in zip(*(one.tolist() for one in columns), strict=True):
            hops = [(stage + at, *ends) for at, ends in enumerate(((origin, proxy), (proxy, peer), (peer, final)))]
            steps, senders, receivers = zip(*(hop for hop in hops if hop[1] != hop[2]), strict=True)
            begin = layout.offsets[origin * ranks + final] + first // chunk
            found += [
                FlowStrand(*piece, (*senders, receivers[-1]), steps)
                for piece in pieces(begin, begin + length // chunk, max_count)
            ]
    inside = (schedule.homes[:, None] == schedule.homes) & ~np.eye(ranks, dtype=np.bool_)
    for source, destination in np.argwhere(inside & (schedule.traffic > 0)).tolist():
        begin, end = layout.offsets[source * ranks + destination : source * ranks + destination + 2]
        found += [FlowStrand(*piece, (source, destination), (LOCAL_STEP,)) for piece in pieces(begin, end, max_count)]
    return found
