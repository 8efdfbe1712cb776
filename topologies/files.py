"""Reading a topology from any file that describes one, and writing it as JSON."""

from __future__ import annotations

import json
import os
from typing import Unpack

from ..errors import TopologyError
from ..support.writing import write_whole
from .importing.read import ImportOptions, import_network
from .network.topology import Topology
from .network.topology_json import topology_to_json

__all__ = ["read_topology", "write_topology"]


def read_topology(path: str | os.PathLike[str], **options: Unpack[ImportOptions]) -> Topology:
    """Read a topology from a file of ours, or from one that a tool wrote.

    Parameters
    ----------
    path : str or path
        JSON that `write_topology` wrote or that follows its schema, or a file of another format
        (``docs/reference/imported-files.md`` lists them).  The content decides, not the name.
    **options
        For files that describe one box: `boxes`, how many there are like it (1 if left out); `fabric`, what is between
        them, which no such file says; and whatever `read_box` and `compose` take.

    Returns
    -------
    Topology

    Raises
    ------
    FileFormatError
        If the file cannot be read, is of no known format or of a newer version, or describes a network that makes no
        sense; the message names the file and the field or line.
    TopologyError
        If an option is not usable, is missing, or asks for what the file says itself.
    """
    return import_network(path, options).topology


def write_topology(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write a topology as a JSON file that `read_topology` reads back as an equal topology.

    Parameters
    ----------
    topology : Topology
        What to write.
    path : str or path
        A file there before is replaced.

    Raises
    ------
    TopologyError
        If it is not a topology.
    OSError
        If the folder does not exist or cannot be written; nothing is left behind.
    """
    if not isinstance(topology, Topology):
        raise TopologyError(f"the topology is a {type(topology).__name__}; expected a Topology")
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
