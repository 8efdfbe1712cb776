"""What NCCL or RCCL says of itself in a log: machines, devices, NICs, rings, trees, transports and its choices.

Lines are those of NCCL 2.4 to 2.30 with ``NCCL_DEBUG=INFO`` (src/debug.cc:354 puts host, process, thread and device in
front): rings (src/graph/rings.cc:45), neighbors and trees (src/init.cc:1493), transports of channels (src/transport/
p2p.cc:416, shm.cc:116, net.cc:324), NICs (src/transport/net_ib/init.cc:444 and 513), channels (src/init.cc:1646), NVLS
(src/transport/nvls.cc:279; settings by src/misc/param.cc) and choices (src/enqueue.cc:822); line numbers are those of
2.30.7.  Devices are those of nccl-tests (src/util.cu:687).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import FileFormatError
from ...support.formatting import abbreviated_names, count_text
from ...support.validation import shown

ERRORS = ("NCCL WARN", "NCCL failure", "Test failure", "Test NCCL failure", "Test CUDA failure")
MAX_LINE = 4096  # characters; longer ones are of other programs
MAX_PRINTED = 20  # ranks of a ring that NCCL 2.5 to 2.27 print, without dots (src/graph/rings.cc:9 of 2.21.5)
_DEVICE = re.compile(r"Rank\s+(\d{1,6})\s.*?\bPid\s+(\d+)\s+on\s+(?:(\S+)\s+)?device\s+\d+\s+\[[^]]*\]\s+(\S.*)")
_INFO = re.compile(r"(?<![\w.-])([\w.-]+):(\d+):\d+ \[\d+\] NCCL (?:INFO|WARN) +(.*)")
_RING = re.compile(r"^Channel (\d{1,4})(?:/\d+)? : +(\d[\d ]*?)( ?\.\.\.)?$")
_NEIGHBORS = re.compile(r"^Ring (\d{1,4}) : \d{1,6} -> (\d{1,6}) -> (\d{1,6})$")
_TREE = re.compile(r"\[(\d{1,4})\] -?\d+/-?\d+/-?\d+->(\d{1,6})->(-?\d{1,6})(?= \[|$)")
_HOP = re.compile(
    r"^(?:Channel|Ring) (\d{1,4})(?:/(\d+))? : (\d{1,6})(?:\[\w+\])? -> (\d{1,6})(?:\[\w+\])? "
    r"(?:\[(send|receive)\] )?via "
    r"(?:NET/(.+?)/(\d{1,4})(?:\((\d+)\))?((?:/\S+)*)|((?:P2P|SHM)\S*))"
)
_IB = re.compile(r"NET/IB : Using (.*?)(?:\[RO\])?\s*; OOB")
_OFI = re.compile(r"NET/OFI Selected [Pp]rovider is efa.*\(found (\d{1,3}) nics\)")
_SPEED = re.compile(r"NET/IB: \[\d+\] ([^\s:]+)\S* .*\bspeed=(\d{1,9})\b")
_COMM = re.compile(r"comm 0x\w+ rank \d+ nranks (\d{1,6}) .*commId (0x\w+)")
_CHOICE = re.compile(r"\b(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
_CHANNELS = re.compile(r"^(\d{1,4}) coll channels, ")
_NVLS = re.compile(r"NVLS multicast support is (not )?available|^NCCL_NVLS_ENABLE set by environment to (0)\.")
_SETTING = re.compile(r"\b(NCCL_[A-Z0-9_]+)(?:=| set by environment to )[\"']?([\w.:,^=-]+)")
_NETWORK = re.compile(r"^Using network (\S.*)")


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


@dataclass
class NcclLog:
    """What a log says of one run.

    Attributes
    ----------
    devices : dict from int to tuple
        Host and product of each rank, as nccl-tests lists them.
    version, network : str
        Of NCCL, and what it calls the network; empty if the log does not say.
    nics : dict from str to tuple of str
        Those that NCCL lists on each host.
    speeds : dict from str to int
        Mb/s of NICs by their names, in new versions.
    rings, trees : dict from int to tuple of int
        By channel, if complete: ranks in order; parent of each rank, -1 of the root.
    hops : list of Hop
    nvls : bool or None
        Whether NVLink SHARP is available on all GPUs; None if the log does not say, as of `channels`.
    channels : int or None
    choices : list of Choice
    settings : dict from str to str
        Variables of NCCL that lines of command or NCCL itself name.
    has_lines : bool
        Whether there are lines of NCCL.
    errors : list of str
        Lines about errors.
    """

    devices: dict[int, tuple[str, str]] = field(default_factory=dict)
    version: str = ""
    network: str = ""
    nics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    speeds: dict[str, int] = field(default_factory=dict)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[int, tuple[int, ...]] = field(default_factory=dict)
    hops: list[Hop] = field(default_factory=list)
    nvls: bool | None = None
    channels: int | None = None
    choices: list[Choice] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    has_lines: bool = False
    errors: list[str] = field(default_factory=list)

    def hops_over(self, *, network: bool) -> list[Hop]:
        """Connections over a network, or inside machines."""
        return [hop for hop in self.hops if hop.via.startswith("NET/") == network]


def read_nccl_log(text: str, where: str) -> NcclLog:
    """Read the lines of NCCL, and nccl-tests' list of devices, of one run.

    Raises `FileFormatError` where lines of two jobs are mixed.
    """
    log, reader = NcclLog(), _Reader()
    for line in (line for line in text.splitlines() if len(line) <= MAX_LINE):
        if not log.version and "NCCL version" in line:
            log.version = line.partition("NCCL version")[2].strip().split("+")[0]
        if any(mark in line for mark in ERRORS):
            log.errors.append(line.strip()[-160:])
        if "NCCL_" in line:
            log.settings |= {name: value.rstrip(".") for name, value in _SETTING.findall(line)}
        info = _INFO.search(line)
        log.has_lines = log.has_lines or bool(info)
        words = info[3].rstrip() if info else line
        for pattern, read in _LINES:
            if match := pattern.search(words):
                read(reader, log, match, (info[1], info[2]) if info else ("", ""))
                break
    reader.refuse_mixtures(where)
    ranks = set(range(max(reader.comms.values(), default=0) or len(log.devices)))
    if len(ranks) > MAX_PRINTED:
        log.rings = {channel: ring for channel, ring in log.rings.items() if len(ring) != MAX_PRINTED}
    for channel, following in reader.following.items():
        if channel not in log.rings and len(ring := _walk(following)) == len(following) == len(ranks):
            log.rings[channel] = ring
    for channel, parents in reader.parents.items():
        if parents.keys() == ranks:
            log.trees[channel] = tuple(parents[rank] for rank in sorted(ranks))
    log.hops = list(dict.fromkeys(log.hops))
    return log


Job = tuple[str, str]  # Host and process


class _Reader:
    """Reads lines into a log, and keeps what is complete at the end only."""

    def __init__(self) -> None:
        self.following: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.parents: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.comms: dict[str, int] = {}  # Ranks of each communicator
        self.jobs: dict[Job, None] = {}  # That list rings, as rank 0 does
        self.processes: defaultdict[int, set[tuple[str | None, str]]] = defaultdict(set)  # Of each device

    def refuse_mixtures(self, where: str) -> None:
        """Refuse lines of two jobs, or of runs beside each other."""
        if len(self.jobs) > 1 or len(set(self.comms.values())) > 1:
            sizes = ", ".join(map(str, self.comms.values()))
            jobs = " and ".join(":".join(job) for job in self.jobs)
            what = f"rings of two jobs, {jobs}" if len(self.jobs) > 1 else f"communicators of {sizes} ranks"
            raise FileFormatError(f"{where} mixes lines of {what}; put each job into a file of its own")
        if crowd := max(map(len, self.processes.values()), default=1) - 1:
            raise FileFormatError(
                f"{where} lists one rank {crowd + 1} times: as many runs beside each other, none of all GPUs; build "
                "nccl-tests with MPI=1"
            )

    def device(self, log: NcclLog, match: re.Match[str], _: Job) -> None:
        rank, process = int(match[1]), (match[3], match[2])
        self.processes[rank].add(process)
        log.devices[rank] = match[3] or "", match[4].strip()

    def hop(self, log: NcclLog, match: re.Match[str], _: Job) -> None:
        channel, index, sender, receiver, end, network, nic, proxy, tail, inner = match.groups()
        if index in (None, "0"):  # Others are of sends and receives, not of collectives
            via, gdr = f"NET/{network}" if network else inner, "GDRDMA" in (tail or "")
            device, via_rank = (None if number is None else int(number) for number in (nic, proxy))
            log.hops.append(Hop(int(channel), int(sender), int(receiver), via, end or "", device, via_rank, gdr))

    def ring(self, log: NcclLog, match: re.Match[str], job: Job) -> None:
        self.jobs[job] = None
        if not match[3]:
            log.rings[int(match[1])] = tuple(map(int, match[2].split()))

    def neighbors(self, _: NcclLog, match: re.Match[str], __: Job) -> None:
        self.following[int(match[1])][int(match[2])] = int(match[3])

    def trees(self, _: NcclLog, match: re.Match[str], __: Job) -> None:
        for channel, rank, parent in _TREE.findall(match.string):
            self.parents[int(channel)][int(rank)] = int(parent)

    def nics(self, log: NcclLog, match: re.Match[str], job: Job) -> None:
        log.nics[job[0]] = tuple(re.findall(r"\[\d+\](\S+)", match[1]))

    def efa(self, log: NcclLog, match: re.Match[str], job: Job) -> None:
        log.nics[job[0]] = tuple(f"efa{number}" for number in range(int(match[1])))

    def speed(self, log: NcclLog, match: re.Match[str], _: Job) -> None:
        log.speeds[match[1]] = int(match[2])

    def comm(self, _: NcclLog, match: re.Match[str], __: Job) -> None:
        self.comms[match[2]] = int(match[1])

    def choice(self, log: NcclLog, match: re.Match[str], _: Job) -> None:
        log.choices.append(Choice(match[1], int(match[2]), match[3], match[4], int(match[6]) - int(match[5]) + 1))

    def channels(self, log: NcclLog, match: re.Match[str], _: Job) -> None:
        log.channels = int(match[1])

    def nvls(self, log: NcclLog, match: re.Match[str], _: Job) -> None:
        log.nvls = not (match[1] or match[2]) and log.nvls is not False

    def network(self, log: NcclLog, match: re.Match[str], _: Job) -> None:
        log.network = match[1]


_LINES = (
    (_HOP, _Reader.hop), (_RING, _Reader.ring), (_NEIGHBORS, _Reader.neighbors), (re.compile("^Trees "), _Reader.trees),
    (_DEVICE, _Reader.device), (_IB, _Reader.nics), (_SPEED, _Reader.speed), (_COMM, _Reader.comm),
    (_OFI, _Reader.efa), (_CHOICE, _Reader.choice), (_CHANNELS, _Reader.channels), (_NVLS, _Reader.nvls),
    (_NETWORK, _Reader.network),
)  # fmt: skip
"""What reads each kind of line."""


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


def unused_nics(log: NcclLog, own: int = 0) -> tuple[int, tuple[int, ...]]:
    """Return how many NICs a host lists at most, or `own` if the log lists none, and whose numbers no channel uses."""
    listed = max(map(len, log.nics.values()), default=own)
    over_net = log.hops_over(network=True)
    used, channels = {hop.nic for hop in over_net}, {hop.channel for hop in over_net}
    is_known = bool(log.nics) or (log.channels is not None and len(channels) >= log.channels)
    return listed, tuple(number for number in range(listed) if number not in used) if used and is_known else ()
