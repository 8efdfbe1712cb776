"""Reader of ASTRA-sim's network YAML for its analytical backend: a product of rings, switches and full meshes.

NPU numbers are mixed-radix numbers whose first dimension varies fastest.  A bandwidth is that of one link in one
direction; the simulator multiplies it by 2**30, so it is in GiB/s although the files say GB/s.  A latency is that of
one link, in ns; a path through a switch has two links.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

from ....errors import FileFormatError
from ....support.validation import check_links, is_int, shown
from ...network.topology import Link, Topology
from ..sources.document import Document, Imported
from ..sources.json_text import as_decimal
from ..sources.options import BoxOptions

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
    """Make the product of the dimensions."""
    del options  # everything is in the file
    dimensions = _dimensions(document)
    npus = prod(dimension.npus for dimension in dimensions)
    if npus > MAX_NPUS:
        raise document.error(f"npus_count gives {npus} NPUs; expected at most {MAX_NPUS}")
    per_line = {"Ring": lambda n: 2 * n, "Switch": lambda n: 2 * n, "FullyConnected": lambda n: n * (n - 1)}
    check_links(sum(npus // each.npus * per_line[each.kind](each.npus) for each in dimensions), document.where)
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
    made = Topology.from_links(links, compute=ranks, switches=switches, bidirectional=True, name=f"astra-sim-{name}")
    return Imported(made, ("bandwidths are read as GiB/s, as ASTRA-sim computes, although its files say GB/s",))


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
