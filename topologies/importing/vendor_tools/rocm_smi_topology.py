"""Reader of ``rocm-smi --showtopo``: types and weights of the links between the GPUs of one box.

The hops are 1 on every xGMI path, direct or not (ROCm/rocm-systems issue 5763), so direct links are identified by their
weight, 15.  The number of parallel links is not printed.
"""

import re
from collections.abc import Sequence

from ...switched.scale_out import Box
from ..sources.document import Document
from ..sources.options import BoxOptions
from ..sources.text_matrix import TextMatrix, plain_lines, titled_table
from .box_from_links import PcieLocation
from .xgmi import LINK_TYPE, WEIGHT, box_of_types, locations_by_weight

GPU_LABEL = re.compile(r"GPU\d{1,4}", re.ASCII)
TYPES = "Link Type between two GPUs"
WEIGHTS = "Weight between two GPUs"
_NUMA = re.compile(r"GPU\[(\d{1,4})\]\s*:\s*\(Topology\)\s*Numa Node:\s*(-?\d{1,4})\b", re.ASCII)


def matches_topology_tables(document: Document) -> bool:
    """Return whether it has a title of the tables; never raises."""
    return TYPES in document.text or WEIGHTS in document.text


def read_topology_tables(document: Document, options: BoxOptions) -> Box:
    """Read the tables of weights, link types and NUMA nodes."""
    lines = plain_lines(document)
    types = titled_table(document, lines, TYPES, GPU_LABEL, LINK_TYPE)
    if types is None:
        raise document.error(f"there is no table '{TYPES}'; expected all that `rocm-smi --showtopo` prints")
    weights = titled_table(document, lines, WEIGHTS, GPU_LABEL, WEIGHT)
    if weights is not None:
        if weights.labels != types.labels:
            raise document.error(
                f"its tables of weights and of link types are of different GPUs, {len(weights.labels)} and "
                f"{len(types.labels)}; expected the same"
            )
        weights.check_symmetry(document)
    return box_of_types(document, options, types, weights, lambda: _locations(document, lines, types, weights))


def _locations(
    document: Document, lines: Sequence[str], types: TextMatrix, weights: TextMatrix | None
) -> tuple[list[PcieLocation], str]:
    """Assign GPUs to the CPUs of their NUMA nodes, or by weight where those are missing."""
    nodes: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        found = _NUMA.search(line)
        if found is None:
            continue
        label, node = f"GPU{int(found.group(1))}", int(found.group(2))
        if nodes.setdefault(label, node) != node:
            raise document.error(f"{label} is on two NUMA nodes, {nodes[label]} and {node}; expected one", number)
    if not nodes.keys() >= set(types.labels) or min(nodes.values()) < 0:
        return locations_by_weight(weights, len(types.labels))
    order = {node: cpu for cpu, node in enumerate(sorted({nodes[label] for label in types.labels}))}
    return [PcieLocation(order[nodes[label]]) for label in types.labels], "every NUMA node is modeled as one CPU"
