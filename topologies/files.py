"""Topologies in files, and as arguments give them: a topology, a networkx graph, a catalogue name or a path."""

import inspect
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, Unpack

from ..errors import TopologyError, UnsupportedError
from ..support.validation import hint, shown
from ..support.writing import write_whole
from .builders import BUILDERS, build, find_entry
from .importing.read import ImportOptions, import_network
from .network.topology import Topology, as_topology
from .network.topology_json import topology_to_json

if TYPE_CHECKING:
    import networkx as nx


def read_topology(path: str | os.PathLike[str], **options: Unpack[ImportOptions]) -> Topology:
    """Read a topology from collopt's JSON or from a file of another tool.

    Raises `FileFormatError`, with the file and the field or line, if the file cannot be read, has an unknown format or
    a newer version, or describes an invalid network; `TopologyError` if an option is not usable, is missing, or
    contradicts a file that is complete.

    Parameters
    ----------
    path : str or path
        JSON that `write_topology` wrote or that follows its schema, or a file of another format
        (``docs/reference/imported-files.md`` lists them).  The content decides, not the name.
    **options
        For files that describe one box: `boxes`, the number of such boxes (1 by default); `fabric`, the network between
        them, which no such file describes; and the options of `read_box` and `compose`.
    """
    return import_network(path, options).topology


def write_topology(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write a topology as a JSON file that `read_topology` reads back as an equal topology.

    Parameters
    ----------
    topology : Topology
        The topology.
    path : str or path
        An existing file is replaced.
    """
    as_topology(topology, TopologyError)
    fields = topology_to_json(topology)
    # One row per line: people compare and edit these files.
    rows = {
        key: "[\n    " + ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n  ]"
        if isinstance(value, list) and value
        else json.dumps(value, ensure_ascii=False)
        for key, value in fields.items()
    }
    body = ",\n".join(f"  {json.dumps(key)}: {text}" for key, text in rows.items())
    write_whole(path, f"{{\n{body}\n}}\n")


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
