"""Schedules in files of any kind, Chakra traces included, as messages with a verdict on their data.

A trace says how many bytes are sent, and not which.  So nothing can show that the data is right; but a rank that takes
in, or gives away, fewer bytes than the collective needs shows that it is wrong.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ...errors import CertificateError, FileFormatError, ProgramError, UnsupportedError
from ...planners import Plan, load_plan
from ...schedules import Collective, as_bytes
from ...schedules.collective import as_collective
from ...schedules.steps.verify import check_contents
from ...support.files import MSCCL_KIND, MSCCLPP_KIND, PLAN_KIND, SENDS_KIND, name_of, read_bytes, wrong_kind
from ...support.files import kind_of as file_kind
from ...support.validation import as_path, is_int, shown
from ...topologies import Topology
from ...topologies.network.links import as_root
from ..msccl.document import Document, read_document
from ..msccl.export import ANY_RUNTIME, MANY
from ..msccl.lint_runs import Queue, buffered_order, check_execution, queue_of
from ..msccl.linter import MAX_BYTES, WRONG, checked_program
from ..mscclpp.code import layout_of
from ..mscclpp.interpret import run_execution_plan
from ..mscclpp.reader import read_mscclpp
from ..programs.findings import Findings, TooManyFindingsError
from ..programs.interpret import Contents
from ..programs.layout import Layout
from ..programs.ordering import Order, global_order
from ..programs.program import Program
from ..simulation.chakra_export import CHUNK_COUNTS
from ..simulation.chakra_replay import LinkedNodes, link_nodes
from ..simulation.chakra_trace import NodeKind, Trace, TraceNode, read_trace
from .messages import Messages, plan_messages, program_messages
from .send_lists import MAX_CHUNKS, SendList, read_sends, send_messages

SUFFIX = re.compile(r"\.[0-9]{1,6}\.et\Z")

REQUIRED = ("nchannels", "nchunksperloop", "ngpus", "coll")
TRACES = "Chakra traces"
UNSAID = "traces say how many bytes are sent, and not which"


def trace_prefix(path: Path) -> Path | None:
    """Return the common prefix of a set of traces, given that or one of the files; None if it is no set."""
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
    if (extra := _trace_file(prefix, num_ranks)).exists():
        raise FileFormatError(f"{extra} is there, but the network has {num_ranks} ranks; expected a trace for each")
    return tuple(read_trace(_trace_file(prefix, rank)) for rank in range(num_ranks))


def stated(traces: Sequence[Trace], name: str) -> object:
    """Return an attribute of the metadata on which all traces agree; None if they do not."""
    values = [
        next((attribute.value for attribute in trace.attributes if attribute.name == name), None) for trace in traces
    ]
    return values[0] if all(value == values[0] for value in values) else None


def trace_messages(traces: Sequence[Trace], num_bytes: int, traced: Collective | None = None) -> Messages:
    """List the messages of traces that are of `num_bytes` in all; computations take no time.

    `traced`: the collective, to list contents too; `UnsupportedError` if the traces do not say which chunks they send.
    """
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
    contents = None if traced is None else TraceContents(linked, traced, len(traces))
    for number in order:
        (rank, node), message = linked.nodes[number], linked.messages[number]
        waits = [done[earlier] for earlier in before[number]]
        if message is not None and node.kind == NodeKind.COMM_SEND:
            done[number] = messages.send(message.sender, message.receiver, message.size, waits)
            if contents is not None:
                messages.contents[done[number]] = contents.send(number)
        else:
            done[number] = messages.event(rank, waits)
    return messages


class TraceContents:
    """Chunks that the sends of traces carry, by their ``msg_chunk_idx``, and whose data by what each send waits for."""

    def __init__(self, linked: LinkedNodes, collective: Collective, num_ranks: int) -> None:
        self._linked, self._collective, self._num_ranks = linked, collective, num_ranks
        self._places = {(rank, node.number): place for place, (rank, node) in enumerate(linked.nodes)}
        self._sends = {receive: send for send, receive in linked.pairs}
        self._sent: dict[int, list[Contents]] = {}

    def send(self, place: int) -> list[Contents]:
        """Return the contents of a send, after those that it waits for."""
        rank, node = self._linked.nodes[place]
        first, count, total = (_chunk_count(node, name) for name in CHUNK_COUNTS)
        if not all(map(is_int, (first, count, total))) or not 0 <= first < first + count <= total <= MAX_CHUNKS:
            raise UnsupportedError(
                f"the traces do not say which chunks they send: node {node.number} of rank {rank} has msg_chunk_idx "
                f"{first}, msg_chunk_cnt {count} and total_chunk_cnt {total}"
            )
        arrived: defaultdict[int, Contents] = defaultdict(Counter)
        for earlier in self._receives(rank, node):
            for sent in self._sent[self._sends[earlier]]:
                number = next(iter(sent))[0]
                arrived[number % total if self._collective.in_pairs else number] |= sent
        base = rank * total if self._collective.in_pairs else 0
        self._sent[place] = [
            self._contents(base + chunk, rank, arrived[chunk]) for chunk in range(first, first + count)
        ]
        return self._sent[place]

    def _contents(self, chunk: int, rank: int, arrived: Contents) -> Contents:
        """Add a rank's own data to what has arrived, unless that is complete."""
        complete = self._num_ranks if self._collective.reduces else 1
        return arrived if len(arrived) == complete else arrived | Counter({(chunk, rank): 1})

    def _receives(self, rank: int, node: TraceNode) -> set[int]:
        """Receives that a send waits for, directly or through one computation."""
        waits = {self._places[rank, number] for number in node.waits}
        for place in list(waits):
            if self._linked.nodes[place][1].kind == NodeKind.COMP:
                waits |= {self._places[rank, number] for number in self._linked.nodes[place][1].waits}
        return waits & self._sends.keys()


def chunks_of(traces: Sequence[Trace]) -> int:
    """Return the number of chunks of all data, of the first send that says it; 0 if none does."""
    totals = (_chunk_count(node, CHUNK_COUNTS[-1]) for trace in traces for node in trace.nodes)
    return next((total for total in totals if is_int(total) and total > 0), 0)


def _chunk_count(node: TraceNode, name: str) -> Any:
    own = node.value(f"collopt_{name}")
    return node.value(name) if own is None else own


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
        required = total * (num_ranks - 1)
        return f"{sum(taken_in)} bytes are sent in all; {what} {required}" if sum(taken_in) < required else None
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
        share = Fraction(num_ranks - 1, num_ranks)
        return share, share
    # Of a broadcast, others than the root need not give anything away; of a reduce, they need not take anything in.
    gets = is_root == collective.reduces
    return Fraction(gets), Fraction(not gets)


Outcome = Literal["right", "wrong", "not checked"]


class DataCheck(NamedTuple):
    """Whether a schedule leaves the right data everywhere."""

    outcome: Outcome
    reason: str  # How that is known

    def __str__(self) -> str:
        """On one line."""
        return f"{self.outcome}: {self.reason}"


@dataclass(frozen=True)
class Reading:
    """A schedule as it was read from a file."""

    kind: str  # Such as ``"MSCCL XML"``
    collective: Collective | None  # None where a trace does not say, and nobody else has
    data: DataCheck
    messages: Messages | None = None  # None where ranks wait for each other for ever, and of a plan
    problem: dict[str, Any] = field(default_factory=dict)  # The root, weights or traffic of `collopt.bound`
    looped: bool = False  # Whether runtimes run it on one piece of each chunk after the other
    in_steps: bool = False  # Whether links keep the order of levels
    plan: Plan | None = None
    traced: Callable[[], Messages] | None = None  # Lists the messages with their contents, where the file says these
    num_chunks: int = 0  # Of all data that the contents are of
    listed: SendList | None = None  # Of a list of sends


class Hints(NamedTuple):
    """What people say about a file that does not say it."""

    collective: Collective | None = None
    root: int | str | None = None
    num_bytes: int | None = None

    @classmethod
    def of(cls, collective: object, root: int | str | None, num_bytes: int | str | None) -> Hints:
        """Read the values that people gave."""
        record = None if collective is None else as_collective(collective)
        return cls(record, root, None if num_bytes is None else as_bytes(num_bytes))

    def refuse(self, kind: str, *, but: str = "") -> None:
        """Refuse hints that a file of some kind does not need, but for one."""
        for name, value in self._asdict().items():
            if value is not None and name != but:
                raise UnsupportedError(f"{name} is {shown(value)}, but {kind} says so itself; leave it out")


def read_schedule(path: str | os.PathLike[str], topology: Topology, hints: Hints) -> Reading:
    """Read a schedule that ranks of a topology run; raises as `score`."""
    file = as_path(path)
    if (prefix := trace_prefix(file)) is not None:
        return _traces(prefix, topology, hints)
    if problem := wrong_kind(file, "a schedule", (PLAN_KIND, MSCCL_KIND, MSCCLPP_KIND, SENDS_KIND)):
        raise FileFormatError(problem)
    kind = file_kind(file)
    if kind is None or kind.name == SENDS_KIND:
        return _send_list(file, topology, hints)
    hints.refuse(kind.name, but="collective")
    reading = {PLAN_KIND: _plan, MSCCL_KIND: _algorithm, MSCCLPP_KIND: _execution_plan}[kind.name](file, topology)
    if hints.collective not in (None, reading.collective):
        raise UnsupportedError(f"{name_of(file)} is of {reading.collective}, not {hints.collective}")
    return reading


def _check_ranks(file: Path, num_ranks: int, topology: Topology) -> None:
    if num_ranks != topology.num_ranks:
        raise UnsupportedError(
            f"{name_of(file)} is for {num_ranks} ranks, but {topology.name} has {topology.num_ranks}; give its network"
        )


def _plan(file: Path, topology: Topology) -> Reading:
    """A plan of collopt; raises as `load_plan`."""
    plan = load_plan(file, topology)
    data = DataCheck("right", "the schedule in the plan was verified")
    return Reading(PLAN_KIND, plan.collective, data, problem=plan.schedule.problem(plan.collective), plan=plan)


def _algorithm(file: Path, topology: Topology) -> Reading:
    """An MSCCL algorithm, as any runtime would run it."""
    findings = Findings()
    # The parsers know no encoding: each byte is a character of its own.
    document = read_document(read_bytes(file, MAX_BYTES).decode("latin-1"), REQUIRED, findings)
    if document is None:
        raise FileFormatError(f"{name_of(file)}: {_first(findings)}")
    _check_ranks(file, document.numbers["ngpus"], topology)
    program, how = None, ""
    with suppress(TooManyFindingsError):
        program = checked_program(document, ANY_RUNTIME, MANY, findings)
        if program is not None:
            how = _execute(program, document, queue_of(document, ANY_RUNTIME), findings)
    if program is None:
        raise UnsupportedError(f"{name_of(file)}: {_first(findings)}")
    data = DataCheck("wrong", _first(findings)) if findings.has(*WRONG) else DataCheck("right", how)
    order = _order(program, queue_of(document, ANY_RUNTIME))
    messages = None if order is None else program_messages(program, order)
    reading = Reading(MSCCL_KIND, program.collective, data, messages, _problem(program.layout), looped=True)
    if order is None:
        return reading
    traced = partial(
        program_messages, replace(program, in_place=how.startswith("executed in place")), order, traced=True
    )
    return replace(reading, traced=traced, num_chunks=program.layout.chunks)


def _execute(program: Program, document: Document, queue: Queue, findings: Findings) -> str:
    """Execute a program as often as the file says that it is for; return in which ways."""
    in_place = bool(document.numbers.get("inplace", 0))
    out_of_place = bool(document.numbers.get("outofplace", not in_place)) or not in_place
    check_execution(program, in_place, out_of_place, queue, findings)
    ways = [way for way, does in (("in place", in_place), ("out of place", out_of_place)) if does]
    return f"executed {' and '.join(ways)}, every rank ends with what the collective says"


def _order(program: Program, queue: Queue) -> Order | None:
    """Order the steps, if need be with the buffers of connections; None if they wait for each other for ever."""
    try:
        return global_order(program)
    except ProgramError:
        try:
            return buffered_order(program, *queue)
        except ProgramError:
            return None


def _first(findings: Findings) -> str:
    """Return the worst finding."""
    finding = next(iter(findings))
    return f"{finding.where}: {finding.message}" if finding.where else finding.message


def _problem(layout: Layout) -> dict[str, Any]:
    return {} if layout.root is None else {"root": layout.root}


def _execution_plan(file: Path, topology: Topology) -> Reading:
    """An MSCCL++ plan."""
    plan = read_mscclpp(file)
    _check_ranks(file, plan.num_ranks, topology)
    way = f"executed {'in place' if plan.in_place else 'out of place'}"
    data = DataCheck("right", f"{way}, every rank ends with what the collective says")
    if plan.collective is None:
        data = DataCheck("not checked", f"{way} without races; the collective of the plan is none that collopt knows")
    problem: dict[str, Any] = {}
    messages, chunks = None, 0
    try:
        layout = layout_of(plan)
        problem, chunks = ({}, 0) if layout is None else (_problem(layout), layout.chunks)
        messages = plan_messages(plan, topology)
        # Buffers begin their allocations, as `lint` says where that matters.
        run_execution_plan(plan, interleavings=2, pads=(0, 0))
    except ProgramError as error:
        data = DataCheck("wrong", str(error))
    traced = partial(plan_messages, plan, topology, traced=True)
    about = (MSCCLPP_KIND, plan.collective, data, messages, problem)
    return Reading(*about, looped=True, traced=traced, num_chunks=chunks)


def _send_list(file: Path, topology: Topology, hints: Hints) -> Reading:
    hints._replace(collective=None).refuse("a list of sends", but="root")
    listed = read_sends(file, topology, hints.collective, hints.root)
    data = DataCheck("right", "executed step by step, every rank ends with what the collective says")
    try:
        check_contents(listed.sends)
    except CertificateError as error:
        data = DataCheck("wrong", str(error))
    problem = {} if listed.root is None else {"root": listed.root}
    about = (SENDS_KIND, listed.collective, data, send_messages(listed), problem)
    return Reading(*about, in_steps=True, listed=listed)


def _traces(prefix: Path, topology: Topology, hints: Hints) -> Reading:
    """A set of Chakra traces."""
    traces = read_traces(prefix, topology.num_ranks)
    own = stated(traces, "collective")
    collective = hints.collective if own is None else as_collective(own, error=FileFormatError)
    if hints.collective not in (None, collective):
        raise UnsupportedError(f"the traces {prefix} are of {collective}, not {hints.collective}")
    comm_size = stated(traces, "comm_size")
    num_bytes = comm_size if hints.num_bytes is None and isinstance(comm_size, int) else hints.num_bytes
    if num_bytes is None or num_bytes < 1:
        raise UnsupportedError(f"the traces {prefix} do not say of how many bytes in all they are; give num_bytes")
    problem: dict[str, Any] = {}
    if collective is not None and collective.has_one_root:
        if hints.root is None:
            raise UnsupportedError(f"the traces {prefix} do not say which root the {collective} has; give it")
        problem["root"] = as_root(topology.compute_nodes, hints.root)
    elif hints.root is not None:
        raise UnsupportedError(f"root is {shown(hints.root)}, but the traces {prefix} are of no collective with a root")
    try:
        messages = trace_messages(traces, num_bytes)
    except ProgramError as error:
        return Reading(TRACES, collective, DataCheck("wrong", str(error)), None, problem)
    data = DataCheck("not checked", f"{UNSAID}, nor of which collective; sends match receives, and none waits for ever")
    if collective is not None and not collective.parts_differ:
        balance = "as many bytes are moved as the collective needs"
        data = DataCheck("not checked", f"{UNSAID}; sends match receives, none waits for ever, and {balance}")
        if problem_found := missing_bytes(messages, collective, len(traces), problem.get("root")):
            data = DataCheck("wrong", problem_found)
    traced = None if collective is None else partial(trace_messages, traces, num_bytes, collective)
    return Reading(TRACES, collective, data, messages, problem, traced=traced, num_chunks=chunks_of(traces))
