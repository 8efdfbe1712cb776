"""Symmetric direct-connect networks with awkward bandwidths: ``from direct_networks import DIRECT``."""

from __future__ import annotations

from collopt.topologies import complete, hypercube, ring, torus

__all__ = ["DIRECT"]

DIRECT = [
    *(ring(size, bandwidth=bandwidth) for size, bandwidth in ((3, "1/3"), (4, 25), (5, "200/3"), (8, 12.37))),
    *(torus(*shape, bandwidth="25/7") for shape in ((2, 3), (3, 3), (4, 4), (2, 2, 2), (3, 3, 2), (5, 4))),
    *(hypercube(dimension, bandwidth=50) for dimension in (2, 3, 4)),
    *(complete(size, bandwidth="0.1") for size in (3, 5, 8)),
]
