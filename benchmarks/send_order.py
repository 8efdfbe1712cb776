"""Order of sends: an all-to-all in rounds, and by the number of the receiver, its peer, on ports that serve in turn.

Both are simulated in the same run, 128M in one slice, with switches that store messages; times are over the bound.
"""

from __future__ import annotations

import numpy as np

import collopt
from collopt.schedules.message_order import ordered_transfers, reordered
from collopt.schedules.timed_run import Rules, TimedTransfers
from collopt.schedules.transfers import Transfers
from collopt.topologies import Topology, dgx_a100, fat_tree

SIZE = 2**27
RULES = Rules(forwarding="store-and-forward", service="arrival")


def star(ranks: int) -> Topology:
    """Ranks on one switch."""
    links = [(rank, "switch", 25) for rank in range(ranks)]
    return Topology.from_links(
        links, compute=range(ranks), switches=["switch"], bidirectional=True, name=f"switch of {ranks}"
    )


NETWORKS = (star(8), dgx_a100(boxes=2), fat_tree(4), fat_tree(8))


def microseconds(transfers: Transfers, network: Topology) -> float:
    """Time of transfers in their order."""
    return float(TimedTransfers(transfers, network, RULES, pipelined=True).run(SIZE, 1).time)


def measure() -> list[dict[str, object]]:
    """One row for each network."""
    rows: list[dict[str, object]] = []
    for network in NETWORKS:
        plan = collopt.plan(network, "all_to_all")
        in_rounds = ordered_transfers(plan.schedule, network)
        by_receiver = reordered(in_rounds, np.lexsort((in_rounds.receivers, in_rounds.senders, in_rounds.levels)))
        least = SIZE / (float(plan.bound.algbw) * 1000)
        peer, ours = microseconds(by_receiver, network), microseconds(in_rounds, network)
        rows.append(
            {
                "benchmark": "order of sends",
                "case": network.name,
                "peer_factor": peer / least,
                "factor": ours / least,
                "gain": peer / ours,
            }
        )
    return rows
