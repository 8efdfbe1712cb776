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


def as_network(
    given: object, options: Mapping[str, Any] | None = None, of: Callable[..., object] | None = None
) -> Topology:
    """Return the topology that is meant by an argument of the function `of`, whose other options `options` are.

    These are the builder's or the file's; a topology and a graph have none.
    """
    if isinstance(given, (str, os.PathLike)):
        return _by_name(given, dict(options or {}))
    for option in options or {}:
        known = inspect.signature(of).parameters if of else ()
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


def _by_name(given: str | os.PathLike[str], options: dict[str, Any]) -> Topology:
    name = os.fspath(given)
    if name.replace("_", "-") not in BUILDERS:
        if isinstance(given, os.PathLike) or looks_like_path(name) or Path(name).exists():
            return read_topology(given, **options)
        find_entry(name, ", or the path of a file")
    return build(name, **options)


def looks_like_path(name: str) -> bool:
    """Whether `name` looks like a path, whether or not the file exists: ``a/b`` or ``a.xml``."""
    return bool(Path(name).suffix) or any(mark in name for mark in (os.sep, os.altsep) if mark)
