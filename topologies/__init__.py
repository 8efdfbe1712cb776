"""Network topologies: the `Topology` type, vendor boxes, fabrics, direct-connect families, imported files.

Arguments that are not of the documented form raise `TopologyError`, or `UnsupportedError` if they are graphs.
"""

from .builders import CatalogueEntry, build, catalogue, read_topology, topology, write_topology
from .direct_connect.basic_graphs import (
    complete,
    complete_bipartite,
    de_bruijn,
    dgx_spark,
    diamond,
    double_binary_tree,
    generalized_kautz,
    hamming,
    hypercube,
    kautz,
    modified_de_bruijn,
    ring,
    torus,
    twisted_hypercube,
    twisted_torus,
)
from .direct_connect.circulants import (
    bidirectional_ring,
    circulant,
    circulant_digraph,
    directed_circulant,
    low_diameter_circulant,
    low_diameter_offsets,
    metacirculant_digraph,
    shifted_ring,
    unidirectional_ring,
)
from .direct_connect.distance_regular import DISTANCE_REGULAR, distance_regular
from .direct_connect.expansions import (
    bidirectional,
    cartesian_power,
    cartesian_product,
    degree_expansion,
    line_graph,
    parallel,
)
from .direct_connect.optimal_broadcasts import (
    BaseSchedule,
    bandwidth_optimum,
    base_schedule_rows,
    moore_steps,
    undirected_moore_steps,
)
from .importing.read import compose, read_box
from .network.devices import Device
from .network.direct_graph import Adjacency, DirectGraph
from .network.failures import Failure, Fault, Scaling, scaled_links
from .network.link_costs import LinkClass, guessed_costs, link_classes, reached_network
from .network.runtime_costs import LINKS_ONLY, RuntimeCosts
from .network.topology import Link, LinkArrays, SwitchLimits, Topology
from .switched.fabrics import dragonfly, fat_tree, leaf_spine, rail
from .switched.scale_out import Box, Nic
from .switched.vendor_boxes import (
    dgx1_v100,
    dgx_a100,
    dgx_b200,
    dgx_b300,
    dgx_h100,
    dgx_h200,
    gaudi3,
    gb200_nvl72,
    gb300_nvl72,
    helios,
    hgx_h20,
    l40s,
    mi250,
    mi300a,
    mi300x,
    mi325x,
    mi355x,
    nvl576,
    rtx_pro_6000,
    tpu_v4,
    tpu_v5e,
    tpu_v5p,
    tpu_v6e,
    trn2,
    trn2_ultraserver,
    trn3_ultraserver,
)
from .symmetry.failure_orbits import FailureCase, failure_cases
from .symmetry.isomorphism import automorphisms, isomorphism, reverse_symmetry, symmetries

__all__ = ["Device", "Link", "LinkArrays", "LinkClass", "SwitchLimits", "Topology"]
__all__ += ["LINKS_ONLY", "RuntimeCosts", "guessed_costs", "reached_network"]
__all__ += ["link_classes", "read_topology", "symmetries", "topology", "write_topology"]
__all__ += ["Failure", "FailureCase", "Fault", "Scaling", "failure_cases", "scaled_links"]
__all__ += ["CatalogueEntry", "build", "catalogue"]
__all__ += ["Box", "Nic", "compose", "read_box"]
__all__ += ["dgx1_v100", "dgx_a100", "dgx_b200", "dgx_b300", "dgx_h100", "dgx_h200", "hgx_h20", "l40s", "rtx_pro_6000"]
__all__ += ["gb200_nvl72", "gb300_nvl72", "nvl576"]
__all__ += ["gaudi3", "helios", "mi250", "mi300a", "mi300x", "mi325x", "mi355x"]
__all__ += ["trn2", "trn2_ultraserver", "trn3_ultraserver"]
__all__ += ["tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e"]
__all__ += ["dgx_spark", "dragonfly", "fat_tree", "leaf_spine", "rail"]
__all__ += ["complete", "hypercube", "ring", "torus", "twisted_hypercube", "twisted_torus"]
__all__ += ["bidirectional_ring", "double_binary_tree", "shifted_ring", "unidirectional_ring"]
__all__ += ["circulant", "circulant_digraph", "directed_circulant", "metacirculant_digraph"]
__all__ += ["low_diameter_circulant", "low_diameter_offsets"]
__all__ += ["DISTANCE_REGULAR", "complete_bipartite", "diamond", "distance_regular", "hamming"]
__all__ += ["de_bruijn", "generalized_kautz", "kautz", "modified_de_bruijn"]
__all__ += ["BaseSchedule", "base_schedule_rows"]
__all__ += ["Adjacency", "DirectGraph", "bidirectional", "line_graph", "parallel"]
__all__ += ["cartesian_power", "cartesian_product", "degree_expansion"]
__all__ += ["automorphisms", "isomorphism", "reverse_symmetry"]
__all__ += ["bandwidth_optimum", "moore_steps", "undirected_moore_steps"]
