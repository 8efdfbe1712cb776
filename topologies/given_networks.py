"""Networks as arguments give them: a topology, a networkx graph, a catalogue name or a file."""

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ..errors import UnsupportedError
from ..support.validation import hint, shown
from .builders import BUILDERS, build, find_entry
from .files import read_topology
from .network.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

NetworkLike = Union[Topology, "nx.Graph", str, os.PathLike[str]]
"""What functions take for a network: strings are names of the catalogue, or else paths."""


def as_network(given: object, options: Mapping[str, Any], of: Callable[..., object]) -> Topology:
    """Return the topology that an argument of the function `of` means, given the options that are not `of`'s own.

    They are the builder's or the file's; a topology and a graph have none.
    """
    if isinstance(given, os.PathLike) or (isinstance(given, str) and names_file(given)):
        return read_topology(given, **options)
    if isinstance(given, str):
        return build(find_entry(given, ", or the path of a file").name, **options)
    for option in options:
        known = inspect.signature(of).parameters
        raise UnsupportedError(
            f"there is no option {shown(option)}{hint(option, known)}; those of a network go with its name, such as "
            "plan('dgx-a100', 'allgather', boxes=2)"
        )
    if isinstance(given, Topology):
        return given
    if hasattr(given, "nodes") and hasattr(given, "edges"):
        return Topology.from_networkx(given)
    raise UnsupportedError(
        f"the topology is {shown(given)}; expected one such as collopt.topologies.ring(4), a networkx graph, a name "
        "such as 'dgx-a100', or a path"
    )


def names_file(name: str) -> bool:
    """Whether a network's name is a file's: none of the catalogue, and one that exists or looks like a path."""
    return name.replace("_", "-") not in BUILDERS and (looks_like_path(name) or Path(name).exists())


def looks_like_path(name: str) -> bool:
    """Whether `name` looks like a path, whether or not the file exists: ``a/b`` or ``a.xml``."""
    return bool(Path(name).suffix) or any(mark in name for mark in (os.sep, os.altsep) if mark)
