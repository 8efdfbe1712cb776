"""Which links of a topology the paths of a schedule use."""

from __future__ import annotations

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import shown
from ...topologies import Topology
from ..traffic.collective import Direction


def path_links(starts: IntArray, nodes: IntArray, topology: Topology, direction: Direction = "broadcast") -> IntArray:
    """Look up the links of all paths.

    Shapes: `starts` int64 (paths + 1,).
    """
    if not isinstance(topology, Topology):
        raise UnsupportedError(f"the topology is {shown(topology)}; expected a Topology")
    goes_on = np.ones(len(nodes), dtype=np.bool_)
    goes_on[starts[1:] - 1] = False
    tails = np.flatnonzero(goes_on)
    ends = (tails, tails + 1) if direction == "broadcast" else (tails + 1, tails)
    size = len(topology.nodes)
    wanted = nodes[ends[0]] * size + nodes[ends[1]]
    known = topology.arrays.tails * size + topology.arrays.heads
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    if ((nodes < 0) | (nodes >= size)).any() or (known[order][place] != wanted).any():
        raise CertificateError("a path uses a link that the topology does not have")
    return np.asarray(order[place], dtype=np.int64)
