"""What NCCL or RCCL says of itself in a log: machines, devices, NICs, rings, trees, transports and its choices.

Lines are those of NCCL 2.4 to 2.30 with ``NCCL_DEBUG=INFO`` (src/debug.cc:354 puts host, process, thread and device in
front of them): rings (src/graph/rings.cc:45), neighbors and trees (src/init.cc:1493), transports of channels
(src/transport/p2p.cc:416, shm.cc:116, net.cc:324), NICs (src/transport/net_ib/init.cc:444 and 513, net_socket.cc:77),
channels (src/init.cc:1646), NVLS (src/transport/nvls.cc:279) and choices (src/enqueue.cc:822); numbers of lines are those
of 2.30.7.  Devices are those of nccl-tests (src/util.cu:687).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import FileFormatError
from ...support.formatting import abbreviated_names, count_text
from ...support.validation import shown

MAX_RANKS, MAX_CHANNELS = 2**17, 2**10
ERRORS = (
    "NCCL WARN",
    "NCCL failure",
    "Test failure",
    "Test NCCL failure",
    "Test CUDA failure",
    "unhandled system error",
)

_DEVICE = re.compile(
    r"Rank\s+(\d{1,6})\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+\d+\s+\[([^]]*)\]\s+(\S.*)"
)
_INFO = re.compile(r"([\w.-]+):(\d+):\d+ \[\d+\] NCCL (?:INFO|WARN) +(.*)")
_RING = re.compile(r"Channel (\d{1,4})(?:/\d+)? : +(\d[\d ]*?)( ?\.\.\.)?$")
_NEIGHBORS = re.compile(r"Ring (\d{1,4}) : (\d{1,6}) -> (\d{1,6}) -> (\d{1,6})$")
_TREE = re.compile(r"\[(\d{1,4})\] -?\d+/-?\d+/-?\d+->(\d{1,6})->(-?\d{1,6})(?= \[|$)")
_HOP = re.compile(
    r"Channel (\d{1,4})(?:/(\d+))? : (\d{1,6})\[\w+\] -> (\d{1,6})\[\w+\] (?:\[(send|receive)\] )?via "
    r"(?:NET/(.+?)/(\d{1,4})(?:\((\d+)\))?((?:/\S+)*)|((?:P2P|SHM)\S*))"
)
_IB = re.compile(r"NET/IB : Using (.*?)(?:\[RO\])?\s*; OOB")
_NIC = re.compile(r"\[\d+\](\S+)")
_SPEED = re.compile(r"NET/IB: \[(\d+)\] (\S+) .*\bspeed=(\d+)")
_COMM = re.compile(r"comm 0x\w+ rank (\d+) nranks (\d+) .*commId (0x\w+)")
_CHOICE = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
_CHANNELS = re.compile(r"(\d+) coll channels, (?:(\d+) collnet channels, )?(?:(\d+) nvls channels, )?")


class Hop(NamedTuple):
    """A connection of a channel."""

    channel: int
    sender: int
    receiver: int
    via: str  # ``P2P/CUMEM``, ``SHM/direct``, ``NET/IB``
    end: str  # "send" or "receive" of connections over a network; else empty
    nic: int | None  # its number on the machine
    proxy: int | None  # the rank whose NIC the sender uses by PXN
    gdr: bool


class Choice(NamedTuple):
    """What NCCL chose for a call."""

    collective: str  # as NCCL spells it
    num_bytes: int
    algorithm: str
    protocol: str
    channels: int


@dataclass(frozen=True)
class NcclLog:
    """What a log says of one run.

    Attributes
    ----------
    devices : mapping from int to tuple
        Host and product of each rank, as nccl-tests lists them.
    hosts : tuple of str
        In rank order.
    version, network : str
        Of NCCL, and what it calls the network; empty if the log does not say.
    nics : mapping from str to tuple of str
        Those that NCCL lists on each host.
    speeds : mapping from str to int
        Mb/s of NICs by their names, in new versions.
    rings : mapping from int to tuple of int
        Ranks by channel, of those that are complete.
    trees : mapping from int to tuple of int
        Parent of each rank by channel, -1 of the root.
    hops : tuple of Hop
    nvls : bool or None
        Whether NVLink SHARP is available.
    channels : int or None
    choices : tuple of Choice
    has_lines : bool
        Whether there are lines of NCCL.
    errors : tuple of str
        Lines about errors.
    """

    devices: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    version: str = ""
    network: str = ""
    nics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    speeds: Mapping[str, int] = field(default_factory=dict)
    rings: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    trees: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    hops: tuple[Hop, ...] = ()
    nvls: bool | None = None
    channels: int | None = None
    choices: tuple[Choice, ...] = ()
    has_lines: bool = False
    errors: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts in rank order."""
        return tuple(dict.fromkeys(host for _, (host, _) in sorted(self.devices.items())))

    @property
    def net_hops(self) -> tuple[Hop, ...]:
        """Connections over a network."""
        return tuple(hop for hop in self.hops if hop.via.startswith("NET/"))

    @property
    def inner_hops(self) -> tuple[Hop, ...]:
        """Connections inside machines."""
        return tuple(hop for hop in self.hops if not hop.via.startswith("NET/"))


def read_nccl_log(text: str, where: str) -> NcclLog:
    """Read the lines of NCCL, and nccl-tests' list of devices, of one run.

    Raises `FileFormatError` where lines of two jobs are mixed.
    """
    return _Reader(where).read(text)


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where
        self._devices: dict[int, tuple[str, str]] = {}
        self._facts: dict[str, str] = {}
        self._nics: dict[str, tuple[str, ...]] = {}
        self._speeds: dict[str, int] = {}
        self._rings: dict[int, tuple[int, ...]] = {}
        self._neighbors: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._parents: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._hops: dict[Hop, None] = {}
        self._choices: dict[Choice, None] = {}
        self._nvls: bool | None = None
        self._channels: int | None = None
        self._has_lines = False
        self._comms: dict[str, int] = {}  # ranks of each communicator
        self._jobs: dict[tuple[str, str], int] = {}  # processes that list rings, and the line
        self._errors: dict[str, None] = {}

    def read(self, text: str) -> NcclLog:
        for number, line in enumerate(text.splitlines(), 1):
            if "NCCL version" in line:
                self._facts.setdefault("version", line.partition("NCCL version")[2].strip().split("+")[0])
            if any(mark in line for mark in ERRORS):
                self._errors[line.strip()[-160:]] = None
            if info := _INFO.search(line):
                self._has_lines = True
                self._info(info[1], info[2], info[3].rstrip(), number)
            elif device := _DEVICE.search(line):
                self._devices[int(device[1])] = device[3], device[5].strip()
            elif choice := _CHOICE.search(line):
                self._choose(choice)
        if len(self._comms) > 1 and len(set(self._comms.values())) > 1:
            sizes = ", ".join(map(str, self._comms.values()))
            raise FileFormatError(f"{self._where} mixes lines of communicators of {sizes} ranks; {_SEPARATE}")
        ranks = max(self._comms.values(), default=0) or len(self._devices)
        rings = self._rings | {
            channel: ring
            for channel, following in self._neighbors.items()
            if channel not in self._rings and len(ring := _walk(following)) == len(following) == ranks
        }
        trees = {
            channel: tuple(parent[rank] for rank in range(ranks))
            for channel, parent in self._parents.items()
            if ranks and parent.keys() == set(range(ranks))
        }
        return NcclLog(
            self._devices,
            self._facts.get("version", ""),
            self._facts.get("network", ""),
            self._nics,
            self._speeds,
            rings,
            trees,
            tuple(self._hops),
            self._nvls,
            self._channels,
            tuple(self._choices),
            self._has_lines,
            tuple(self._errors),
        )

    def _info(self, host: str, process: str, words: str, number: int) -> None:
        """Read one line of NCCL."""
        if hop := _HOP.match(words):
            self._hop(hop)
        elif ring := _RING.match(words):
            first = self._jobs.setdefault((host, process), number)
            if len(self._jobs) > 1:
                raise FileFormatError(
                    f"{self._where} lists rings of two jobs, {host}:{process} and another from line {first}; {_SEPARATE}"
                )
            if not ring[3]:
                self._rings[int(ring[1])] = tuple(map(int, ring[2].split()))
        elif neighbors := _NEIGHBORS.match(words):
            self._neighbors[int(neighbors[1])][int(neighbors[3])] = int(neighbors[4])
        elif words.startswith("Trees"):
            for channel, rank, parent in _TREE.findall(words):
                self._parents[int(channel)][int(rank)] = int(parent)
        elif nics := _IB.match(words):
            self._nics[host] = tuple(_NIC.findall(nics[1]))
        elif speed := _SPEED.match(words):
            self._speeds[speed[2].partition(":")[0]] = int(speed[3])
        elif comm := _COMM.search(words):
            self._comms[comm[3]] = int(comm[2])
        elif choice := _CHOICE.match(words):
            self._choose(choice)
        elif channels := _CHANNELS.match(words):
            self._channels = int(channels[1])
        elif "NVLS multicast support is" in words:
            self._nvls = "not available" not in words and self._nvls is not False
        elif words.startswith("Using network "):
            self._facts["network"] = words.removeprefix("Using network ")
        elif words.startswith("NET/Socket : Using") and "network" not in self._facts:
            self._facts["network"] = "Socket"

    def _hop(self, hop: re.Match[str]) -> None:
        channel, index, sender, receiver, end, network, nic, proxy, tail, inner = hop.groups()
        if index not in (None, "0"):  # Connections of sends and receives, not of collectives
            return
        via = f"NET/{network}" if network else inner
        numbers = (None if number is None else int(number) for number in (nic, proxy))
        self._hops[
            Hop(int(channel), int(sender), int(receiver), via, end or "", *numbers, "GDRDMA" in (tail or ""))
        ] = None

    def _choose(self, choice: re.Match[str]) -> None:
        low, high = int(choice[5]), int(choice[6])
        self._choices[Choice(choice[1], int(choice[2]), choice[3], choice[4], high - low + 1)] = None


_SEPARATE = "put each job into a file of its own"


def _walk(following: Mapping[int, int]) -> tuple[int, ...]:
    """Follow a ring from rank 0."""
    ring, rank = [0], following.get(0, 0)
    while rank and rank in following and len(ring) < len(following):
        ring.append(rank)
        rank = following[rank]
    return tuple(ring)


def read_graph_dump(
    text: str, where: str, boxes: int, ranks_per_box: int
) -> tuple[dict[int, tuple[int, ...]], list[Hop]]:
    """Read rings of all boxes, and their NICs, from the file that ``NCCL_GRAPH_DUMP_FILE`` names, of one box.

    Ring ``id`` 0; GPUs and NICs are hexadecimal (src/graph/search.cc:902).  The last GPU of a box sends to the first of
    the next box, as NCCL connects equal boxes (src/graph/connect.cc, ``connectRings``).
    """
    if "<!" in text:  # Entities would expand
        raise FileFormatError(f"{where} has a document type or comments; expected NCCL's NCCL_GRAPH_DUMP_FILE")
    try:
        root = ET.fromstring(text)  # noqa: S314 - without entities
    except ET.ParseError as error:
        raise FileFormatError(
            f"{where} is not well-formed XML ({error}); expected NCCL's NCCL_GRAPH_DUMP_FILE"
        ) from None
    graph = next((graph for graph in root.iter("graph") if graph.get("id") == "0"), None)
    if root.tag != "graphs" or graph is None:
        raise FileFormatError(f"{where} has no graph of rings; expected the file of NCCL_GRAPH_DUMP_FILE")
    rings: dict[int, tuple[int, ...]] = {}
    hops: list[Hop] = []
    for number, channel in enumerate(graph.iter("channel")):
        gpus, nets = ([_device(element, where) for element in channel.iter(tag)] for tag in ("gpu", "net"))
        if sorted(gpus) != list(range(ranks_per_box)):
            listing = abbreviated_names([f"gpu {gpu}" for gpu in gpus])
            raise FileFormatError(
                f"{where}: channel {number} has {listing}; expected {count_text(ranks_per_box, 'GPU')}"
            )
        rings[number] = tuple(box * ranks_per_box + gpu for box in range(boxes) for gpu in gpus)
        for box in range(boxes if len(nets) == 2 and boxes > 1 else 0):
            sender, receiver = box * ranks_per_box + gpus[-1], (box + 1) % boxes * ranks_per_box + gpus[0]
            ends = (("send", nets[1]), ("receive", nets[0]))
            hops += [Hop(number, sender, receiver, "NET", end, nic, None, True) for end, nic in ends]
    return rings, hops


def _device(element: ET.Element, where: str) -> int:
    text = element.get("dev", "")
    if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}", text):
        raise FileFormatError(f"{where}: dev of <{element.tag}> is {shown(text)}; expected a hexadecimal number")
    return int(text, 16)


def unused_nics(log: NcclLog) -> tuple[int, tuple[int, ...]]:
    """Return how many NICs a host lists at most, and which of these numbers no channel uses."""
    listed = max(map(len, log.nics.values()), default=0)
    used = {hop.nic for hop in log.net_hops}
    return listed, tuple(number for number in range(listed) if number not in used) if used else ()


def gpu_products(devices: Iterable[tuple[str, str]]) -> Sequence[str]:
    """List the products of devices, each once."""
    return list(dict.fromkeys(product for _, product in devices))
