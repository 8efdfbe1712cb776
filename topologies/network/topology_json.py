"""Topologies as JSON documents; ``docs/reference/topology-json.md`` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import FileFormatError, TopologyError
from ...support.arrays import decode_integers, encode_integers
from ...support.files import check_header
from .link_costs import link_classes, matching_classes
from .links import LinkColumns
from .topology import Topology

if TYPE_CHECKING:
    from .schema import ArraysDocument, LinkArraysEntry, TopologyDocument

TOPOLOGY_FORMAT = "collopt-topology"
TOPOLOGY_VERSION = 2
ABILITIES = {"name", "multicast", "aggregation"}
MAX_ROWS = 2**16  # links that are written row by row, in version 1


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """Convert a topology to lists, strings and integers for `json.dumps`."""
    as_arrays = topology.num_links > MAX_ROWS
    switches = (_switch(topology, switch) for switch in topology.switch_nodes)
    return {
        "format": TOPOLOGY_FORMAT,
        "version": TOPOLOGY_VERSION if as_arrays else 1,
        "name": topology.name,
        "compute": list(topology.compute_nodes),
        "switches": [row["name"] if as_arrays and not any([*row.values()][1:]) else row for row in switches],
        "links": _link_arrays(topology.columns)
        if as_arrays
        else [[link.tail, link.head, _plain(link.bandwidth), _plain(link.latency)] for link in topology.links],
        **({} if topology.costs is None else {"costs": topology.costs.to_json()}),
        **({"devices": {device.node: device.stated for device in topology.devices}} if topology.devices else {}),
    }


def topology_from_json(data: object, where: str) -> Topology:
    """Validate a decoded JSON document and build its topology."""
    from pydantic import ValidationError

    from .schema import ArraysDocument, TopologyDocument, first_error

    check_header(data, TOPOLOGY_FORMAT, TOPOLOGY_VERSION, where)
    assert isinstance(data, Mapping)
    links: Any
    # `Topology` checks plain names faster than pydantic.
    plain = {
        name: data[name]
        for name in ("compute", "switches")
        if data["version"] == 2 and isinstance(data.get(name), list) and set(map(type, data[name])) == {str}
    }
    try:
        document: ArraysDocument | TopologyDocument
        if data["version"] == 1:
            document = TopologyDocument.model_validate(data)
            links = tuple(document.links)
        else:
            document = ArraysDocument.model_validate({**data, **{name: [] for name in plain}})
            nodes = sum(len(plain.get(name, getattr(document, name))) for name in ("compute", "switches"))
            links = _columns(document.links, nodes, where)
        topology = Topology(
            tuple(plain.get("compute", document.compute)),
            tuple(plain.get("switches", [switch.name for switch in document.switches])),
            links,
            frozenset(switch.name for switch in document.switches if switch.multicast),
            frozenset(switch.name for switch in document.switches if switch.aggregation),
            document.name,
            # Those of a hundred thousand switches without any would take seconds to check.
            tuple(switch.limits for switch in document.switches if switch.model_fields_set - ABILITIES),
            None if document.costs is None else document.costs.costs,
            tuple(entry.of(node) for node, entry in document.devices.items()),
        )
        if topology.costs is not None:
            matching_classes(link_classes(topology), dict(topology.costs.efficiency))
        topology.check_ports()
        return topology
    except ValidationError as error:
        raise FileFormatError(f"{where}: {first_error(error)}") from None
    except TopologyError as error:
        raise FileFormatError(f"{where}: {error}") from error


def _switch(topology: Topology, switch: str) -> dict[str, Any]:
    """Return name, abilities and limits of a switch."""
    abilities = {"multicast": switch in topology.multicast, "aggregation": switch in topology.aggregation}
    return {"name": switch, **abilities, **topology.limits_of.get(switch, {})}


def _link_arrays(columns: LinkColumns) -> dict[str, Any]:
    ends = {name: encode_integers(getattr(columns, name)) for name in ("tails", "heads", "kinds")}
    return {"count": len(columns.tails), **ends, "rates": [list(map(_plain, rate)) for rate in columns.rates]}


def _columns(links: LinkArraysEntry, nodes: int, where: str) -> LinkColumns:
    for missing in [name for name, size in (("nodes", nodes), ("rates", len(links.rates))) if links.count and not size]:
        raise FileFormatError(f"{where}: field links has {links.count} links, but there are no {missing}")
    tails, heads, kinds = (
        decode_integers(
            getattr(links, name), links.count, f"{where}: field links.{name}", low_limit=0, high_limit=size - 1
        )
        for name, size in (("tails", nodes), ("heads", nodes), ("kinds", len(links.rates)))
    )
    unused = np.flatnonzero(np.bincount(kinds, minlength=len(links.rates)) == 0)
    if len(unused):
        raise FileFormatError(f"{where}: row {unused[0]} of links.rates is used by no link; remove it")
    return LinkColumns(tails, heads, kinds, tuple(links.rates))


def _plain(number: Fraction) -> int | str:
    return number.numerator if number.denominator == 1 else str(number)
