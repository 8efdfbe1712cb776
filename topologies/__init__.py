"""Networks to plan on: the `Topology` type, vendor boxes, fabrics, direct-connect families, files."""

from __future__ import annotations

from .amd import mi250, mi300x
from .catalogue import CatalogueEntry, build, catalogue
from .direct import complete, hypercube, ring, torus
from .direct_graph import Adjacency, DirectGraph
from .fabrics import dragonfly, fat_tree, leaf_spine, rail
from .files import read_topology, write_topology
from .graphs import from_networkx, to_networkx
from .nvidia import dgx1_v100, dgx_a100, dgx_h100
from .topology import Link, LinkArrays, Topology

__all__ = [
    "Adjacency",
    "CatalogueEntry",
    "DirectGraph",
    "Link",
    "LinkArrays",
    "Topology",
    "build",
    "catalogue",
    "complete",
    "dgx1_v100",
    "dgx_a100",
    "dgx_h100",
    "dragonfly",
    "fat_tree",
    "from_networkx",
    "hypercube",
    "leaf_spine",
    "mi250",
    "mi300x",
    "rail",
    "read_topology",
    "ring",
    "to_networkx",
    "torus",
    "write_topology",
]
