"""Which slices links take first."""

from itertools import pairwise

import numpy as np
import pytest

import collopt
from collopt.runtime import simulate
from collopt.schedules import Allreduce, Forest
from collopt.schedules.timing.message_order import transfers_ahead
from collopt.topologies import dgx_a100, ring, torus


def row(length: int) -> collopt.Topology:
    """Ranks in a row."""
    names = [f"r{place}" for place in range(length)]
    links = [(tail, head, 1) for tail, head in pairwise(names)]
    return collopt.Topology.from_links(links, compute=names, bidirectional=True)


def test_transfers_ahead_are_those_of_the_longest_branch() -> None:
    """Rank 1 of a row of four counts its way to ranks 2 and 3, not to rank 0."""
    forest = Forest.from_paths(4, 1, [(1, 1, [(1, 0), (1, 2), (2, 3)])], root_weights=[0, 1, 0, 0])
    transfers = forest.transfers(row(4))
    ahead = dict(zip(transfers.receivers.tolist(), transfers_ahead(transfers).tolist(), strict=True))
    assert ahead == {0: 0, 2: 1, 3: 0}


def test_sums_go_on_at_the_root() -> None:
    """With the root in the middle of three, one transfer is ahead of each that adds, and the turn is none."""
    star = Forest.from_paths(3, 1, [(1, 1, [(1, 0), (1, 2)])], root_weights=[0, 1, 0])
    inwards = Forest.from_paths(3, 1, [(1, 1, [(1, 0), (1, 2)])], root_weights=[0, 1, 0], direction="reduce")
    transfers = Allreduce(inwards, star).transfers(row(3))
    ahead = transfers_ahead(transfers)
    crosses = np.diff(transfers.hop_starts) > 0
    assert ahead[crosses & transfers.adds].tolist() == [1, 1]
    assert ahead[crosses & ~transfers.adds].tolist() == [0, 0]


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
@pytest.mark.parametrize("slices", [2, 16, 64])
def test_links_of_a_ring_are_never_idle(collective: str, slices: int) -> None:
    """Seven eighths of 1 MiB over two links, and one latency at the end, however fine the slices."""
    plan = collopt.plan(ring(8, bandwidth=50, latency="0.5"), collective)
    expected = 7 * 2**20 / 8 / 2 / 50_000 + 0.5
    assert simulate(plan, "1M", slices).microseconds == pytest.approx(expected, rel=1e-12)


def test_sums_take_as_long_as_what_they_are_the_reversal_of() -> None:
    """A reduce-scatter on a torus and in boxes takes as long as its allgather."""
    for topology in (torus(4, 4, bandwidth=50, latency="0.5"), dgx_a100(boxes=2)):
        gather, scatter = (collopt.plan(topology, name) for name in ("allgather", "reduce_scatter"))
        for size in ("1M", "256M"):
            longer = simulate(scatter, size, 16).microseconds
            assert longer == pytest.approx(simulate(gather, size, 16).microseconds, rel=0.05)
