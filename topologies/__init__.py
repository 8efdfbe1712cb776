"""Networks to plan on: the `Topology` type, vendor boxes, fabrics, direct-connect families, files."""

from __future__ import annotations

from .amd import mi250, mi300x
from .base_graphs import complete_bipartite, diamond, hamming
from .base_schedules import BaseSchedule, base_schedule_names, base_schedule_rows, base_transpose_names
from .catalogue import CatalogueEntry, build, catalogue
from .circulant_search import circulant_diameter, least_circulant_diameter, low_diameter_offsets
from .circulants import circulant, circulant_digraph, directed_circulant, low_diameter_circulant
from .compose import compose
from .cyclic_rings import bidirectional_ring, shifted_ring, unidirectional_ring
from .direct import complete, hypercube, ring, torus
from .direct_graph import Adjacency, DirectGraph
from .distance_regular import DISTANCE_REGULAR, distance_regular
from .expansions import (
    bidirectional,
    cartesian_power,
    cartesian_product,
    degree_expansion,
    line_graph,
    parallel,
)
from .fabrics import dragonfly, fat_tree, leaf_spine, rail
from .files import read_topology, write_topology
from .graph_properties import (
    IntersectionArray,
    average_distance,
    distance_sum,
    intersection_array,
    is_distance_regular,
    is_moore_optimal,
    is_reverse_symmetric,
    is_vertex_transitive,
    reverse_symmetry,
)
from .graphs import from_networkx, to_networkx
from .importing.boxes import read_box
from .isomorphism import automorphisms, isomorphism, orbits
from .link_classes import LinkClass, link_classes
from .node_matching import is_isomorphism
from .nvidia import dgx1_v100, dgx_a100, dgx_h100
from .optima import bandwidth_optimum, moore_bound, moore_steps, undirected_moore_bound, undirected_moore_steps
from .scale_out import Box, Nic
from .symmetries import symmetries
from .topology import Link, LinkArrays, Topology
from .trees import double_binary_tree
from .twisted import twisted_hypercube, twisted_torus
from .word_graphs import de_bruijn, generalized_kautz, kautz, modified_de_bruijn

__all__ = [
    "DISTANCE_REGULAR",
    "Adjacency",
    "BaseSchedule",
    "Box",
    "CatalogueEntry",
    "DirectGraph",
    "IntersectionArray",
    "Link",
    "LinkArrays",
    "LinkClass",
    "Nic",
    "Topology",
    "automorphisms",
    "average_distance",
    "bandwidth_optimum",
    "base_schedule_names",
    "base_schedule_rows",
    "base_transpose_names",
    "bidirectional",
    "bidirectional_ring",
    "build",
    "cartesian_power",
    "cartesian_product",
    "catalogue",
    "circulant",
    "circulant_diameter",
    "circulant_digraph",
    "complete",
    "complete_bipartite",
    "compose",
    "de_bruijn",
    "degree_expansion",
    "dgx1_v100",
    "dgx_a100",
    "dgx_h100",
    "diamond",
    "directed_circulant",
    "distance_regular",
    "distance_sum",
    "double_binary_tree",
    "dragonfly",
    "fat_tree",
    "from_networkx",
    "generalized_kautz",
    "hamming",
    "hypercube",
    "intersection_array",
    "is_distance_regular",
    "is_isomorphism",
    "is_moore_optimal",
    "is_reverse_symmetric",
    "is_vertex_transitive",
    "isomorphism",
    "kautz",
    "leaf_spine",
    "least_circulant_diameter",
    "line_graph",
    "link_classes",
    "low_diameter_circulant",
    "low_diameter_offsets",
    "mi250",
    "mi300x",
    "modified_de_bruijn",
    "moore_bound",
    "moore_steps",
    "orbits",
    "parallel",
    "rail",
    "read_box",
    "read_topology",
    "reverse_symmetry",
    "ring",
    "shifted_ring",
    "symmetries",
    "to_networkx",
    "torus",
    "twisted_hypercube",
    "twisted_torus",
    "undirected_moore_bound",
    "undirected_moore_steps",
    "unidirectional_ring",
    "write_topology",
]
