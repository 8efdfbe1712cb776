"""Transfers between ranks that wait for each other, each with its way through the network.

What `collopt.runtime.lowering.lower` makes of schedules for machines, but with links, without buffers, and for flows
as well: this is what the simulator runs and what execution traces list.  `collopt.runtime.simulation.tree_transfers`
and `collopt.runtime.simulation.step_transfers` make it of schedules.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Part", "Transfers", "gathered", "in_direction", "joined"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Transfers:
    """Everything that is sent in a schedule.

    Attributes
    ----------
    senders, receivers : ndarray of int64, shape (transfers,)
        Ranks; the same one where a sum of all ranks turns at its root, which sends nothing.
    firsts, amounts : ndarray of int64, shape (transfers,)
        Which of the data, in units of it: ``firsts``, ..., ``firsts + amounts - 1``.  In an all-to-all(v), of what the
        first rank of the path has for others.
    unit : Fraction
        What one unit is of all the data, as nccl-tests counts it.
    levels : ndarray of int64, shape (transfers,)
        The step, or hops between ranks that have to come before.
    adds : ndarray of bool, shape (transfers,)
        Whether the receiver adds what comes to what it has.
    hop_starts : ndarray of int64, shape (transfers + 1,)
        Transfer ``t`` crosses links ``hop_links[hop_starts[t]:hop_starts[t + 1]]``, in this order.
    hop_links : ndarray of int64
        Places in ``topology.links``.
    before, after : ndarray of int64, shape (waits,)
        Transfer ``after[i]`` waits for transfer ``before[i]``.
    """

    senders: IntArray
    receivers: IntArray
    firsts: IntArray
    amounts: IntArray
    unit: Fraction
    levels: IntArray
    adds: npt.NDArray[np.bool_]
    hop_starts: IntArray
    hop_links: IntArray
    before: IntArray
    after: IntArray

    @property
    def hop_owners(self) -> IntArray:
        """The transfer that each hop belongs to."""
        return np.repeat(np.arange(len(self.senders)), np.diff(self.hop_starts))


class Part(NamedTuple):
    """Transfers of one direction: columns of `Transfers`, and the number of the path that each takes, -1 for none.

    `routes` holds the links of all paths, and where each path begins there.
    """

    senders: IntArray
    receivers: IntArray
    firsts: IntArray
    amounts: IntArray
    levels: IntArray
    adds: bool
    paths: IntArray
    routes: tuple[IntArray, IntArray]


def in_direction(links: IntArray, starts: IntArray, reverse: bool) -> tuple[IntArray, IntArray]:
    """Links of paths in the order in which data crosses them, which is the opposite one if `reverse`."""
    if not reverse:
        return links, starts
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return links[starts[owners] + starts[owners + 1] - 1 - np.arange(len(links))], starts


def joined(parts: list[Part], unit: Fraction, waits: list[IntArray]) -> Transfers:
    """Put transfers one after the other.

    Parameters
    ----------
    parts : list of Part
        In the order in which transfers are numbered in `waits`.
    unit : Fraction
        As of `Transfers`.
    waits : list of ndarray of int64, shape (2, waits)
        Pairs of transfers, of which the second waits for the first.

    Returns
    -------
    Transfers
    """
    hops = [gathered(*part.routes, part.paths) for part in parts]
    lengths = np.concatenate([length for length, _ in hops])
    pairs = np.concatenate(waits, axis=1)
    columns = ("senders", "receivers", "firsts", "amounts", "levels")
    whole = {
        name: np.concatenate([getattr(part, name) for part in parts]).astype(np.int64, copy=False) for name in columns
    }
    return Transfers(
        **whole,
        unit=unit,
        adds=np.concatenate([np.full(len(part.senders), part.adds) for part in parts]),
        hop_starts=np.array(list(accumulate(lengths.tolist(), initial=0)), dtype=np.int64),
        hop_links=np.concatenate([links for _, links in hops]),
        before=pairs[0],
        after=pairs[1],
    )


def gathered(links: IntArray, starts: IntArray, paths: IntArray) -> tuple[IntArray, IntArray]:
    """Lengths and links of the paths with these numbers, one after the other; -1 is a path without links."""
    counts = np.where(paths >= 0, np.append(np.diff(starts), 0)[paths], 0)
    firsts = np.repeat(np.append(starts[:-1], 0)[paths] - (np.cumsum(counts) - counts), counts)
    return counts, links[firsts + np.arange(len(firsts))]
