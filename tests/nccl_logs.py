"""Logs of nccl-tests with lines of NCCL, in the form of public issues, and a model of damaged machines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from collopt.runtime.health.expect import Expectation, expect
from collopt.topologies import Topology

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
MI300X = "AMD Instinct MI300X"
TITLES = ("time", "algbw", "busbw", "#wrong") * 2
FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1,
    "reduce": lambda _: 1,
}
SIZES = tuple(2**power for power in range(20, 34, 2))


def devices(hosts: int, gpu: str, per_host: int = 8) -> list[str]:
    """List of devices."""
    lines = ["# Using devices"]
    for rank in range(hosts * per_host):
        host, device = divmod(rank, per_host)
        place = f"on node-{host + 1} device {device:2d} [0x{18 + device}]"
        lines.append(f"#  Rank {rank:2d} Group  0 Pid {4000 + rank} {place} {gpu}")
    return lines


def header(program: str | None = "all_reduce") -> list[str]:
    """Head of a run; without a program as old versions print it."""
    named = [f"# Collective test starting: {program}_perf"] if program else []
    threads = "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20"
    return [*named, f"{threads} agg iters: 1 validation: 1 graph: 0", "#"]


def table(
    busbw: float,
    ranks: int,
    program: str = "all_reduce",
    sizes: Sequence[int] = SIZES,
    latency: float = 30.0,
    wrong: int = 0,
    root: int = -1,
) -> list[str]:
    """Table of a bandwidth for large sizes, with a latency in µs."""
    factor = FACTORS[program](ranks)
    operation = "sum" if "reduce" in program else "none"
    rows = [
        f"#       size         count      type   redop    root {' '.join(TITLES)}",
        f"#        (B)    (elements) {' (us)  (GB/s)  (GB/s) ' * 2}",
    ]
    for size in sizes:
        time = latency + factor * size / busbw / 1000
        cells = f"{time:8.1f} {size / time / 1000:7.2f} {factor * size / time / 1000:7.2f} {wrong:6d}"
        rows.append(f"{size:12d} {size // 4:13d}     float {operation:>7} {root:7d} {cells} {cells}")
    return [*rows, "# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {busbw:.4f}", "#"]


@cache
def _expected(digest: str, topology: Kept, collective: object, sizes: tuple[int, ...], root: int | None) -> Expectation:
    del digest
    return expect(topology.topology, collective, sizes=sizes, root=root)  # type: ignore[arg-type]


class Kept:
    """A network that is equal to all others, for a key beside it."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def cached_expect(
    topology: Topology, collective: object, *, sizes: Sequence[int], root: int | None = None
) -> Expectation:
    """`expect`, once for each network."""
    return _expected(topology.digest, Kept(topology), collective, tuple(sizes), root)


class Machine(NamedTuple):
    """What the lines of NCCL say of machines."""

    hosts: int = 2
    per_host: int = 8
    nics: tuple[int, ...] = (8, 8)  # that NCCL lists on each host
    used: tuple[int, ...] = tuple(range(8))
    network: str = "IB"
    gdr: bool = True
    inner: str = "P2P/CUMEM"
    nvls: bool = True
    channels: int = 16
    version: str = "2.21.5+cuda12.4"


TWO_BOXES = Machine()


def info(machine: Machine = TWO_BOXES) -> list[str]:
    """Lines of NCCL_DEBUG=INFO of all ranks: rings that enter and leave each host by one NIC."""
    ranks, per_host = machine.hosts * machine.per_host, machine.per_host
    lines = [f"NCCL version {machine.version}"]

    def say(rank: int, words: str) -> None:
        lines.append(f"node-{rank // per_host + 1}:{4000 + rank}:{5000 + rank} [{rank % per_host}] NCCL INFO {words}")

    def end(rank: int) -> str:
        return f"{rank}[{rank % per_host}]"

    rings = ring_orders(machine)
    for channel, ring in enumerate(rings):
        line = f"Channel {channel:02d}/{len(rings):02d} :" + "".join(f" {rank:{len(str(ranks - 1))}d}" for rank in ring)
        say(0, line if len(line) < 128 else f"{line[:124]}...")
    for rank in range(ranks):
        if machine.hosts > 1 and machine.network == "IB":
            listed = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(machine.nics[rank // per_host]))
            say(rank, f"NET/IB : Using {listed} [RO]; OOB eth0:10.0.0.{rank // per_host + 1}<0>")
        if machine.network == "AWS Libfabric":
            count = machine.nics[rank // per_host]
            say(rank, f"NET/OFI Selected Provider is efa (found {count} nics)")
        say(rank, f"Using network {machine.network}")
        device = rank % per_host
        about = f"rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} busId 18000 commId 0xd8289d3e"
        say(rank, f"ncclCommInitRank comm 0x55{rank:02x} {about} - Init START")
        say(rank, f"NVLS multicast support is {'' if machine.nvls else 'not '}available on dev {device}")
        for channel, ring in enumerate(rings):
            place = ring.index(rank)
            before, following = ring[place - 1], ring[(place + 1) % ranks]
            tail = f"via NET/{machine.network}/{machine.used[channel % len(machine.used)]}{'/GDRDMA' * machine.gdr}"
            say(rank, f"Ring {channel:02d} : {before} -> {rank} -> {following}")
            inside = following // per_host == rank // per_host
            way = f"via {machine.inner}" if inside else f"[send] {tail}"
            say(rank, f"Channel {channel:02d}/0 : {end(rank)} -> {end(following)} {way}")
            if before // per_host != rank // per_host:
                say(rank, f"Channel {channel:02d}/0 : {end(before)} -> {end(rank)} [receive] {tail}")
        nvls = 16 * machine.nvls
        say(
            rank,
            f"{machine.channels} coll channels, 0 collnet channels, {nvls} nvls channels, 16 p2p channels, 2 per peer",
        )
    return lines


def ring_orders(machine: Machine) -> list[list[int]]:
    """Rings that start on each host at the GPU of their NIC."""
    orders = []
    for channel in range(machine.channels):
        first = machine.used[channel % len(machine.used)] % machine.per_host
        chain = [(first - step) % machine.per_host for step in range(machine.per_host)]
        ring = [host * machine.per_host + gpu for host in range(machine.hosts) for gpu in chain]
        start = ring.index(0)
        orders.append(ring[start:] + ring[:start])
    return orders


def text(*parts: Sequence[str]) -> str:
    """Join lines of a log."""
    return "\n".join(line for part in parts for line in part) + "\n"


def noise(seed: int, spread: float = 0.015) -> float:
    """Factor near 1 of one run."""
    return random.Random(seed).uniform(1 - spread, 1 + spread)
