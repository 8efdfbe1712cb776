"""Smallest sets of faults that explain measured bandwidths: lost or slower links and NICs, and lost features of NCCL.

NCCL's channels carry equal shares of the data, and it does not measure its links: a slower one holds up all channels
(src/graph/search.cc gives each channel one bandwidth).  A part that is gone is not in its search, and the rest takes
over.  So each fault predicts a range of shares of the healthy bandwidth, by the rates of the stages that are left;
ranges of features are rough, of what people report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import inf
from typing import NamedTuple

from ...errors import BoundError, NoAnswerError, UnsupportedError
from ...planners import bound
from ...planners.literature.nccl_choice import machine_of
from ...planners.literature.nccl_tuning import search
from ...schedules import ALLREDUCE, Collective
from ...support.formatting import abbreviated_names, count_text
from ...topologies import Failure, Topology
from ...topologies.network.failures import Fault
from ...topologies.symmetry.failure_orbits import failure_cases
from ..lowering.devices import names_of_boxes
from .channels import nics_of
from .nccl_log import NcclLog, unused_nics

TOLERANCE = 0.04
"""Relative difference that runs of equal machines have."""
INSIDE = (0.68, 0.86)
"""Shares of the rates of NVLink and xGMI that healthy machines reach, by their protocols."""
LEFT = (Fraction(1, 2), Fraction(1, 4))
"""What cables and slots at half or quarter width or speed leave."""
MAX_RANKS, MAX_PAIRED_RANKS, MAX_BOUND_RANKS = 64, 32, 32
"""Beyond, faults are looked for in the first two boxes; one by one; and by equal shares only."""
SHOWN = 6  # explanations at most

SOCKET = (0.02, 12.0)  # GB/s of all machines' links over TCP: one interface of 1 to 100 Gb/s, mostly
HOST_MEMORY = (1.5, 32.0)  # GB/s through host memory or PCIe 4.0 x16 at most, instead of NVLink
NO_GDR = (0.15, 0.7)  # Share of the bandwidth with GPUDirect RDMA
NO_PXN = (0.3, 0.85)  # Share of an all-to-all, whose traffic crosses rails
PER_CHANNEL = {"volta": 26.5, "ampere": 24.0, "hopper": 38.7, "blackwell": 70.0}
"""GB/s that a channel moves at most (src/graph/tuning.cc:198)."""
FEW_CHANNELS = (1, 2, 4)

WAYS = {
    "nic": "run with NCCL_IB_HCA=mlx5_0, then with each other NIC alone, on two machines: the slow one stands out",
    "inside": "run on each machine alone (-g 8): the slow one stands out; then `nvidia-smi nvlink -s` there",
    "feature": "run again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING, and give that log",
    "boxes": "run on each machine alone (-g 8): if all are fast, it is the network; then on pairs of machines",
}
"""Runs that tell faults apart."""


class Healthy(NamedTuple):
    """What a run would show on a healthy machine, and what it shows; bus bandwidths in GB/s."""

    collective: Collective
    busbw: float
    spread: float  # Relative, of healthy machines
    ceiling: float  # By NCCL's model, without the losses that all machines have
    measured: float
    root: int | None = None


@dataclass(frozen=True)
class Explanation:
    """A set of faults that happen together.

    Attributes
    ----------
    faults : tuple of str
        In words, each with its place where the log or the network tells.
    kind : {"nic", "inside", "feature"}
        Where to look for it.
    failure : Failure or None
        As the other commands take it, of one member; None of features.
    members : int
        How many such sets there are in the network: alike by its symmetries, or with the same effect on these runs.
    predicted : tuple of (float, float)
        Least and largest bus bandwidth in GB/s of each run.
    confirmed : bool
        Whether the log says so itself.
    """

    faults: tuple[str, ...]
    kind: str
    failure: Failure | None
    members: int
    predicted: tuple[tuple[float, float], ...]
    confirmed: bool = False

    @property
    def width(self) -> float:
        """Mean relative width of what it predicts: the less, the more it says."""
        return sum((high - low) / high for low, high in self.predicted) / len(self.predicted)

    def __str__(self) -> str:
        """In one line."""
        text = " and ".join(self.faults)
        if self.members > 1:
            text += f", or another of {self.members} that are alike"
        ranges = [f"{low:.3g}" + (f" to {high:.3g}" if high - low > low / 50 else "") for low, high in self.predicted]
        return f"{text}: predicts {', '.join(ranges)} GB/s{'; the log says so' if self.confirmed else ''}"

    def fits(self, runs: Sequence[Healthy]) -> bool:
        """Whether it predicts what all runs show."""
        return all(
            low / (1 + TOLERANCE + run.spread) <= run.measured <= high * (1 + TOLERANCE + run.spread)
            for (low, high), run in zip(self.predicted, runs, strict=True)
        )


def explain(topology: Topology, runs: Sequence[Healthy], log: NcclLog) -> tuple[Explanation, ...]:
    """List the smallest sets of faults that explain all runs; what the log says first, then what predicts most.

    What the log refutes is left out.  The result is empty if no one or two faults explain the runs.
    """
    network = _Network(topology, runs)
    singles = [*_features(network, log), *_listed_nics(network, log), *_hardware(network, log)]
    fitting = [entry for entry in singles if entry.fits(runs)]
    if all(entry.kind == "feature" and not entry.confirmed for entry in fitting):  # None, or but rough guesses
        fitting += [entry for entry in _pairs(network, singles) if entry.fits(runs)]
    fitting = [entry for entry in fitting if entry.confirmed] or fitting
    by_words = {entry.faults: entry for entry in sorted(fitting, key=lambda entry: -entry.width)}
    return tuple(sorted(by_words.values(), key=lambda entry: (len(entry.faults), entry.width))[:SHOWN])


def run_to_tell_apart(explanations: Sequence[Explanation], boxes: int, log: NcclLog) -> str:
    """Name the run that tells explanations apart, or finds the place of the only one; empty where the log says it."""
    kinds = {entry.kind for entry in explanations if not entry.confirmed}
    if "feature" in kinds or not (explanations or log.has_lines):
        return WAYS["feature"]
    if not kinds and explanations:
        return ""
    return WAYS["boxes" if len(kinds) != 1 and boxes > 1 else min(kinds, default="inside")]


class _Network:
    """Rates of the stages that data passes, and what faults leave of them."""

    def __init__(self, topology: Topology, runs: Sequence[Healthy]) -> None:
        self.topology = topology
        self.runs = runs
        self.nics = nics_of(topology)
        self.boxes = names_of_boxes(topology)
        self.has_fabric = bool(self.nics) and len(self.boxes) > 1
        self.inside, self.outside = self._stages(topology)

    def _stages(self, topology: Topology) -> tuple[float, float]:
        """Rates in GB/s of the slowest GPU into its box, and of the slowest box into the fabric; infinite without."""
        nics = set(self.nics)
        inside = dict.fromkeys(topology.compute_nodes, Fraction(0))
        near, far = ({nic: Fraction(0) for nic in self.nics} for _ in range(2))
        for link in topology.links:
            if link.head in nics and link.tail in inside:
                near[link.head] += link.bandwidth
            elif link.tail in nics and link.head not in inside:
                far[link.tail] += link.bandwidth
            elif link.tail in inside:
                inside[link.tail] += link.bandwidth
        boxes = dict.fromkeys(self.boxes, Fraction(0))
        for nic in self.nics:
            boxes[nic.rpartition("/")[0]] += min(near[nic], far[nic])
        return float(min(inside.values())) or inf, float(min(boxes.values())) if self.has_fabric else inf

    def place(self, fault: Fault) -> str:
        """Return "nic" or "inside"."""
        return "inside" if set(self.nics).isdisjoint(fault.nodes) else "nic"

    def left(self, failure: Failure) -> tuple[float, float]:
        """Rates of both stages for channels of equal shares, which wait for the slowest link of each."""
        gone = Failure(tuple(fault for fault in failure.faults if not fault.factor))
        rates = self._stages(gone.applied(self.topology))
        slower = [fault for fault in failure.faults if fault.factor]
        inside, outside = (
            rate * min([1.0, *(float(fault.factor) for fault in slower if self.place(fault) == place)])
            for place, rate in zip(("inside", "nic"), rates, strict=True)
        )
        return inside, outside

    def explanations(
        self, words: tuple[str, ...], kind: str, failure: Failure, members: int, *, confirmed: bool = False
    ) -> Iterator[Explanation]:
        """Explain by equal shares, and for what is gone by the best that any software makes of the rest."""
        inside, outside = self.left(failure)
        share = min(inside, outside) / min(self.inside, self.outside)
        ranges = []
        for run in self.runs:
            # Losses that all machines have scale along, or the fault hides them.
            low, high = share * run.busbw, share * run.ceiling
            if inside < outside < inf and not run.collective.in_pairs:
                low, high = INSIDE[0] * inside, INSIDE[1] * inside
            ranges.append((min(run.busbw, low), min(run.busbw, max(low, high))))
        yield Explanation(words, kind, failure, members, tuple(ranges), confirmed)
        if any(fault.factor for fault in failure.faults) or self.topology.num_ranks > MAX_BOUND_RANKS:
            return
        with suppress(UnsupportedError, NoAnswerError, BoundError):
            remainder = failure.applied(self.topology)
            bounds = [
                [bound(network, run.collective, root=run.root).busbw for network in (remainder, self.topology)]
                for run in self.runs
            ]
            rates = [run.busbw * float(after / before) for run, (after, before) in zip(self.runs, bounds, strict=True)]
            yield Explanation(words, kind, failure, members, tuple((rate, rate) for rate in rates), confirmed)


def _hardware(network: _Network, log: NcclLog) -> Iterator[Explanation]:
    """Lost and slower NICs and links, one of each class of symmetry."""
    topology, part = network.topology, _first_boxes(network.topology)
    listed, idle = unused_nics(log)
    all_used = listed >= len(network.nics) // len(network.boxes) > 0 and not idle
    done = set[tuple[str, ...]]()
    for case in failure_cases(part, ["nic", "link"] if network.has_fabric else ["link"], derate=LEFT):
        (fault,) = case.failure.faults
        place, words = network.place(fault), (_words(network, fault),)
        is_inner = place == "inside" and not set(topology.compute_nodes).isdisjoint(fault.nodes)
        # The links of a NIC on both sides are one fault for every run.
        if words in done or not (place == "nic" or is_inner):
            continue
        done.add(words)
        members = len(case.members) * topology.num_ranks // part.num_ranks
        if not is_inner or fault.factor or not topology.switch_nodes:
            if fault.factor or is_inner or not all_used:
                yield from network.explanations(words, place, case.failure, members)
        elif not _only_p2p(log):
            ranges = tuple((HOST_MEMORY[0], min(HOST_MEMORY[1], run.busbw)) for run in network.runs)
            yield Explanation(words, place, case.failure, members, ranges)


def _first_boxes(topology: Topology) -> Topology:
    """Leave out boxes beyond the second of large networks, whose faults are alike."""
    boxes = names_of_boxes(topology)[:2]
    if topology.num_ranks <= MAX_RANKS or len(boxes) < 2:
        return topology
    nodes = {node for node in topology.nodes if "/" not in node or node.rpartition("/")[0] in boxes}
    kept, switches = (
        [node for node in group if node in nodes] for group in (topology.compute_nodes, topology.switch_nodes)
    )
    links = [link for link in topology.links if nodes.issuperset(link[:2])]
    return Topology.from_links(links, compute=kept, switches=switches, name=topology.name)


def _words(network: _Network, fault: Fault) -> str:
    left = f"at {fault.factor} of its rate" if fault.factor else "lost"
    if network.place(fault) == "nic":
        name = next(node for node in fault.nodes if node in network.nics)
        return f"NIC {name}, its cable or slot {left}" if fault.factor else f"NIC {name} lost"
    gpu = next(node for node in fault.nodes if node in network.topology.compute_nodes)
    if len(fault.nodes) == 2 and not set(fault.nodes) <= set(network.topology.compute_nodes):
        has_nvlink = not any(node.endswith("pcie") for node in fault.nodes)
        return f"{gpu} without NVLink" if has_nvlink and not fault.factor else f"links of {gpu} {left}"
    return f"link {' - '.join(fault.nodes)} {left}"


def _listed_nics(network: _Network, log: NcclLog) -> Iterator[Explanation]:
    """NICs that the log does not list, or whose number no channel uses."""
    own = [nic for nic in network.nics if nic.rpartition("/")[0] == network.boxes[0]]
    short = {host: len(own) - len(nics) for host, nics in log.nics.items() if len(nics) < len(own)}
    idle = unused_nics(log, len(own))[1]
    count = max(short.values(), default=len(idle))
    if network.has_fabric and 0 < count < len(own):
        where = f"not in NCCL's list on {abbreviated_names(sorted(short))}" if short else "that no channel uses"
        failure = Failure.of(network.topology, map(Fault, zip(own[:count], strict=True)))
        words = (f"{count} of {len(own)} NICs {where}",)
        yield from network.explanations(words, "nic", failure, 1, confirmed=True)


def _only_p2p(log: NcclLog) -> bool:
    inner = log.hops_over(network=False)
    return bool(inner) and all(hop.via.startswith("P2P") for hop in inner)


def _features(network: _Network, log: NcclLog) -> Iterator[Explanation]:
    """Features of NCCL that may be off; what the log refutes is left out."""
    runs, over_net = network.runs, log.hops_over(network=True)
    claims: list[tuple[str, Iterable[tuple[float, float]], bool | None]] = []
    if len(network.boxes) > 1:
        named = {log.network, *(hop.via for hop in over_net)} - {""}
        is_socket = any("Socket" in name for name in named) if named else None
        is_socket = True if log.settings.get("NCCL_IB_DISABLE") == "1" and not named else is_socket
        claims.append(("TCP sockets instead of InfiniBand, RoCE or EFA", [SOCKET for _ in runs], is_socket))
        lacks_gdr = not all(hop.gdr for hop in over_net) and not is_socket if over_net else None
        ranges = [(NO_GDR[0] * run.busbw, NO_GDR[1] * run.busbw) for run in runs]
        cause = "no GPUDirect RDMA" if lacks_gdr else "no GPUDirect RDMA, or PCIe ACS is on"
        claims.append((f"{cause}: data passes host memory", ranges, lacks_gdr))
        if any(run.collective.in_pairs for run in runs):
            ranges = [
                (NO_PXN[0] * run.busbw, NO_PXN[1] * run.busbw) if run.collective.in_pairs else (run.busbw, run.busbw)
                for run in runs
            ]
            claims.append(("no PXN: each GPU reaches all machines over its own NIC", ranges, None))
    if network.inside < inf:
        inner = log.hops_over(network=False)
        has_shm = any(hop.via.startswith("SHM") for hop in inner) if inner else None
        has_shm = True if log.settings.get("NCCL_P2P_DISABLE") == "1" else has_shm
        ranges = [(HOST_MEMORY[0], min(HOST_MEMORY[1], run.busbw)) for run in runs]
        claims.append(("no P2P between GPUs: data passes host memory (SHM)", ranges, has_shm))
    if network.topology.aggregation and len(network.boxes) == 1 and any(run.collective is ALLREDUCE for run in runs):
        # Rings lose as much of what NCCL's model says as NVLS does.
        ring = search(machine_of(network.topology), "ring")
        rings = float(ring.channels * ring.inside)
        shares = [min(1.0, rings / run.ceiling) if run.collective is ALLREDUCE else 1.0 for run in runs]
        ranges = [(share * run.busbw, share * run.busbw) for share, run in zip(shares, runs, strict=True)]
        lacks_nvls = None if log.nvls is None else not log.nvls
        if log.settings.get("NCCL_NVLS_ENABLE") == "0" or log.settings.get("NCCL_ALGO", "NVLS").upper() in (
            "RING",
            "TREE",
        ):
            lacks_nvls = True
        claims.append(("no NVLink SHARP (NVLS): rings instead", ranges, lacks_nvls))
    rate = PER_CHANNEL[machine_of(network.topology).generation]
    for count in FEW_CHANNELS if log.channels is None else {log.channels} & {*FEW_CHANNELS}:
        if all(count * rate < run.busbw for run in runs):
            ranges = [(0.45 * count * rate, count * rate) for _ in runs]
            claims.append((count_text(count, "channel") + " only", ranges, True if log.channels else None))
    for words, predicted, says in claims:
        if says is not False:
            yield Explanation((words,), "feature", None, 1, tuple(predicted), confirmed=bool(says))


def _pairs(network: _Network, singles: Sequence[Explanation]) -> Iterator[Explanation]:
    """Two faults of hardware: the first member of a class, and another at each place, counted where alike."""
    topology = network.topology
    own = {entry.faults: entry for entry in singles if entry.failure and len(entry.failure.faults) == 1}
    plain = {*topology.switch_nodes} - {*network.nics}
    if topology.num_ranks > MAX_PAIRED_RANKS:
        return
    for first, second in combinations_with_replacement(own.values(), 2):
        assert first.failure is not None
        assert second.failure is not None
        here, kind = first.failure.faults[0], first.kind if first.kind == second.kind else "inside"
        groups: dict[tuple[float, float], list[Failure]] = {}
        for there in _same_kind(topology, second.failure.faults[0]):
            common = {*here.nodes} & {*there.nodes} - plain
            if not common or network.place(here) != network.place(there):
                failure = Failure.of(topology, (here, there))
                groups.setdefault(network.left(failure), []).append(failure)
        for failures in groups.values():
            words = tuple(_words(network, fault) for fault in failures[0].faults)
            yield from network.explanations(
                words, kind, failures[0], first.members * len(failures) // (1 + (first is second))
            )


def _same_kind(topology: Topology, fault: Fault) -> list[Fault]:
    """Faults of the same kind at the other nodes of the same roles."""

    def roles(nodes: Sequence[str]) -> list[str]:
        return [node.rpartition("/")[2].rstrip("0123456789") for node in nodes]

    pairs = [link[:2] for link in topology.links] if len(fault.nodes) == 2 else [(node,) for node in topology.nodes]
    index = topology.node_index
    ordered = [nodes for nodes in pairs if index[nodes[0]] <= index[nodes[-1]]]
    return [Fault(nodes, fault.factor) for nodes in ordered if roles(nodes) == roles(fault.nodes)]
