"""Plans as Chakra execution traces, from which ASTRA-sim runs custom collectives; see docs/reference/chakra-et.md.

A send depends on the receives, or additions, that bring what it sends; control dependencies keep the sends of each link
in order, through computations of 1 ns: a send need not wait for the messages of those before it to arrive.
"""

import logging
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import ALLGATHER, as_bytes
from ...schedules.message_order import ordered_transfers
from ...schedules.timed_run import Rules, TimedSchedule
from ...schedules.transfers import Transfers
from ...support.files import write_all_whole
from ...support.formatting import count_text
from ...support.validation import as_kind, as_path, as_whole, shown
from ...topologies import Topology
from ..lowering.trees import refuse_relays, without_switches
from ..programs.program import check_choice, check_counts
from .chakra_replay import replayed_paths
from .chakra_trace import Attribute, NodeKind, Trace, TraceNode, trace_bytes

__all__ = ["export_chakra_et", "plan_traces"]

logger = logging.getLogger("collopt.runtime")
Dependencies = Literal["control", "data"]

MAX_MESSAGES = 2**22
MAX_CHUNKS = 2**31
CHUNK_COUNTS = ("msg_chunk_idx", "msg_chunk_cnt", "total_chunk_cnt")
"""First chunk of a message, how many, and how many there are; with ``collopt_`` in front where those are -1."""


def export_chakra_et(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    size: int | str,
    slices: int = 1,
    reduce_us: int = 0,
    order: Dependencies = "control",
) -> None:
    """Write a plan as execution traces, one file per rank (``PATH.0.et``, ``PATH.1.et``, ...), all or none.

    Raises `UnsupportedError` as `plan_traces` does, or if the path ends in no name, so that the files would be hidden;
    `OSError` if a file cannot be written, leaving all as they were.

    Parameters
    ----------
    plan : Plan
        With any schedule.
    path : path
        What the file names begin with; what ASTRA-sim's ``all-reduce-implementation-custom`` and the like take.
    size, slices, reduce_us, order : int or str
        As for `plan_traces`.
    """
    prefix = as_path(path)
    if prefix.name in ("", ".."):
        raise UnsupportedError(f"the path is {shown(path)}, which names no file; expected such as traces/plan")
    traces = plan_traces(plan, size, slices=slices, reduce_us=reduce_us, order=order)
    # Traces of two plans together would make ranks wait for each other for ever.
    write_all_whole({f"{prefix}.{rank}.et": trace_bytes(trace) for rank, trace in enumerate(traces)})


def plan_traces(
    plan: Plan, size: int | str, *, slices: int = 1, reduce_us: int = 0, order: Dependencies = "control"
) -> tuple[Trace, ...]:
    """Make the execution traces of a plan, by rank.

    Raises `UnsupportedError` if an argument is not understood, a message would have no bytes, or there would be more
    than 2^22 messages.

    Parameters
    ----------
    plan : Plan
        With any schedule; planned again where switches copy or add, and the log says what that costs.
    size : int or str
        Bytes in all, as nccl-tests counts them, such as ``"1M"``.
    slices : int
        Messages that the data of each tree, path or send is cut into, so that ranks forward the first before the last
        came.
    reduce_us : int
        µs that each addition takes; ASTRA-sim treats 0 as 1 ns.
    order : {"control", "data"}
        Dependencies that keep the sends of each link in order.  Versions of ASTRA-sim before August 2025 ignore control
        dependencies.

    Examples
    --------
    >>> import collopt
    >>> plan = collopt.plan(collopt.topologies.complete(2), "broadcast", root=0)
    >>> [node.name for node in plan_traces(plan, "1K", slices=2)[0].nodes]
    ['send transfer 0 slice 0 to 1', 'turn', 'send transfer 0 slice 1 to 1']
    """
    as_kind(plan, Plan, "the plan")
    plan = without_switches(plan, "a Chakra trace")
    refuse_relays(plan.schedule, plan.topology, "a Chakra trace")
    slices = as_whole(slices, "slices")
    check_counts({"reduce_us": reduce_us}, minimum=0)
    check_choice("order", order, ("control", "data"))
    num_bytes, transfers = as_bytes(size), ordered_transfers(plan.schedule, plan.topology)
    if len(transfers.senders) * slices > MAX_MESSAGES:
        count = f"{len(transfers.senders)} transfers in {slices} slices"
        raise UnsupportedError(
            f"{count} are more than {MAX_MESSAGES} messages; use fewer slices, or fewer trees or chunks"
        )
    if rerouted := _count_other_paths(transfers, plan.topology):
        logger.warning(
            "%d of %d transfers do not take the path that replays and other simulators choose, as traces name none: of "
            "the shortest paths the first; their times differ from those of the plan",
            rerouted,
            len(transfers.senders),
        )
    return _Writer(plan, transfers, num_bytes, slices, reduce_us, order).traces()


def _count_other_paths(transfers: Transfers, topology: Topology) -> int:
    """Count the transfers whose links are not those that replays take between the same ranks."""
    links_between, links = replayed_paths(topology), transfers.hop_links.tolist()
    starts, pairs = (
        transfers.hop_starts.tolist(),
        zip(transfers.senders.tolist(), transfers.receivers.tolist(), strict=True),
    )
    return sum(links[starts[number] : starts[number + 1]] != links_between(*pair) for number, pair in enumerate(pairs))


@dataclass
class _Writer:
    """Writes the nodes of all ranks, message by message, in the order in which they are sent."""

    plan: Plan
    transfers: Transfers
    num_bytes: int
    slices: int
    reduce_us: int
    order: Dependencies

    def __post_init__(self) -> None:
        self.nodes: list[list[TraceNode]] = [[] for _ in range(self.plan.topology.num_ranks)]
        self.tags: Counter[tuple[int, int]] = Counter()
        # The node of the receiver after which a slice of a transfer is there.
        self.arrived: dict[tuple[int, int], int] = {}
        # What the last send over a link came after, by the link.
        self.last: dict[int, tuple[int, ...]] = {}
        self.before = _before(self.transfers)

    @cached_property
    def total(self) -> int:
        """Total number of chunks if newer versions of ASTRA-sim compute the right bytes from it, otherwise -1."""
        ranks, total = self.plan.topology.num_ranks, self.slices / self.transfers.unit
        # Of an allgather they are given the bytes of one rank, and divide these by the chunks of all first.
        own = Fraction(self.num_bytes, ranks if self.plan.collective is ALLGATHER else 1)
        if total.denominator != 1 or total >= MAX_CHUNKS or total % ranks or own % total:
            return -1
        return int(total)

    def traces(self) -> tuple[Trace, ...]:
        """Create the traces of all ranks."""
        for transfer, piece in _send_order(self.plan, self.num_bytes, self.slices):
            self._add(transfer, piece)
        about = (
            Attribute("collective", "string", str(self.plan.collective)),
            Attribute("topology", "string", self.plan.topology.name),
            Attribute("planner", "string", self.plan.planner),
            Attribute("comm_size", "int64", self.num_bytes),
        )
        return tuple(Trace(tuple(nodes), attributes=about) for nodes in self.nodes)

    def _add(self, transfer: int, piece: int) -> None:
        """Add the nodes of one slice of a transfer."""
        transfers = self.transfers
        sender, receiver = int(transfers.senders[transfer]), int(transfers.receivers[transfer])
        tag = self.tags[sender, receiver]
        self.tags[sender, receiver] += 1
        amounts = (*self._amounts(transfer, piece), Attribute("comm_tag", "int32", tag))
        what = f"transfer {transfer} slice {piece}"
        awaited = tuple(sorted({self.arrived[before, piece] for before in self.before[transfer]}))
        turn = self._turn(sender, int(transfers.hop_links[transfers.hop_starts[transfer]]), awaited)

        def message(name: str, kind: NodeKind, peer: Attribute) -> TraceNode:
            about = (Attribute("is_cpu_op", "bool", False), Attribute("comm_type", "int64", int(kind)))
            return TraceNode(0, name, kind, attributes=(*about, peer, *amounts))

        send = message(f"send {what} to {receiver}", NodeKind.COMM_SEND, Attribute("comm_dst", "int32", receiver))
        receive = message(f"recv {what} from {sender}", NodeKind.COMM_RECV, Attribute("comm_src", "int32", sender))
        self._append(sender, send, awaited, turn)
        arrived = self._append(receiver, receive)
        if transfers.adds[transfer]:
            added = TraceNode(0, f"add {what}", NodeKind.COMP, duration=self.reduce_us)
            arrived = self._append(receiver, added, (arrived,))
        self.arrived[transfer, piece] = arrived

    def _amounts(self, transfer: int, piece: int) -> tuple[Attribute, ...]:
        """Bytes and chunks of one slice of a transfer, cut at whole bytes."""
        transfers = self.transfers
        first, amount = int(transfers.firsts[transfer]), int(transfers.amounts[transfer])
        chunk = Fraction(self.num_bytes) * transfers.unit / self.slices
        begin = first * self.slices + piece * amount
        num_bytes = int(chunk * (begin + amount)) - int(chunk * begin)
        if num_bytes < 1:
            raise UnsupportedError(
                f"{self.num_bytes} bytes leave some messages empty; expected at least "
                f"{self.slices * transfers.unit.denominator} bytes for {count_text(self.slices, 'slice')} of each"
            )
        chunks, total = (begin, amount) if self.total > 0 else (-1, -1), self.slices / transfers.unit
        # Simulators read no names that they do not know.
        own = (begin, amount, int(total)) if self.total < 0 and total.denominator == 1 and total < MAX_CHUNKS else ()
        return (
            Attribute("comm_size", "int64", num_bytes),
            *(Attribute(name, "int32", count) for name, count in zip(CHUNK_COUNTS, (*chunks, self.total), strict=True)),
            *(Attribute(f"collopt_{name}", "int32", count) for name, count in zip(CHUNK_COUNTS, own, strict=False)),
        )

    def _turn(self, sender: int, link: int, awaited: tuple[int, ...]) -> tuple[int, ...]:
        """Add the node after which it is a send's turn on its first link; the first send over a link has none."""
        controls: tuple[int, ...] = ()
        if link in self.last:
            controls = (self._append(sender, TraceNode(0, "turn", NodeKind.COMP), controls=self.last[link]),)
        self.last[link] = (*awaited, *controls)
        return controls

    def _append(self, rank: int, node: TraceNode, waits: tuple[int, ...] = (), controls: tuple[int, ...] = ()) -> int:
        """Add a node to a rank; return its id."""
        if self.order == "data":
            waits = (*waits, *controls)
        number = len(self.nodes[rank])
        self.nodes[rank].append(replace(node, number=number, waits=waits, controls=controls))
        return number


def _before(transfers: Transfers) -> dict[int, list[int]]:
    """Dependencies of each transfer, through the linkless transfers at the roots of an allreduce."""
    direct: defaultdict[int, list[int]] = defaultdict(list)
    for before, after in zip(transfers.before.tolist(), transfers.after.tolist(), strict=True):
        direct[after].append(before)
    turns = set(np.flatnonzero(transfers.senders == transfers.receivers).tolist())
    sources: defaultdict[int, list[int]] = defaultdict(list)
    for after, befores in direct.items():
        for before in befores:
            sources[after].extend(direct[before] if before in turns else [before])
    return sources


def _send_order(plan: Plan, num_bytes: int, slices: int) -> list[tuple[int, int]]:
    """Transfers that cross links, and their slices, by when each enters its first link, with switches that store it."""
    rules = Rules(forwarding="store-and-forward", service="arrival", clock="ns")
    cut = slices if plan.schedule.pipelined else None
    try:
        run = TimedSchedule(plan.schedule, plan.topology, rules).run(num_bytes, cut)
    except UnsupportedError:  # Messages take less than the clock shows.
        run = TimedSchedule(plan.schedule, plan.topology, rules._replace(clock="exact")).run(num_bytes, cut)
    crossing = np.flatnonzero(np.diff(run.transfers.hop_starts))
    # Slices of one step follow one another.
    starts = np.broadcast_to(run.starts[run.transfers.hop_starts[crossing]], (len(crossing), slices))
    transfers, pieces = np.repeat(crossing, slices), np.tile(np.arange(slices), len(crossing))
    order = np.lexsort((pieces, transfers, starts.reshape(-1)))
    return list(zip(transfers[order].tolist(), pieces[order].tolist(), strict=True))
