"""Topologies as JSON documents; ``docs/reference/topology-json.md`` describes them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...errors import FileFormatError, TopologyError
from ...support.json_files import check_header
from .link_classes import link_classes, matching_classes
from .topology import Topology

TOPOLOGY_FORMAT = "collopt-topology"
TOPOLOGY_VERSION = 1


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """Convert a topology to lists, strings and integers for `json.dumps`."""
    return {
        "format": TOPOLOGY_FORMAT,
        "version": TOPOLOGY_VERSION,
        "name": topology.name,
        "compute": list(topology.compute_nodes),
        "switches": [_switch(topology, switch) for switch in topology.switch_nodes],
        "links": [[link.tail, link.head, _plain(link.bandwidth), _plain(link.latency)] for link in topology.links],
        **({} if topology.costs is None else {"costs": topology.costs.to_json()}),
    }


def topology_from_json(data: object, where: str) -> Topology:
    """Validate a decoded JSON document and build its topology."""
    from pydantic import ValidationError

    from .schema import TopologyDocument, first_error

    check_header(data, TOPOLOGY_FORMAT, TOPOLOGY_VERSION, where)
    try:
        document = TopologyDocument.model_validate(data)
        topology = Topology(
            tuple(document.compute),
            tuple(switch.name for switch in document.switches),
            tuple(document.links),
            frozenset(switch.name for switch in document.switches if switch.multicast),
            frozenset(switch.name for switch in document.switches if switch.aggregation),
            document.name,
            tuple(switch.limits for switch in document.switches),
            None if document.costs is None else document.costs.costs,
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
    """Name and abilities of a switch, and what limits it, if anything does."""
    abilities = {"multicast": switch in topology.multicast, "aggregation": switch in topology.aggregation}
    given = next((limits.given for limits in topology.limits if limits.switch == switch), {})
    return {"name": switch, **abilities, **given}


def _plain(number: Fraction) -> int | str:
    return number.numerator if number.denominator == 1 else str(number)
