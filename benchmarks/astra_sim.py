"""Plans and the built-in collectives of ASTRA-sim, both in ASTRA-sim, beside what `simulate` says.

``python benchmarks/astra_sim.py BUILD [NETWORK ...]`` takes the executable of ASTRA-sim's congestion-aware analytical
backend, or a folder that holds it, and files of networks that `read_topology` reads: network files of ASTRA-sim, or
others that are products of rings, switches and full meshes.  Products of several dimensions need a build that routes
them, dimension by dimension; others are reported as not run.

Of the built-in collectives the fastest of all algorithms, numbers of chunks and queues counts, without times for
reductions.  Of collopt's plans, the first eight within 2 % of the one that `simulate` finds fastest are replayed, and
the fastest two of these run.  ASTRA-sim rounds the time of a message on a link down to whole ns, so that small messages
are faster than the link: on neither side is data cut into messages that take less than 50 ns on a link.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import collopt
from collopt.errors import ColloptError
from collopt.planners import PLANNERS, Plan
from collopt.runtime import Attribute, NodeKind, Trace, TraceNode, plan_traces, replay_traces, simulate, write_trace
from collopt.schedules import as_bytes

BINARY = "AstraSim_Analytical_Congestion_Aware"
TIME_LIMIT = 300  # s of one run
GIB = Fraction(2**30, 10**9)  # What ASTRA-sim calls a GB
IMPLEMENTATIONS = {"allgather": "all-gather", "reduce_scatter": "reduce-scatter", "allreduce": "all-reduce",
                   "all_to_all": "all-to-all"}  # fmt: skip
COMM_TYPES = {"allreduce": 0, "allgather": 2, "all_to_all": 6, "reduce_scatter": 7}
SIZES = ("64K", "1M", "64M")
CHUNKS, QUEUES, SLICES = (1, 2, 4, 8, 16, 32, 64), (1, 2), (1, 2, 4, 8, 16, 32, 64)
LEAST_NS = 50  # of a message on a link, where data is cut
CLOSE, REPLAYED, MOST_MESSAGES, TRIED = 1.02, 8, 2**17, 2  # Which plans are replayed, and how many of them run


class Dimension(NamedTuple):
    """One dimension of a network: its kind, NPUs along it, GB/s and µs of a link."""

    kind: str
    npus: int
    bandwidth: Fraction
    latency: Fraction


class Result(NamedTuple):
    """Times in ns of one collective of one size."""

    network: str
    collective: str
    size: str
    built_in: int
    setting: str
    plan: int
    planner: str
    simulated: float

    def row(self) -> str:
        """Line of a table."""
        faster, error = self.built_in / self.plan, self.simulated / self.plan - 1
        return (
            f"| {self.network} | {self.collective} | {self.size} | {self.built_in} | {self.setting} | {self.plan} | "
            f"{self.planner} | {faster:.2f} | {error:+.1%} |"
        )


HEADING = (
    "| network | collective | size | best built-in, ns | which | plan, ns | which | speedup | `simulate` |\n"
    "| --- | --- | ---: | ---: | --- | ---: | --- | ---: | ---: |"
)


def dimension(kind: str, npus: int, bandwidth: int, latency: str = "0.5") -> Dimension:
    """Make a dimension of plain numbers."""
    return Dimension(kind, npus, Fraction(bandwidth), Fraction(latency))


NETWORKS = {
    "ring 8": [dimension("Ring", 8, 50)],
    "full mesh 8": [dimension("FullyConnected", 8, 50)],
    "torus 4x4": [dimension("Ring", 4, 50)] * 2,
    "hypercube 3": [dimension("Ring", 2, 50)] * 3,
    "switch 8": [dimension("Switch", 8, 50)],
    "2 DGX A100": [dimension("Switch", 8, 300), dimension("Switch", 2, 25, "1")],
}


def network_text(dimensions: Iterable[Dimension]) -> str:
    """Write a network file of ASTRA-sim."""
    kinds, npus, bandwidths, latencies = zip(*dimensions, strict=True)
    lists = {
        "topology": kinds,
        "npus_count": npus,
        "bandwidth": [Decimal(float(each / GIB)) for each in bandwidths],
        "latency": [Decimal(float(1000 * each)) for each in latencies],
    }
    return "".join(f"{key}: [ {', '.join(map(str, values))} ]\n" for key, values in lists.items())


def dimensions_of(topology: collopt.Topology) -> list[Dimension] | None:
    """Find the dimensions that a network is the product of, None if there are none."""
    ranks, nodes = topology.num_ranks, topology.nodes
    members: dict[str, Any] = {node: rank for rank, node in enumerate(nodes[:ranks])}
    for switch in nodes[ranks:]:
        heads = [link.head for link in topology.out_links(switch)]
        if not set(heads) <= set(nodes[:ranks]):
            return None
        members[switch] = frozenset(members[head] for head in heads)
    links = {(members[link.tail], members[link.head]): (link.bandwidth, link.latency) for link in topology.links}
    for sizes in _factorizations(ranks):
        for kinds in product(("Ring", "FullyConnected", "Switch"), repeat=len(sizes)):
            found = [_links(kind, sizes, number) for number, kind in enumerate(kinds)]
            costs = [{links.get(pair) for pair in pairs} for pairs in found]
            whole = sum(map(len, found)) == len(links) == topology.num_links
            if whole and all(len(cost) == 1 and None not in cost for cost in costs):
                found_costs = [links[next(iter(pairs))] for pairs in found]
                return [Dimension(*row[:2], *row[2]) for row in zip(kinds, sizes, found_costs, strict=True)]
    return None


def _factorizations(ranks: int) -> Iterator[tuple[int, ...]]:
    """Yield ordered factorizations, shortest first, of at most four factors."""
    divisors = [factor for factor in range(2, ranks + 1) if ranks % factor == 0]
    for count in range(1, 5):
        yield from (sizes for sizes in product(divisors, repeat=count) if prod(sizes) == ranks)


def _links(kind: str, sizes: tuple[int, ...], number: int) -> set[tuple[Any, Any]]:
    """Links of one dimension, between NPUs or sets of NPUs with a switch."""
    stride, size, pairs = prod(sizes[:number]), sizes[number], set()
    for npu in range(prod(sizes)):
        place = npu // stride % size
        line = [npu + (other - place) * stride for other in range(size)]
        if kind == "Switch":
            pairs |= {(npu, frozenset(line)), (frozenset(line), npu)}
        elif kind == "Ring":
            pairs |= {(npu, line[(place + 1) % size]), (npu, line[place - 1])}
        else:
            pairs |= {(npu, other) for other in line if other != npu}
    return pairs


def product_network(dimensions: list[Dimension]) -> collopt.Topology:
    """Make the network of some dimensions; the first varies fastest, as in ASTRA-sim."""
    sizes = tuple(each.npus for each in dimensions)
    names: dict[Any, str] = {npu: f"npu{npu}" for npu in range(prod(sizes))}
    links = []
    for number, each in enumerate(dimensions):
        for ends in sorted(_links(each.kind, sizes, number), key=str):
            for end in ends:
                names.setdefault(end, f"dim{number}/switch{len(names)}")
            links.append((names[ends[0]], names[ends[1]], each.bandwidth, each.latency))
    ranks = prod(sizes)
    nodes = list(names.values())
    return collopt.Topology.from_links(links, compute=nodes[:ranks], switches=nodes[ranks:], name="product")


class AstraSim:
    """Runs of ASTRA-sim in a folder."""

    def __init__(self, binary: Path, folder: Path, dimensions: list[Dimension]) -> None:
        self._binary = binary
        self._folder = folder
        self._ranks = prod(each.npus for each in dimensions)
        (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
        (folder / "network.yml").write_text(network_text(dimensions))

    def cycles(self, system: dict[str, Any], collective: str, num_bytes: int, queues: int = 1) -> int | None:
        """Time of one collective in ns; None if ASTRA-sim does not finish it."""
        for rank in range(self._ranks):
            attributes = (
                Attribute("is_cpu_op", "bool", False),
                Attribute("comm_type", "int64", COMM_TYPES[collective]),
                Attribute("comm_size", "int64", num_bytes // self._ranks if collective == "allgather" else num_bytes),
            )
            node = TraceNode(rank, collective, NodeKind.COMM_COLL, attributes=attributes)
            write_trace(Trace((node,)), self._folder / f"workload.{rank}.et")
        # Uninitialised in ASTRA-sim where it is left out.
        system = {"scheduling-policy": "LIFO"} | system
        (self._folder / "system.json").write_text(json.dumps(system))
        options = {
            "workload": "workload",
            "system": "system.json",
            "remote-memory": "memory.json",
            "network": "network.yml",
        }
        command = [str(self._binary), *(f"--{key}-configuration={value}" for key, value in options.items())]
        command.append(f"--num-queues-per-dim={queues}")
        try:
            run = subprocess.run(
                command, cwd=self._folder, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        times = [int(found) for found in re.findall(r"sys\[\d+\] finished, (\d+) cycles", run.stdout)]
        return max(times) if len(times) == self._ranks else None

    def plan_cycles(self, plan: Plan, num_bytes: int, slices: int) -> int | None:
        """Time of the traces of a plan in ns."""
        for rank, trace in enumerate(plan_traces(plan, num_bytes, slices=slices)):
            write_trace(trace, self._folder / f"plan.{rank}.et")
        collective = str(plan.collective)
        system = {f"{IMPLEMENTATIONS[collective]}-implementation-custom": ["plan"], "preferred-dataset-splits": 1}
        return self.cycles(system, collective, num_bytes)


def built_ins(
    dimensions: list[Dimension], collective: str, num_bytes: int
) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield names, settings and queues of the built-in collectives."""
    ranks, fastest = prod(each.npus for each in dimensions), max(each.bandwidth for each in dimensions)
    kinds = ["ring", "direct"]
    if collective != "all_to_all" and all(each.npus & (each.npus - 1) == 0 for each in dimensions):
        kinds.append("halvingDoubling")
    if collective == "allreduce":
        kinds.append("doubleBinaryTree")
    # All dimensions alike where there are many, and any two.
    names = (
        list(product(kinds, repeat=len(dimensions))) if len(dimensions) < 3 else [(k,) * len(dimensions) for k in kinds]
    )
    if len(dimensions) > 1:
        # On all ranks as if they were one dimension.
        whole = ["oneRing", "oneDirect"]
        if collective != "all_to_all" and ranks & (ranks - 1) == 0:
            whole.append("oneHalvingDoubling")
        names += [(each,) for each in whole]
    optimizations = ("baseline", "localBWAware") if collective == "allreduce" and len(dimensions) > 1 else ("baseline",)
    chunks = [each for each in CHUNKS if each == 1 or num_bytes / (ranks * each * fastest) >= LEAST_NS]
    for name, chunk, queues, optimization in product(names, chunks, QUEUES, optimizations):
        if chunk == 1 and queues > 1:
            continue
        system = {
            "endpoint-delay": 1,  # 0 is refused
            "local-reduction-delay": 0,
            "active-chunks-per-dimension": chunk,
            "preferred-dataset-splits": chunk,
            "collective-optimization": optimization,
            "local-mem-bw": 10**6,
            f"{IMPLEMENTATIONS[collective]}-implementation": list(name),
        }
        kind = name[0] if len(set(name)) == 1 else " and ".join(name)
        yield f"{kind}, {chunk} chunk{'s' * (chunk > 1)}", system, queues


def plans(topology: collopt.Topology, collective: str, size: str) -> Iterator[tuple[str, Plan]]:
    """Yield the plans of all planners, and that for the size."""
    with suppress(ColloptError):
        yield "auto", collopt.plan(topology, collective, size=size)
    yield from plans_for_any_size(topology, collective)


@cache
def plans_for_any_size(topology: collopt.Topology, collective: str) -> list[tuple[str, Plan]]:
    """List the plans of all planners."""
    found = []
    for planner in PLANNERS:
        with suppress(ColloptError):
            found.append((planner, collopt.plan(topology, collective, planner=planner)))
    return found


class Candidate(NamedTuple):
    """A plan in slices, with its simulated time in ns."""

    time: float
    planner: str
    plan: Plan
    slices: int


def candidates(topology: collopt.Topology, collective: str, size: str) -> list[Candidate]:
    """Simulate all plans in all numbers of slices; the fastest come first."""
    num_bytes, fastest = as_bytes(size), max(link.bandwidth for link in topology.links)
    found: list[Candidate] = []
    for planner, plan in plans(topology, collective, size):
        for slices in SLICES if plan.schedule.pipelined else SLICES[:1]:
            with suppress(ColloptError):
                count = slices if plan.schedule.pipelined else None
                run = simulate(plan, num_bytes, count, forwarding="store-and-forward", service="arrival", clock="ns")
                smallest = int(run.transfers.amounts[run.transfers.amounts > 0].min()) * run.transfers.unit
                if slices == 1 or smallest * num_bytes / (slices * fastest) >= LEAST_NS:
                    found.append(Candidate(1000 * run.microseconds, planner, plan, slices))
    return sorted(found, key=lambda each: (each.time, each.slices))


def shortlist(topology: collopt.Topology, found: list[Candidate], num_bytes: int) -> list[Candidate]:
    """Take the fastest in replays of those that simulations find about as fast as the fastest."""
    # Several planners make the same plan.
    distinct: dict[tuple[float, Fraction, int], Candidate] = {}
    for each in found:
        distinct.setdefault((each.time, each.plan.algbw, each.slices), each)
    close = [each for each in distinct.values() if each.time <= CLOSE * found[0].time][:REPLAYED]
    fewest = min(close, key=lambda each: each.slices)
    replays = []
    for each in close:
        traces = plan_traces(each.plan, num_bytes, slices=each.slices)
        if each is fewest or sum(len(trace.nodes) for trace in traces) <= MOST_MESSAGES:
            replays.append((replay_traces(traces, topology).nanoseconds, len(replays), each))
    return [each for _, _, each in sorted(replays)[:TRIED]]


def compare(
    binary: Path, network: str, topology: collopt.Topology, dimensions: list[Dimension], sizes: Iterable[str]
) -> Iterator[Result | str]:
    """Yield the results of one network, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        astra = AstraSim(binary, Path(folder), dimensions)
        for collective, size in product(IMPLEMENTATIONS, sizes):
            num_bytes = as_bytes(size)
            built_in = []
            for setting, system, queues in built_ins(dimensions, collective, num_bytes):
                taken = astra.cycles(system, collective, num_bytes, queues)
                built_in += [] if taken is None else [(taken, setting)]
            if not built_in:
                yield f"{network}: ASTRA-sim finishes no built-in {collective}; does the build take these dimensions?"
                return
            best = []
            for each in shortlist(topology, candidates(topology, collective, size), num_bytes):
                taken = astra.plan_cycles(each.plan, num_bytes, each.slices)
                slicing = f", {each.slices} slices" if each.slices > 1 else ""
                best += [] if taken is None else [(taken, f"{each.planner}{slicing}", each.time)]
            if best:
                yield Result(network, collective, size, *min(built_in), *min(best))
            else:
                yield f"{network}: ASTRA-sim finishes no plan of {collective} of {size}"


def executable(path: Path) -> Path | None:
    """Find the executable of a build."""
    if path.is_dir():
        return next(path.rglob(BINARY), None)
    return path if path.is_file() else None


def main() -> int:
    """Print a table, and what is slower than a built-in collective or more than 5 % off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help=f"{BINARY}, or a folder that holds it")
    parser.add_argument("networks", type=Path, nargs="*", help="files of networks; six named ones by default")
    parser.add_argument("--only", nargs="*", choices=list(NETWORKS), help="some of the named networks")
    parser.add_argument("--sizes", nargs="*", default=SIZES)
    arguments = parser.parse_args()
    binary = executable(arguments.build)
    if binary is None:
        print(f"skipped: {arguments.build} holds no {BINARY}")
        return 0
    networks = {path.name: collopt.read_topology(path) for path in arguments.networks}
    if not networks:
        networks = {name: product_network(NETWORKS[name]) for name in arguments.only or NETWORKS}
    print(HEADING)
    failures: list[str] = []
    for name, topology in networks.items():
        dimensions = dimensions_of(topology)
        if dimensions is None:
            print(f"{name}: skipped, as it is no product of rings, switches and full meshes")
            continue
        for result in compare(binary.resolve(), name, topology, dimensions, arguments.sizes):
            if isinstance(result, str):
                print(result)
                continue
            print(result.row(), flush=True)
            if result.plan > result.built_in or abs(result.simulated / result.plan - 1) > 0.05:
                failures.append(result.row())
    print(f"\nslower than a built-in collective, or simulated more than 5 % off: {len(failures)}", *failures, sep="\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
