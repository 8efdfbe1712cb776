"""Keeps what is sent over a link in the order of steps.

Runtimes send over a connection in the order of the program: what is ready does not overtake what belongs to an earlier
step and is not.  So for each link and step there is a transfer over no link, a *gate*, that waits for all that the
sends over this link in this step wait for, and for the gate of the link's step before; and the sends wait for the
latter.  The gate says nothing of when a send has come, only that it could be sent.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .transfers import Transfers

__all__ = ["with_gates"]

IntArray = npt.NDArray[np.int64]


def with_gates(transfers: Transfers) -> Transfers:
    """Add the gates.

    Parameters
    ----------
    transfers : Transfers
        Whose levels are steps.

    Returns
    -------
    Transfers
        Those given, then the gates, with the sender of the sends as both ends.
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
    held = sends[np.isin(gate_of_send, follows)]
    opens = gate_of[transfers.after] >= 0
    owner = np.empty(len(gates), dtype=np.int64)
    owner[gate_of_send] = transfers.senders[sends]
    nothing = np.zeros(len(gates), dtype=np.int64)
    return replace(
        transfers,
        senders=np.concatenate([transfers.senders, owner]),
        receivers=np.concatenate([transfers.receivers, owner]),
        firsts=np.concatenate([transfers.firsts, nothing]),
        amounts=np.concatenate([transfers.amounts, nothing]),
        levels=np.concatenate([transfers.levels, gates % span]),
        adds=np.concatenate([transfers.adds, nothing.astype(np.bool_)]),
        hop_starts=np.concatenate([transfers.hop_starts, nothing + transfers.hop_starts[-1]]),
        before=np.concatenate(
            [transfers.before, transfers.before[opens], follows - 1 + count, gate_of[held] - 1 + count]
        ),
        after=np.concatenate([transfers.after, gate_of[transfers.after[opens]] + count, follows + count, held]),
    )
