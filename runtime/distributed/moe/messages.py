"""Messages of rows between the ranks of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ....errors import ProgramError
from ....support.arrays import IntArray
from ..calls.agreement import first_line, post, wait_for_all
from ..calls.arguments import import_torch
from ..calls.call_queue import TAG

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch


class Peers(NamedTuple):
    """A group, how long messages may take, and the bytes of rows that this rank has sent to each so far."""

    group: Any
    timeout: float | None
    sent: IntArray

    def exchange(
        self, like: torch.Tensor, sends: Iterable[tuple[int, torch.Tensor]], takes: Iterable[tuple[int, int]], what: str
    ) -> list[torch.Tensor]:
        """Send rows to peers, and return so many of others, of the width of `like`; own ones stay as they are."""
        rank = self.group.rank()
        messages: list[tuple[int, bool, torch.Tensor]] = []
        own, contents = [], []
        for peer, rows in sends:
            if peer == rank:
                own.append(rows)
            else:
                messages.append((peer, True, rows))
                self.sent[peer] += rows.numel() * rows.element_size()
        for peer, count in takes:
            if peer == rank:
                contents.append(own.pop(0))
            else:
                contents.append(like.new_empty(count, like.shape[1]))
                messages.append((peer, False, contents[-1]))
        try:
            wait_for_all(post(self.group, TAG, messages), self.timeout)
        except (RuntimeError, ValueError) as error:
            raise ProgramError(f"rank {rank} could not finish {what}: {first_line(error)}") from error
        return contents

    def swap(self, rows: IntArray, device: torch.device) -> IntArray:
        """Send row r to rank r, and return the rows for this rank; they do not count as sent."""
        torch, _ = import_torch()
        given = torch.from_numpy(rows).to(device)
        others = range(len(rows))
        uncounted = self._replace(sent=self.sent.copy())
        sends, takes = [(peer, given[peer : peer + 1]) for peer in others], [(peer, 1) for peer in others]
        found: IntArray = torch.cat(uncounted.exchange(given, sends, takes, "counts of relays")).cpu().numpy()
        return found
