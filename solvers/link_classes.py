"""Nodes and links that are alike, as the solvers take them; see `collopt.topologies.link_orbits` for how and why."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import SolverError, UnsupportedError
from ..topologies.link_orbits import LinkOrbits as LinkClasses
from ..topologies.link_orbits import link_orbits
from ..topologies.link_orbits import no_link_orbits as no_classes

__all__ = ["LinkClasses", "link_classes", "no_classes"]

IntArray = npt.NDArray[np.int64]


def link_classes(
    tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray, automorphisms: IntArray
) -> LinkClasses:
    """Tell which ranks and links some automorphisms map to each other, after checking that they are automorphisms.

    Parameters
    ----------
    tails, heads, capacities, demands, automorphisms
        As `collopt.topologies.link_orbits.link_orbits` takes them.

    Returns
    -------
    LinkClasses

    Raises
    ------
    SolverError
        If a row is no permutation, or takes a rank to a switch, a link to none of the same capacity, or a demand to
        another one.
    """
    try:
        return link_orbits(tails, heads, capacities, demands, automorphisms)
    except UnsupportedError as error:
        raise SolverError(str(error)) from None
