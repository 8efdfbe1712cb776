"""Readers of networks of simulators: YAML of ASTRA-sim's analytical backend, physical topology files of ns-3."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

from ...errors import FileFormatError
from ...support.quantities import MAX_BANDWIDTH
from ...support.validation import check_links, is_int, shown
from ..network.topology import Link, Topology
from .documents import Document, Imported, as_decimal
from .options import BoxOptions

MAX_YAML = 2**16
YAML_KEYS = ("topology", "npus_count", "bandwidth", "latency")
MAX_NPUS = 2**16
MAX_YAML_DEPTH = 8  # nesting depth; a network has four lists in one mapping
GIB = Fraction(2**30, 10**9)

_EXPONENT = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?[eE][+-]?[0-9]{1,12}")


class Dimension(NamedTuple):
    """One dimension: its kind, NPUs along it, GB/s and µs of a link."""

    kind: str
    npus: int
    bandwidth: Fraction
    latency: Fraction


def matches_astra_sim(document: Document) -> bool:
    """Return whether the content looks like such a file."""
    return all(re.search(rf"^{key}\s*:", document.text, re.MULTILINE) for key in ("topology", "npus_count"))


def read_astra_sim(document: Document, options: BoxOptions) -> Imported:
    """Make the product of the dimensions, which are rings, switches and full meshes.

    NPU numbers are mixed-radix numbers whose first dimension varies fastest.  A bandwidth is that of one link in one
    direction, in GiB/s although the files say GB/s; a latency is that of one link, in ns.
    """
    del options  # everything is in the file
    dimensions = _dimensions(document)
    npus = prod(dimension.npus for dimension in dimensions)
    if npus > MAX_NPUS:
        raise document.error(f"npus_count gives {npus} NPUs; expected at most {MAX_NPUS}")
    check_links(
        sum(npus * (axis.npus - 1 if axis.kind == "FullyConnected" else 2) for axis in dimensions), document.where
    )
    links: list[Link] = []
    switches: list[str] = []
    stride = 1
    for number, dimension in enumerate(dimensions):
        starts = (start for start in range(npus) if start // stride % dimension.npus == 0)
        for line, start in enumerate(starts):
            members = [f"npu{start + place * stride}" for place in range(dimension.npus)]
            links += _line_of_npus(dimension, members, f"dim{number}/switch{line}")
            switches += [f"dim{number}/switch{line}"] if dimension.kind == "Switch" else []
        stride *= dimension.npus
    name = "-".join(f"{dimension.kind.lower()}{dimension.npus}" for dimension in dimensions)
    ranks = [f"npu{npu}" for npu in range(npus)]
    topology = Topology.from_links(
        links, compute=ranks, switches=switches, bidirectional=True, name=f"astra-sim-{name}"
    )
    return Imported(topology, ("bandwidths are read as GiB/s, as ASTRA-sim computes, although its files say GB/s",))


def _line_of_npus(dimension: Dimension, members: list[str], switch: str) -> Iterator[Link]:
    """Return the links between NPUs that differ in one dimension only."""
    if dimension.kind == "Switch":
        pairs = [(member, switch) for member in members]
    elif dimension.kind == "FullyConnected" or len(members) == 2:
        pairs = list(combinations(members, 2))
    else:
        pairs = list(zip(members, members[1:] + members[:1], strict=True))
    return (Link(tail, head, dimension.bandwidth, dimension.latency) for tail, head in pairs)


def _dimensions(document: Document) -> list[Dimension]:
    data = _decode_yaml(document)
    lists: list[Any] = [data.get(key) for key in YAML_KEYS]
    for key, listed in zip(YAML_KEYS, lists, strict=True):
        if not isinstance(listed, list) or not listed:
            raise document.error(f"{key} is {shown(listed)}; expected a list with one entry per dimension")
    if len({len(listed) for listed in lists}) > 1:
        counts = ", ".join(f"{key} {len(listed)}" for key, listed in zip(YAML_KEYS, lists, strict=True))
        raise document.error(f"its lists differ in length: {counts}; expected one entry per dimension in each")
    return [_dimension(row, document) for row in zip(*lists, strict=True)]


def _dimension(row: tuple[Any, ...], document: Document) -> Dimension:
    kind, npus, bandwidth, latency = row
    if kind not in ("Ring", "Switch", "FullyConnected"):
        raise document.error(f"topology has {shown(kind)}; expected Ring, Switch or FullyConnected")
    if not is_int(npus) or not 2 <= npus <= MAX_NPUS:
        raise document.error(f"npus_count has {shown(npus)}; expected a whole number from 2 to {MAX_NPUS}")
    rate = _yaml_number(bandwidth, "bandwidth", document)
    if rate == 0:
        raise document.error("bandwidth has 0; expected GB/s of one link")
    return Dimension(kind, npus, rate * GIB, _yaml_number(latency, "latency", document) / 1000)


def _yaml_number(value: object, key: str, document: Document) -> Fraction:
    number = value
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        # YAML 1.1 reads an exponent without a point, as in 4e2, as text.
        try:
            number = as_decimal(value)
        except ValueError as error:
            raise document.error(str(error)) from None
    right = not isinstance(number, bool) and isinstance(number, (int, float, Decimal)) and 0 <= number <= 10**9
    if not right:
        raise document.error(f"{key} has {shown(value)}; expected a number from 0 to 1e9")
    return Fraction(Decimal(str(number)))


def _decode_yaml(document: Document) -> dict[Any, Any]:
    if len(document.text) > MAX_YAML:
        raise document.error(f"it has more than {MAX_YAML} characters; expected four lists")
    import yaml

    try:
        depth = 0
        for event in yaml.parse(document.text, Loader=yaml.SafeLoader):
            # Aliases are how a small file becomes a huge one; four lists need none.
            if isinstance(event, yaml.AliasEvent):
                raise document.error(f"it has the alias *{event.anchor}; write the value out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_YAML_DEPTH:
                line = None if event.start_mark is None else event.start_mark.line + 1
                raise document.error("its lists are nested too deeply; expected four lists", line)
        data = yaml.safe_load(document.text)
    except FileFormatError:
        raise
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise document.error(f"it is not valid YAML ({error.problem})", line) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise document.error(f"it is not valid YAML ({type(error).__name__})") from None
    if not isinstance(data, dict):
        raise document.error(f"it holds {shown(data)}; expected the lists {', '.join(YAML_KEYS)}")
    return data


MAX_NODES = 2**16
MAX_WORD = 32
MAX_NUMBER = 10**9
LONGEST = 10**9
FINEST = 10**9  # µs of a delay, and parts of one

BITS_PER_GIGABYTE = 8 * 10**9
PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
MICROSECONDS = {
    "": Fraction(10**6),
    "s": Fraction(10**6),
    "ms": Fraction(10**3),
    "us": Fraction(1),
    "ns": Fraction(1, 10**3),
    "ps": Fraction(1, 10**6),
}

_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{0,12})?)"
_RATE = re.compile(rf"{_NUMBER}(?:([kKMG]?|[KMG]i)(bps|b/s|Bps|B/s))?", re.ASCII)
_DELAY = re.compile(rf"{_NUMBER}(|s|ms|us|ns|ps)", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_ERROR_RATE = re.compile(r"[0-9]{1,4}(?:\.[0-9]{0,20})?(?:[eE]-?[0-9]{1,3})?", re.ASCII)
_WORD = re.compile(r"\S+")

_FIRST_LINE = re.compile(r"\s*[0-9]{1,9}[ \t]+[0-9]{1,9}[ \t]+[0-9]{1,9}[ \t]*\n", re.ASCII)
_LINK_LINE = re.compile(
    r"\n[ \t]*[0-9]{1,9}[ \t]+[0-9]{1,9}[ \t]+[0-9][0-9.]{0,20}[kKMG]?i?(?:bps|b/s|Bps|B/s)\s", re.ASCII
)


def matches_ns3(document: Document) -> bool:
    """Return whether it begins with three numbers, and a line has two numbers and a data rate; never raises."""
    return _FIRST_LINE.match(document.text) is not None and _LINK_LINE.search(document.text) is not None


def read_ns3(document: Document, options: BoxOptions) -> Imported:
    """Read the topology; ranks are ``npu0`` ... and switches ``switch8`` ..., by the numbers of the file.

    The format is that of HPCC's simulator (https://github.com/alibaba-edu/High-Precision-Congestion-Control,
    ``third.cc``), word by word: the numbers of nodes, switches and links, the switches, then for every link two nodes,
    a data rate, a delay and an error rate, in the units of ns-3's ``DataRate`` and ``Time``.  The text after them is
    not read.
    """
    del options  # everything is in the file
    reader = _WordReader(document)
    nodes = reader.integer("the number of nodes", 2, MAX_NODES)
    switches = reader.integer("the number of switches", 0, nodes - 2)
    count = reader.integer("the number of links", 1, MAX_NUMBER)
    check_links(2 * count, document.where)
    numbers: dict[int, int] = {}
    for _ in range(switches):
        number = reader.integer("the number of a switch", 0, nodes - 1)
        if number in numbers:
            raise reader.error(f"switch {number} appears twice, first on line {numbers[number]}; keep one")
        numbers[number] = reader.line
    names = [f"switch{node}" if node in numbers else f"npu{node}" for node in range(nodes)]
    links, lossy = _ns3_links(reader, count, names)
    topology = Topology.from_links(
        links,
        compute=[name for node, name in enumerate(names) if node not in numbers],
        switches=[names[node] for node in sorted(numbers)],
        bidirectional=True,
        name=f"ns3-{nodes - switches}npus",
    )
    note = f"error rates of {lossy} of its links were left out: schedules lose nothing"
    return Imported(topology, (note,) if lossy else ())


def _ns3_links(reader: _WordReader, count: int, names: list[str]) -> tuple[list[Link], int]:
    """Read the links, and count those with an error rate."""
    first_lines: dict[frozenset[int], int] = {}
    links, lossy = [], 0
    for number in range(count):
        tail = reader.integer(f"an end of link {number}", 0, len(names) - 1)
        line = reader.line
        head = reader.integer(f"an end of link {number}", 0, len(names) - 1)
        if tail == head:
            raise reader.error(f"a link leads from node {tail} to itself; expected two nodes", line)
        if (first := first_lines.setdefault(frozenset((tail, head)), number)) != number:
            # The simulators keep one port for each neighbor, so of several links they use the last.
            raise reader.error(
                f"nodes {tail} and {head} are linked twice, also by link {first}; expected one with the sum of both",
                line,
            )
        links.append(Link(names[tail], names[head], reader.rate(), reader.delay()))
        lossy += reader.error_rate() > 0
    return links, lossy


class _WordReader:
    """Reads words as ns-3's simulators do: line ends count as spaces."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.words = (
            (word.group(), line)
            for line, text in enumerate(document.text.split("\n"), 1)
            for word in _WORD.finditer(text)
        )
        self.text, self.line = "", 1  # the last word and its line

    def error(self, message: str, line: int | None = None) -> FileFormatError:
        """Return an error at a line, or at that of the last word."""
        return self.document.error(message, line or self.line)

    def integer(self, what: str, minimum: int, maximum: int) -> int:
        """Read a whole number."""
        expected = f"a whole number from {minimum} to {maximum}"
        number = int(self._match(what, _WHOLE, expected)[0])
        self._check(minimum <= number <= maximum, what, expected)
        return number

    def rate(self) -> Fraction:
        """Read a data rate in GB/s; like ns-3, keep whole bits per second."""
        match = self._match("a data rate", _RATE, "one such as 200Gbps")
        bits = int(Fraction(match[1]) * PREFIXES[match[2] or ""] * (8 if match[3] in ("Bps", "B/s") else 1))
        fits = 0 < bits <= MAX_BANDWIDTH * BITS_PER_GIGABYTE
        self._check(fits, "a data rate", f"more than 0, up to {float(MAX_BANDWIDTH):g} GB/s")
        return Fraction(bits, BITS_PER_GIGABYTE)

    def delay(self) -> Fraction:
        """Read a delay in µs."""
        match = self._match("a delay", _DELAY, "one such as 0.005ms")
        delay = Fraction(match[1]) * MICROSECONDS[match[2]]
        self._check(delay <= LONGEST and delay.denominator <= FINEST, "a delay", "at most 1000s, in whole femtoseconds")
        return delay

    def error_rate(self) -> float:
        """Read an error rate."""
        rate = float(self._match("an error rate", _ERROR_RATE, "a number from 0 to 1")[0])
        self._check(rate <= 1, "an error rate", "a number from 0 to 1")
        return rate

    def _match(self, what: str, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        self.text, self.line = next(self.words, ("", self.line))
        if not self.text:
            raise self.document.error(f"it ends before {what}; expected as many switches and links as it begins with")
        match = pattern.fullmatch(self.text) if len(self.text) <= MAX_WORD else None
        self._check(match is not None, what, expected)
        assert match is not None, "else it was refused"
        return match

    def _check(self, fits: bool, what: str, expected: str) -> None:
        if not fits:
            raise self.error(f"{what} is {shown(self.text)}; expected {expected}")
