"""TACOS's synthesizer: the times that it reports, and its schedules replayed with sends that wait for their data.

TACOS neither reads a network nor writes a schedule, so it is asked through a program that does:
``PROGRAM NETWORK CHUNKS BYTES``.  The network is a text file, ranks and links in its first line, then tail, head, GiB/s
and µs of each link.  The program prints ``send CHUNK TAIL HEAD START END`` for each arrival, chunk c being of rank c
modulo the ranks, and ``time`` with the time that TACOS returns, all in µs.
"""

from __future__ import annotations

import csv
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import NamedTuple

import collopt
from collopt.runtime import score

from .rows import Row, microseconds

GIB = Fraction(2**30, 10**9)
CHUNKS, TRIES = (1, 4), 10
CLOSE = 1e-6  # µs, or share of a time, below which times are equal


class Send(NamedTuple):
    """A chunk that crosses a link, from when to when in µs."""

    chunk: int
    tail: int
    head: int
    start: float
    end: float


def rows(program: Path, topology: collopt.Topology, num_bytes: int) -> list[Row]:
    """Run it some times for each number of chunks, since it draws random numbers, and replay each run."""
    if topology.switch_nodes:
        print(f"{topology.name}: TACOS takes no switches")
        return []
    found = []
    bound = microseconds(num_bytes, collopt.bound(topology, "allgather").algbw)
    for chunks in CHUNKS:
        runs = [_run(program, topology, chunks, num_bytes) for _ in range(TRIES)]
        replays = [replay(sends, topology, num_bytes) for _, sends in runs]
        longer = [after / before - 1 for (before, _), after in zip(runs, replays, strict=True)]
        early = max(too_early(sends, topology.num_ranks) for _, sends in runs)
        slower = (
            f"{sum(each > CLOSE for each in longer)} of {TRIES} runs longer than reported, by up to {max(longer):.0%}"
        )
        remark = (
            f"{chunks} chunk{'s' * (chunks > 1)} per shard; in {slower}; "
            f"up to {early} of {len(runs[0][1])} sends before their data"
        )
        reported = median(before for before, _ in runs)
        found.append(Row(topology.name, "TACOS, medians", reported, median(replays), bound, None, remark))
    return found


def _run(program: Path, topology: collopt.Topology, chunks: int, num_bytes: int) -> tuple[float, list[Send]]:
    """Return the time that it reports, and its sends."""
    number = topology.node_index
    links = [
        f"{number[link.tail]} {number[link.head]} {float(link.bandwidth / GIB)!r} {float(link.latency)!r}\n"
        for link in topology.links
    ]
    with tempfile.TemporaryDirectory() as folder:
        network = Path(folder) / "network.txt"
        network.write_text(f"{topology.num_ranks} {topology.num_links}\n{''.join(links)}")
        command = [str(program), str(network), str(chunks), str(num_bytes)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    words = [line.split() for line in lines]
    sends = [Send(*map(int, row[1:4]), *map(float, row[4:])) for row in words if row[:1] == ["send"]]
    return next(float(row[1]) for row in words if row[:1] == ["time"]), sends


def too_early(sends: Iterable[Send], num_ranks: int) -> int:
    """Count the sends that start before their data is there."""
    sends = list(sends)
    arrivals = {(send.chunk, send.head): send.end for send in sends}
    return sum(
        send.chunk % num_ranks != send.tail and arrivals[send.chunk, send.tail] > send.start + CLOSE for send in sends
    )


def replay(sends: Iterable[Send], topology: collopt.Topology, num_bytes: int) -> float:
    """Simulate the sends, each link in TACOS's order, none before its data has come; in µs."""
    order = causal_order(sends, topology.num_ranks)
    ranks = topology.num_ranks
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sends.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("step", "from", "to", "chunk", "owner"))
            writer.writerows(
                (step, send.tail, send.head, send.chunk // ranks, send.chunk % ranks) for step, send in enumerate(order)
            )
        found = score(path, topology, collective="allgather", sizes=[num_bytes])
    if found.data.outcome != "right":
        raise ValueError(f"TACOS's schedule for {topology.name} leaves wrong data: {found.data}")
    return found.times[0].microseconds


def causal_order(sends: Iterable[Send], num_ranks: int) -> list[Send]:
    """Order the sends so that each comes after the one that brings its data, and those of a link by their start."""
    sends = sorted(sends, key=lambda send: (send.start, send.end))
    queues = defaultdict(list)
    for send in reversed(sends):
        queues[send.tail, send.head].append(send)
    held = {(send.chunk, send.chunk % num_ranks) for send in sends}
    order = []
    while any(queues.values()):
        ready = [queue for queue in queues.values() if queue and (queue[-1].chunk, queue[-1].tail) in held]
        if not ready:
            raise ValueError("links wait for each other: TACOS's order has no causal replay")
        send = min(ready, key=lambda queue: queue[-1].start).pop()
        held.add((send.chunk, send.head))
        order.append(send)
    return order
