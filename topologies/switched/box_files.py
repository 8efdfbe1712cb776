"""Boxes and slices of tori as JSON files: links by pattern, switches, NICs and the source of every figure.

``docs/reference/box-json.md`` describes the format; the files of the vendors' boxes are in ``boxes/``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...errors import FileFormatError, TopologyError
from ...support.arrays import IntArray
from ...support.files import check_header, parse_json
from ...support.quantities import as_bandwidth, as_latency
from ...support.validation import as_flag, as_size, check_links, shown
from ..network.switch_limits import SwitchLimits, as_switch_limits
from ..network.topology import Link, Topology
from .scale_out import Box, Nic

BOX_FORMAT = "collopt-box"
BOX_VERSION = 1

Fields = Mapping[str, Any]  # of a valid file


@cache
def stored_fields(name: str) -> Fields:
    """Return the fields of a vendor's box, such as ``"dgx-h100"``, which the tests validate."""
    text = (files(__package__) / "boxes" / f"{name}.json").read_text(encoding="utf-8")
    return parse_json(text, f"{name}.json", BOX_FORMAT, BOX_VERSION)


def stored_box(name: str, *, loopback: bool = True) -> Box:
    """Return a vendor's box, whose switches have no loopback if that is false."""
    box = _box(stored_fields(name))
    keep = as_flag(loopback, "loopback")
    return replace(box, limits=tuple(limit._replace(loopback=limit.loopback and keep) for limit in box.limits))


def box_from_json(data: object, where: str) -> Box:
    """Validate a decoded JSON document and make its box."""
    from pydantic import ValidationError

    from ..network.schema import BoxDocument, first_error

    check_header(data, BOX_FORMAT, BOX_VERSION, where)
    assert isinstance(data, dict)
    try:
        if BoxDocument.model_validate(data).links.pattern == "slice":
            raise FileFormatError(f"{where} describes slices of any shape, not one box; expected the pattern torus")
        return _box(data)
    except ValidationError as error:
        raise FileFormatError(f"{where}: {first_error(error)}") from None
    except TopologyError as error:
        raise FileFormatError(f"{where}: {error}") from error


def _box(data: Fields) -> Box:
    gpus, nics, switches = data["gpus"], data.get("nics"), data["switches"]
    nic_list = []
    if nics is not None:
        near, outer = (as_bandwidth(nics[name], "every NIC") for name in ("near_bandwidth", "bandwidth"))
        latencies = [as_latency(nics[name], "every NIC") for name in ("near_latency", "latency")]
        groups = [range(first, first + nics["gpus"]) for first in range(0, gpus, nics["gpus"])]
        near_switch = (nics["switch"],) if nics.get("switch") else None
        nic_list = [
            Nic(near_switch or tuple(f"gpu{gpu}" for gpu in group), near, outer, *latencies) for group in groups
        ]
    names = tuple(switch["name"] for switch in switches)
    return Box(
        data["name"],
        gpus,
        tuple(_links(data["links"], gpus)),
        tuple(nic_list),
        names,
        tuple(switch["name"] for switch in switches if switch.get("multicast")),
        (
            *(f"assumed: {words}" for words in data["assumed"]),
            *(f"not public: {words}" for words in data["not_public"]),
        ),
        limits=as_switch_limits([_limits(switch) for switch in switches], names),
    )


def _limits(switch: Fields) -> SwitchLimits:
    operators, types = (tuple(switch.get(name, ())) for name in ("operators", "types"))
    return SwitchLimits(switch["name"], switch.get("loopback", False), switch.get("group"), operators, types)


def _links(links: Fields, gpus: int) -> Iterator[Link]:
    latency = as_latency(links["latency"], "every link")
    if links["pattern"] == "torus":
        bandwidths = [as_bandwidth(value, "every link") for value in links["bandwidths"]]
        for one, other, axis in torus_links(links["shape"], [True] * len(bandwidths)).tolist():
            yield Link(f"gpu{one}", f"gpu{other}", bandwidths[axis], latency)
        return
    rate = as_bandwidth(links["bandwidth"], "every link")
    if links["pattern"] == "star":
        yield from (Link(f"gpu{gpu}", links["switch"], rate, latency) for gpu in range(gpus))
    elif links["pattern"] == "full":
        yield from (Link(f"gpu{gpu}", f"gpu{peer}", rate, latency) for gpu in range(gpus) for peer in range(gpu))
    else:
        yield from (Link(f"gpu{a}", f"gpu{b}", count * rate, latency) for a, b, count in links["pairs"])


def torus_links(
    shape: Sequence[int], closed: Sequence[bool], twists: Sequence[Sequence[int]] | None = None
) -> IntArray:
    """Return two ranks and the dimension of each link of a grid, whose `closed` dimensions are rings; int64 (links, 3).

    In twisted tori, the links that close a dimension are shifted by its row of `twists` along all dimensions.
    """
    places, sizes = np.indices(shape).reshape(len(shape), -1), np.array(shape)[:, None]
    rows, there = [], []
    for axis, size in enumerate(shape):
        # The neighbor one step along this dimension; the last node steps round, and is shifted by the twist.
        last = places[axis] == size - 1
        steps = last * np.array(np.zeros(len(shape), dtype=np.int64) if twists is None else twists[axis])[:, None]
        steps[axis] = 1
        neighbors = np.ravel_multi_index(tuple((places + steps) % sizes), tuple(shape))
        rows.append(np.column_stack([np.arange(len(last)), neighbors, np.full(len(last), axis)]))
        there.append(~last | (closed[axis] and size > 1))
    links: IntArray = np.stack(rows, axis=1)[np.stack(there, axis=1)]
    return links


def even_twists(shape: Sequence[int]) -> list[list[int]] | None:
    """Return the twists of sizes k and 2 k, by k from those of size k along the others; None for other sizes."""
    short = min(shape, default=0)
    if set(shape) != {short, 2 * short}:
        return None
    return [[short * (size == short < other) for other in shape] for size in shape]


def stored_slice(name: str, shape: Sequence[int], *, twisted: bool = False) -> Topology:
    """Make a slice of a vendor's torus, such as ``"tpu-v4"``."""
    data = stored_fields(name)
    links, chips = data["links"], data["gpus"]
    dimensions = len(links["bandwidths"])
    if len(shape) != dimensions:
        raise TopologyError(f"the shape of {name} is {shown(list(shape))}; expected {dimensions} sizes, such as 4x4")
    limit = min(chips, links.get("longest", chips))
    sizes = [as_size(size, f"dimension {number} of {name}", high=limit) for number, size in enumerate(shape)]
    label = f"{name}-{'x'.join(map(str, sizes))}"
    if not 2 <= prod(sizes) <= chips:
        raise TopologyError(f"{label} has {prod(sizes)} chips; expected 2 to {chips}")
    closed = [size % links["closed"] == 0 for size in sizes]
    if links["jointly"]:
        closed = [all(closed)] * dimensions
    twists = even_twists(sizes) if as_flag(twisted, "twisted") else None
    if twisted:
        if not all(closed) or twists is None:
            raise TopologyError(f"{label} cannot be twisted; expected sizes 4 i and 8 i, both of them, such as 4x4x8")
        label += "-twisted"
    check_links(2 * dimensions * prod(sizes), label)
    names = [f"gpu{'.'.join(map(str, place))}" for place in product(*map(range, sizes))]
    rates, latency = [Fraction(value) for value in links["bandwidths"]], Fraction(links["latency"])
    ends = torus_links(sizes, closed, twists).tolist()
    rows = [(names[one], names[other], rates[axis], latency) for one, other, axis in ends]
    return Topology.from_links(rows, compute=names, bidirectional=True, name=label)
