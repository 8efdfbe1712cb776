"""`certify`: a schedule of any origin as a plan, whose proof `load_plan` and other checkers accept."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import gcd
from pathlib import Path as FilePath

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...planners import Plan
from ...planners.bounds import plan_of_schedule
from ...schedules import ALLREDUCE, Allreduce, Collective, Forest, Schedule, StepExchange, StepSchedule
from ...schedules.steps.sends import Sends
from ...schedules.transfers import Transfers
from ...support.files import MAX_BYTES, MEASURED_KIND, MSCCL_KIND, MSCCLPP_KIND, SENDS_KIND, kind_of, name_of, read_text
from ...support.validation import as_path
from ...topologies import Topology
from ...topologies.network.links import as_root
from ...topologies.network.topology import as_topology
from ..health.channels import Routes, check_ring, check_tree
from ..health.nccl_log import NcclLog, read_nccl_log
from ..programs.interpret import GARBAGE, Contents
from .messages import routed
from .moves import Move, Path, schedule_of_moves
from .readings import TRACES, Hints, Reading, read_schedule, trace_prefix
from .send_lists import SendList

NCCL_LOG = "NCCL log"
WORDS = {MSCCL_KIND: "msccl", MSCCLPP_KIND: "mscclpp", SENDS_KIND: "sends", TRACES: "chakra", NCCL_LOG: "nccl"}
"""What plans say who made them."""


def certify(
    path: str | os.PathLike[str],
    topology: Topology,
    *,
    collective: str | Collective | None = None,
    root: int | str | None = None,
    num_bytes: int | str | None = None,
) -> Plan:
    """Turn a schedule that anybody made into a plan, with the bound, the gap and their proof.

    The plan carries out the sends of the file and no others: chunks whose sends form trees become trees, sums that
    ranks exchange become steps, data between pairs becomes paths, and a list of sends keeps its steps.  Raises
    `CertificateError` if the data is wrong; `UnsupportedError` if no plan can say what the file does, or the file does
    not say enough; and as `score` does.

    Parameters
    ----------
    path : str or path
        As for `score`, or a log of NCCL with ``NCCL_DEBUG=INFO`` that lists its rings or trees.
    topology : Topology
        Whose ranks run it, in order.
    collective, root, num_bytes
        As for `score`; also of a log.

    Examples
    --------
    >>> import collopt
    >>> ring = collopt.topologies.ring(4, bandwidth=25)
    >>> collopt.plan(ring, "allgather", planner="blink").to_msccl_xml("blink.xml")
    >>> print(certify("blink.xml", ring))
    allgather on ring-4 by msccl: 40.00 GB/s, 40.00 % below the bound; ... by weight
    """
    as_topology(topology)
    hints, file = Hints.of(collective, root, num_bytes), as_path(path)
    where, log = name_of(file), _log_of(file)
    reading = None if log is not None else read_schedule(file, topology, hints)
    if reading is not None and reading.plan is not None:
        return reading.plan
    if reading is not None and reading.data.outcome == "wrong":
        raise CertificateError(f"{where}: {reading.data.reason}")
    kind, record = (NCCL_LOG, hints.collective) if reading is None else (reading.kind, reading.collective)
    if record is None:
        raise UnsupportedError(f"{where} does not say of which collective it is; give it")
    try:
        if log is not None:
            number = as_root(topology.compute_nodes, hints.root) if record.has_one_root else None
            schedule = _channels(log, topology, record, number)
        else:
            assert reading is not None
            schedule = _schedule(reading, topology, record)
        return plan_of_schedule(topology, record, schedule, planner=WORDS[kind], options={"file": where})
    except CertificateError as error:
        raise UnsupportedError(f"{where}: no plan can say what its sends do: {error}") from None
    except UnsupportedError as error:
        raise UnsupportedError(f"{where}: {error}") from None


def _schedule(reading: Reading, topology: Topology, collective: Collective) -> Schedule:
    """Make the schedule of what was read."""
    messages = reading.messages if reading.traced is None else reading.traced()
    if messages is None:
        raise UnsupportedError("its ranks wait for each other for ever")
    paths, root = list(_paths(routed(messages, topology).transfers, topology)), reading.problem.get("root")
    if reading.listed is not None and not collective.has_one_root and not collective.in_pairs:
        return _steps(reading.listed, paths)
    if reading.listed is not None:
        moves, chunks = list(_listed_moves(reading.listed.sends, paths)), int(reading.listed.sends.sizes[0])
        return schedule_of_moves(moves, collective, topology, chunks, root)
    moves = [
        Move(*_chunk(contents, messages.senders[number]), messages.levels[number], paths[number])
        for number, chunks in messages.contents.items()
        for contents in chunks
    ]
    return schedule_of_moves(moves, collective, topology, reading.num_chunks, root)


def _chunk(contents: Contents, sender: int) -> tuple[int, frozenset[int]]:
    """Chunk, and whose data of it a sender sends."""
    if GARBAGE in contents or len({chunk for chunk, _ in contents}) != 1 or max(contents.values()) > 1:
        raise UnsupportedError(f"node {sender} sends what is neither a chunk nor a sum of one; no plan has such data")
    return next(iter(contents))[0], frozenset(rank for _, rank in contents)


def _paths(transfers: Transfers, topology: Topology) -> Iterator[Path]:
    """Nodes that each message passes; none of events."""
    tails, heads, starts = topology.arrays.tails, topology.arrays.heads, transfers.hop_starts.tolist()
    for begin, end in pairwise(starts):
        links = transfers.hop_links[begin:end]
        yield (*tails[links[:1]].tolist(), *heads[links].tolist())


def _steps(listed: SendList, paths: Sequence[Path]) -> Schedule:
    """Sends of all ranks' data, with the steps of their list."""
    sends, chunks = listed.sends, int(listed.sends.sizes[0])
    _, steps = np.unique(sends.steps, return_inverse=True)
    columns = zip(steps.tolist(), sends.items.tolist(), sends.lower.tolist(), sends.upper.tolist(), paths, strict=True)
    if listed.collective.has_two_phases:
        adds = [False] * len(paths) if sends.adds is None else sends.adds.tolist()
        rows = [(step, add, *row) for (step, _, *row), add in zip(columns, adds, strict=True)]
        return StepExchange.from_sends(sends.num_ranks, chunks, rows)
    if not listed.collective.reduces:
        return StepSchedule.from_sends(sends.num_ranks, chunks, columns)
    last = int(steps.max())
    reversed_rows = [(last - step, *row, path[::-1]) for step, *row, path in columns]
    return StepSchedule.from_sends(sends.num_ranks, chunks, reversed_rows, "reduce")


def _listed_moves(sends: Sends, paths: Sequence[Path]) -> Iterator[Move]:
    """Moves of single chunks; what data sums are of, the check of the list has seen."""
    rows = zip(
        sends.items.tolist(), sends.lower.tolist(), sends.upper.tolist(), sends.steps.tolist(), paths, strict=True
    )
    size = int(sends.sizes[0])
    for item, lower, upper, step, path in rows:
        for chunk in range(lower, upper):
            yield Move(item * size + chunk, frozenset(), step, path)


def _log_of(file: FilePath) -> NcclLog | None:
    """Read a log of NCCL; None of another file."""
    if trace_prefix(file) is not None or ((kind := kind_of(file)) is not None and kind.name != MEASURED_KIND):
        return None
    text = read_text(file, MAX_BYTES)
    return read_nccl_log(text, name_of(file)) if " NCCL INFO " in text else None


def _channels(log: NcclLog, topology: Topology, collective: Collective, root: int | None) -> Schedule:
    """Rings of a log as trees from, and to, each rank, in equal parts of all data; or its trees, for an allreduce."""
    used = {choice.algorithm for choice in log.choices if choice.collective.lower() == collective.nccl_name}
    as_trees = collective.has_two_phases and (used == {"TREE"} or not log.rings)
    channels = log.trees if as_trees else log.rings
    if collective.in_pairs or not channels:
        what = "sends between pairs by no ring or tree" if collective.in_pairs else "lists no rings or trees completely"
        raise UnsupportedError(f"NCCL {what}; expected a log with NCCL_DEBUG=INFO of another collective")
    routes = Routes(topology, log.hops)
    inwards, outwards = list[tuple[int, int, list[Path]]](), list[tuple[int, int, list[Path]]]()
    for channel, order in channels.items():
        if as_trees:
            check_tree(order, channel, topology)
            edges = [(parent, rank) for rank, parent in enumerate(order) if parent >= 0]
            halves = [(order.index(-1), edges, edges)]
        else:
            check_ring(order, channel, topology)
            roots = order if root is None else [root]
            turned = [(*order[at:], *order[:at]) for at in map(order.index, roots)]
            # A ring adds up on the way to its root, and copies from there on.
            halves = [(ring[0], list(pairwise((ring[0], *ring[:0:-1]))), list(pairwise(ring))) for ring in turned]
        for rank, into, out in halves:
            inwards.append((rank, 1, [routes.path(channel, child, parent)[::-1] for parent, child in into]))
            outwards.append((rank, 1, [routes.path(channel, parent, child) for parent, child in out]))
    counts = Counter(rank for rank, _, _ in outwards)
    common = gcd(*counts.values())
    weights = [counts[rank] // common for rank in range(topology.num_ranks)]
    forests = {
        phase: Forest.from_paths(topology.num_ranks, common, trees, root_weights=weights, direction=phase)
        for phase, trees in zip(ALLREDUCE.phases, (inwards, outwards), strict=True)
    }
    if collective.has_two_phases:
        return Allreduce(forests["reduce"], forests["broadcast"])
    return forests[collective.phases[0]]
