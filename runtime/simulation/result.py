"""What a simulation found."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...schedules import Collective
from ...support.arrays import IntArray
from ...support.formatting import bandwidth_text, time_text
from ...topologies import Topology
from .transfers import PieceTimes, Transfers

if TYPE_CHECKING:
    import pandas as pd

NS_PER_US = 1000


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """One run of a plan, event by event.

    Attributes
    ----------
    topology : Topology
    collective : Collective
    num_bytes : int
        As nccl-tests counts them.
    slices : int
        Pieces that each transfer was cut into.
    time : Fraction
        µs until the last byte came.
    transfers : Transfers
        What was sent.
    times : PieceTimes
        Of one piece on each hop.
    starts : ndarray of int64, shape (hops, slices)
        When each piece began to enter the link, in ticks.
    """

    topology: Topology
    collective: Collective
    num_bytes: int
    slices: int
    time: Fraction
    transfers: Transfers
    times: PieceTimes
    starts: IntArray

    @property
    def microseconds(self) -> float:
        """Time until the last byte came."""
        return float(self.time)

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in GB/s as in nccl-tests: bytes over time."""
        return float(self.num_bytes / (self.time * NS_PER_US))

    @property
    def busbw(self) -> float:
        """Bus bandwidth in GB/s as in nccl-tests; see `collopt.schedules.bus_factor`."""
        return self.algbw * float(self.collective.bus_factor(self.topology.num_ranks))

    @property
    def num_events(self) -> int:
        """Pieces that entered links."""
        return self.starts.size

    @property
    def link_busy(self) -> pd.DataFrame:
        """One row per link.

        ``tail``, ``head``, ``bytes`` that it carried, ``pieces``, ``busy_us``, and ``share`` of the whole time for
        which it was busy.
        """
        import pandas as pd

        links = len(self.topology.links)
        busy, data = np.zeros(links), np.zeros(links)
        np.add.at(busy, self.transfers.hop_links, self._microseconds(self.times.ticks * self.slices))
        np.add.at(data, self.transfers.hop_links, self._bytes[self.transfers.hop_owners] * self.slices)
        return pd.DataFrame(
            {
                "tail": [link.tail for link in self.topology.links],
                "head": [link.head for link in self.topology.links],
                "bytes": data,
                "pieces": np.bincount(self.transfers.hop_links, minlength=links) * self.slices,
                "busy_us": busy,
                "share": busy / self.microseconds,
            }
        )

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the events.

        Returns
        -------
        DataFrame
            One row for each piece that entered a link, by time: ``start_us`` and ``end_us``, between which it kept the
            link busy; the link's ``tail`` and ``head``; ``sender`` and ``receiver``, the ranks between which it is on
            its way; the number of the ``transfer`` and of the ``slice``; ``bytes``.
        """
        import pandas as pd

        hops = np.repeat(np.arange(len(self.starts)), self.slices)
        owners = self.transfers.hop_owners[hops]
        starts = self.starts.ravel()
        links, names = self.transfers.hop_links[hops], np.array(self.topology.nodes, dtype=object)
        frame = pd.DataFrame(
            {
                "start_us": self._microseconds(starts),
                "end_us": self._microseconds(starts + self.times.ticks[hops]),
                "tail": names[self.topology.arrays.tails[links]],
                "head": names[self.topology.arrays.heads[links]],
                "sender": names[self.transfers.senders[owners]],
                "receiver": names[self.transfers.receivers[owners]],
                "transfer": owners,
                "slice": np.tile(np.arange(self.slices), len(self.starts)),
                "bytes": self._bytes[owners],
            }
        )
        order = np.lexsort((frame["slice"], frame["transfer"], links, starts))
        return frame.iloc[order].reset_index(drop=True)

    @property
    def _bytes(self) -> npt.NDArray[np.float64]:
        """Bytes of one piece of each transfer."""
        return self.transfers.amounts.astype(np.float64) * float(self.num_bytes * self.transfers.unit / self.slices)

    def _microseconds(self, ticks: IntArray) -> npt.NDArray[np.float64]:
        return ticks.astype(np.float64) * float(self.times.tick)

    def __repr__(self) -> str:
        """One line in angle brackets."""
        return (
            f"<Simulation: {self.collective} of {self.num_bytes} bytes on {self.topology.name}, {self.slices} slices: "
            f"{time_text(self.time)}, {bandwidth_text(self.algbw)}>"
        )
