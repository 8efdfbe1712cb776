"""Reading of topologies from JSON and imported formats, and writing as JSON."""

import json
import os
from typing import Unpack

from ..errors import TopologyError
from ..support.writing import write_whole
from .importing.read import ImportOptions, import_network
from .network.topology import Topology, as_topology
from .network.topology_json import topology_to_json


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
