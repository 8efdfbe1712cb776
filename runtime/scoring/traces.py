"""Messages of Chakra execution traces, and what can be said of their data.

A trace says how many bytes are sent, and not which.  So nothing can show that the data is right; but a rank that takes
in, or gives away, fewer bytes than the collective needs shows that it is wrong.
"""

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np

from ...errors import FileFormatError, ProgramError
from ...schedules import Collective
from ..chakra.replay import link_nodes
from ..chakra.trace import NodeKind, Trace, read_trace
from .messages import Messages

SUFFIX = re.compile(r"\.[0-9]{1,6}\.et\Z")


def trace_prefix(path: Path) -> Path | None:
    """Return what the names of a set of traces begin with, given that or one of the files; None if it is no set."""
    if SUFFIX.search(path.name):
        return path.with_name(SUFFIX.sub("", path.name))
    return path if path.name and not path.exists() and _trace_file(path, 0).exists() else None


def _trace_file(prefix: Path, rank: int) -> Path:
    return prefix.with_name(f"{prefix.name}.{rank}.et")


def read_traces(prefix: Path, num_ranks: int) -> tuple[Trace, ...]:
    """Read the traces of all ranks; `FileFormatError` if one is missing, or there are more."""
    for rank in range(num_ranks):
        if not (missing := _trace_file(prefix, rank)).exists():
            raise FileFormatError(f"{missing} does not exist; expected the traces of all {num_ranks} ranks")
    if (more := _trace_file(prefix, num_ranks)).exists():
        raise FileFormatError(f"{more} is there, but the network has {num_ranks} ranks; expected a trace for each")
    return tuple(read_trace(_trace_file(prefix, rank)) for rank in range(num_ranks))


def stated(traces: Sequence[Trace], name: str) -> object:
    """Return an attribute of the metadata on which all traces agree; None if they do not."""
    values = [next((each.value for each in trace.attributes if each.name == name), None) for trace in traces]
    return values[0] if all(value == values[0] for value in values) else None


def trace_messages(traces: Sequence[Trace], num_bytes: int) -> Messages:
    """List the messages of traces that are of `num_bytes` in all; computations take no time."""
    linked = link_nodes([trace.nodes for trace in traces])
    before: dict[int, list[int]] = {number: [] for number in range(len(linked.nodes))}
    for first, after in (*linked.waits, *linked.pairs):
        before[after].append(first)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        (rank, node), count = linked.nodes[error.args[1][0]], len(error.args[1]) - 1
        raise ProgramError(f"{count} nodes wait for each other, such as node {node.number} of rank {rank}") from None
    messages, done = Messages(Fraction(1, num_bytes)), dict[int, int]()
    for number in order:
        (rank, node), message = linked.nodes[number], linked.messages[number]
        waits = [done[each] for each in before[number]]
        if message is not None and node.kind == NodeKind.COMM_SEND:
            done[number] = messages.send(message.sender, message.receiver, message.size, waits)
        else:
            done[number] = messages.event(rank, waits)
    return messages


def missing_bytes(messages: Messages, collective: Collective, num_ranks: int, root: int | None) -> str | None:
    """Say where fewer bytes are moved than the collective needs, whatever the sizes of its shards; None if nowhere."""
    senders, receivers, amounts = (
        np.array(column, dtype=np.int64) for column in (messages.senders, messages.receivers, messages.amounts)
    )
    taken_in, given_away = (
        np.bincount(ends, amounts * (senders != receivers), minlength=num_ranks).astype(np.int64).tolist()
        for ends in (receivers, senders)
    )
    total = 1 / messages.unit
    what = f"{collective} of {total} bytes on {num_ranks} ranks needs"
    if collective.is_sharded:
        # Every byte gets to all ranks but one, or has to be added to by as many.
        needed = total * (num_ranks - 1)
        return f"{sum(taken_in)} bytes are sent in all; {what} {needed}" if sum(taken_in) < needed else None
    for rank in range(num_ranks):
        takes, gives = _needs(collective, num_ranks, rank == root)
        for way, amount, share in (("takes in", taken_in[rank], takes), ("gives away", given_away[rank], gives)):
            if amount < share * total:
                return f"rank {rank} {way} {amount} bytes; {what} {math.ceil(share * total)}"
    return None


def _needs(collective: Collective, num_ranks: int, is_root: bool) -> tuple[Fraction, Fraction]:
    """Shares of all data that a rank takes in and gives away at least."""
    if num_ranks == 1:
        return Fraction(0), Fraction(0)
    if collective.has_two_phases:
        return Fraction(1), Fraction(1)
    if collective.in_pairs:
        others = Fraction(num_ranks - 1, num_ranks)
        return others, others
    # Of a broadcast, others than the root need not give anything away; of a reduce, they need not take anything in.
    gets = is_root == collective.reduces
    return Fraction(gets), Fraction(not gets)
