"""`StepSchedule`: pieces of shards that ranks exchange in synchronous steps, stored as arrays, and its JSON form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...errors import FileFormatError
from ...support.arrays import IntArray
from ...support.formatting import count_text
from ...support.validation import shown
from ...topologies import Topology
from ..collective import Direction
from ..fields import as_count, schedule_fields
from ..transfers import Transfers
from .sends import ShardSends, as_columns, read_sends, step_transfers
from .verify import verified_steps

COUNTS = ("num_ranks", "chunks_per_shard")
COLUMNS = ("steps", "sources", "lower", "upper", "routes")
ARRAYS = (*COLUMNS, "path_starts", "path_nodes")


class Send(NamedTuple):
    """In `step`, chunks `lower` to `upper` - 1 of the shard of rank `source` pass the ends and switches of `path`."""

    step: int
    source: int
    lower: int
    upper: int
    path: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class StepSchedule(ShardSends, kind="steps"):
    """An allgather in steps: a rank passes on chunks that it holds at the beginning of a step.

    Every rank has a shard of equal size, cut into `chunks_per_shard` chunks; a send carries an interval of them.  Node
    numbers are those of `Topology.nodes`: ranks first, then switches.  Steps count from 0.

    With `direction` "reduce" it is a reduce-scatter, described by the allgather that it reverses: of T steps, step t
    comes as number ``T - 1 - t``, a path is passed from its end to its start, and the rank at the start adds the
    arriving chunks to its own (direct-connect paper, Definition 5 and Theorem 1).

    The arrays are read-only, not copied; `collopt.schedules.verified_loads` checks them.

    Attributes
    ----------
    num_ranks : int
        Compute nodes, each the source of one shard.
    chunks_per_shard : int
        The paper's P; 1/P of a shard is the unit of `lower` and `upper`.
    steps, sources : ndarray of int64, shape (sends,)
        The step of each send, and the rank whose shard it is a part of.
    lower, upper : ndarray of int64, shape (sends,)
        The chunks that are sent: ``lower``, ..., ``upper - 1``.
    routes : ndarray of int64, shape (sends,)
        The number of the path that they pass.
    path_starts : ndarray of int64, shape (paths + 1,)
        Path ``p`` is ``path_nodes[path_starts[p]:path_starts[p + 1]]``.
    path_nodes : ndarray of int64
        Node numbers: the sending rank, the switches passed, the receiving rank.
    direction : {"broadcast", "reduce"}
        Whether data runs away from the sources or towards them.

    Examples
    --------
    Two ranks exchange their shards over links of 25 GB/s:

    >>> from collopt.topologies import complete
    >>> schedule = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> schedule
    <StepSchedule: allgather of 2 ranks, 1 step, 1 chunk per shard, 2 sends>
    >>> schedule.inverse_rate(complete(2, bandwidth=25))
    Fraction(1, 25)
    """

    num_ranks: int
    chunks_per_shard: int
    steps: IntArray
    sources: IntArray
    lower: IntArray
    upper: IntArray
    routes: IntArray
    path_starts: IntArray
    path_nodes: IntArray
    direction: Direction = "broadcast"

    @classmethod
    def from_sends(
        cls,
        num_ranks: int,
        chunks_per_shard: int,
        sends: Iterable[tuple[int, int, int, int, tuple[int, ...]]],
        direction: Direction = "broadcast",
    ) -> StepSchedule:
        """Build a schedule, not verified, from `Send` or such tuples, in any order.

        Numbers and the direction are as the attributes; paths are tuples of node numbers.
        """
        arrays = dict(zip(ARRAYS, as_columns(sends), strict=True))
        ranks, chunks = as_count(num_ranks, "num_ranks"), as_count(chunks_per_shard, "chunks_per_shard")
        return cls(ranks, chunks, **arrays, direction=direction)

    @property
    def phases(self) -> tuple[Direction, ...]:
        """That of all sends, alone."""
        return (self.direction,)

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of a shard, once for each step."""
        return (self.chunks_per_shard,) * self.num_steps

    @property
    def root_weights(self) -> IntArray:
        """Relative sizes of the shards: all equal."""
        return np.ones(self.num_ranks, dtype=np.int64)

    @property
    def total_weight(self) -> int:
        """Sum of the weights of all shards: one for each rank."""
        return self.num_ranks

    @property
    def size_text(self) -> str:
        """Such as ``"3 steps, 12 chunks per shard"``."""
        return f"{count_text(self.num_steps, 'step')}, {count_text(self.chunks_per_shard, 'chunk')} per shard"

    @property
    def least_hops(self) -> int:
        """Sends behind each other, at least, until all ranks have something of all shards; steps alone may overlap."""
        hops = np.full((self.num_ranks, self.num_ranks), self.num_ranks, dtype=np.int32)
        np.fill_diagonal(hops, 0)
        senders, receivers = (
            self.path_nodes[at][self.routes] for at in (self.path_starts[:-1], self.path_starts[1:] - 1)
        )
        order = np.argsort(self.steps, kind="stable")
        for sent in np.split(order, np.flatnonzero(np.diff(self.steps[order])) + 1):
            sources = self.sources[sent]
            np.minimum.at(hops, (sources, receivers[sent]), hops[sources, senders[sent]] + 1)
        return int(hops.max())

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Whether they are equal; how many shards there are is yet to be checked."""
        return all(weight == 1 for weight in weights)

    def sends(self) -> Iterator[Send]:
        """Yield every send, in the order of the arrays."""
        paths = list(map(tuple, self._path_lists()))
        columns = (getattr(self, name).tolist() for name in COLUMNS)
        for step, source, lower, upper, route in zip(*columns, strict=True):
            yield Send(step, source, lower, upper, paths[route])

    @property
    def most_added(self) -> Fraction:
        """Data that a rank adds in all steps."""
        if self.direction == "broadcast":
            return Fraction(0)
        heads = self.path_nodes[self.path_starts[:-1]]
        added = np.zeros(self.num_ranks, dtype=np.int64)
        np.add.at(added, heads[self.routes], self.upper - self.lower)
        return Fraction(int(added.max()), self.chunks_per_shard)

    def to_json(self) -> dict[str, Any]:
        """Describe it by lists and integers, ready for `json.dumps`; sends are columns, as there can be millions."""
        return {
            "kind": "steps",
            "direction": self.direction,
            **{name: getattr(self, name) for name in COUNTS},
            **self._columns_to_json(COLUMNS),
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> StepSchedule:
        """Build the schedule in steps that a decoded JSON value describes; only its form is checked."""
        fields = schedule_fields(data, "steps", ("kind", "direction", *COUNTS, "paths", *COLUMNS), where)
        if fields["direction"] not in ("broadcast", "reduce"):
            raise FileFormatError(
                f"{where}: field schedule.direction is {shown(fields['direction'])}; expected 'broadcast' or 'reduce'"
            )
        return cls(**read_sends(fields, COUNTS, COLUMNS, where), direction=fields["direction"])

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the sends; see `verified_steps`."""
        return verified_steps(self, topology)

    def transfers(self, topology: Topology) -> Transfers:
        """List the sends as transfers."""
        return step_transfers([self], topology)

    def figures(self, topology: Topology) -> dict[str, Any]:  # noqa: ARG002
        """Numbers of steps, chunks and sends."""
        chunks = [self.chunks_per_shard]
        return {"num_steps": self.num_steps, "chunks_per_shard": chunks, "num_sends": self.num_sends}

    def __repr__(self) -> str:
        kind = "allgather" if self.direction == "broadcast" else "reduce-scatter"
        return (
            f"<StepSchedule: {kind} of {self.num_ranks} ranks, {self.size_text}, {count_text(self.num_sends, 'send')}>"
        )
