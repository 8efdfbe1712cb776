"""Transfers between ranks with dependencies and routes, and the order of steps on links."""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..support.arrays import IntArray


@dataclass(frozen=True, eq=False)
class Transfers:
    """All transfers of a schedule."""

    senders: IntArray  # int64 (transfers,): ranks; the receiver itself where a sum turns at its root
    receivers: IntArray  # int64 (transfers,)
    firsts: IntArray  # int64 (transfers,): data in units; in an all-to-all(v), of the path's source
    amounts: IntArray  # int64 (transfers,): how many units from the first on
    unit: Fraction  # One unit as a share of all the data, as nccl-tests counts it
    levels: IntArray  # int64 (transfers,): The step, or hops between ranks that have to come before
    adds: npt.NDArray[np.bool_]  # bool (transfers,): Whether the receiver adds the data to its own
    hop_starts: IntArray  # int64 (transfers + 1,): transfer t has hop_links[hop_starts[t]:hop_starts[t + 1]]
    hop_links: IntArray  # Places in ``topology.links``
    before: IntArray  # int64 (waits,): Transfer ``after[i]`` waits for transfer ``before[i]``
    after: IntArray  # int64 (waits,)

    @property
    def hop_owners(self) -> IntArray:
        """Transfer of each hop."""
        return np.repeat(np.arange(len(self.senders)), np.diff(self.hop_starts))

    def link_loads(self, num_links: int) -> IntArray:
        """Units of data on each link, shape (links,)."""
        loads = np.zeros(num_links, dtype=np.int64)
        np.add.at(loads, self.hop_links, self.amounts[self.hop_owners])
        return loads


class Part(NamedTuple):
    """Transfers in one direction: columns of `Transfers`, and their paths."""

    senders: IntArray
    receivers: IntArray
    firsts: IntArray
    amounts: IntArray
    levels: IntArray
    adds: bool
    paths: IntArray  # int64 (transfers,): number of the path that each takes, -1 for none
    routes: tuple[IntArray, IntArray]  # links of all paths, and where each path begins there


def in_direction(links: IntArray, starts: IntArray, reverse: bool) -> tuple[IntArray, IntArray]:
    """Links of paths in the order of data, reversed if `reverse`."""
    if not reverse:
        return links, starts
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return links[starts[owners] + starts[owners + 1] - 1 - np.arange(len(links))], starts


def root_transfers(roots: IntArray, firsts: IntArray, amounts: IntArray, levels: IntArray) -> Part:
    """One transfer per range from its root to itself, over no link."""
    no_paths = (np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
    return Part(roots, roots, firsts, amounts, levels, False, np.full_like(roots, -1), no_paths)


def concatenate(parts: list[Part], unit: Fraction, waits: list[IntArray]) -> Transfers:
    """Concatenate transfers; `waits`: int64 (2, waits) each."""
    hops = [gather_paths(*part.routes, part.paths) for part in parts]
    lengths = np.concatenate([length for length, _ in hops])
    pairs = np.concatenate(waits, axis=1)
    columns = ("senders", "receivers", "firsts", "amounts", "levels")
    columns_of_all = {
        name: np.concatenate([getattr(part, name) for part in parts]).astype(np.int64, copy=False) for name in columns
    }
    return Transfers(
        **columns_of_all,
        unit=unit,
        adds=np.concatenate([np.full(len(part.senders), part.adds) for part in parts]),
        hop_starts=np.array(list(accumulate(lengths.tolist(), initial=0)), dtype=np.int64),
        hop_links=np.concatenate([links for _, links in hops]),
        before=pairs[0],
        after=pairs[1],
    )


def gather_paths(links: IntArray, starts: IntArray, paths: IntArray) -> tuple[IntArray, IntArray]:
    """Lengths and links of the paths with these numbers, concatenated; -1 is a path without links."""
    counts = np.where(paths >= 0, np.append(np.diff(starts), 0)[paths], 0)
    firsts = np.repeat(np.append(starts[:-1], 0)[paths] - (np.cumsum(counts) - counts), counts)
    return counts, links[firsts + np.arange(len(firsts))]


def add_step_gates(transfers: Transfers) -> Transfers:
    """Keep the transfers on a link in the order of steps, by a transfer without links (a gate) per link and step.

    A gate waits for all that the sends over its link in its step wait for, and for the gate of the link's step before;
    the sends wait for the latter.
    """
    count = len(transfers.senders)
    sends = np.flatnonzero(np.diff(transfers.hop_starts))
    first_links = transfers.hop_links[transfers.hop_starts[sends]]
    span = int(transfers.levels.max()) + 1
    gates, gate_of_send = np.unique(first_links * span + transfers.levels[sends], return_inverse=True)
    gate_of = np.full(count, -1, dtype=np.int64)
    gate_of[sends] = gate_of_send
    # Gates of one link are next to each other, by step.
    follows = np.flatnonzero(gates[1:] // span == gates[:-1] // span) + 1
    gated = sends[np.isin(gate_of_send, follows)]
    opens = gate_of[transfers.after] >= 0
    owner = np.empty(len(gates), dtype=np.int64)
    owner[gate_of_send] = transfers.senders[sends]
    nothing = np.zeros(len(gates), dtype=np.int64)
    added = {
        "senders": owner,
        "receivers": owner,
        "firsts": nothing,
        "amounts": nothing,
        "levels": gates % span,
        "adds": nothing.astype(np.bool_),
        "hop_starts": nothing + transfers.hop_starts[-1],
        "before": np.concatenate([transfers.before[opens], follows - 1 + count, gate_of[gated] - 1 + count]),
        "after": np.concatenate([gate_of[transfers.after[opens]] + count, follows + count, gated]),
    }
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(transfers, name), column]) for name, column in added.items()
    }
    return replace(transfers, **columns)
