"""Topologies in files, and as arguments give them: a topology, a networkx graph, a catalogue name or a path."""

import inspect
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, Unpack

from ..errors import TopologyError, UnsupportedError
from ..support.validation import hint, shown
from ..support.writing import write_whole
from .builders import BUILDERS, build, catalogue, find_entry
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


def topology(network: NetworkLike, **options: Any) -> Topology:
    """Return the topology that a catalogue name, a file or a networkx graph describes; a topology stays as it is.

    Raises `TopologyError` for an unknown name, or an option that the builder or the file does not have; as
    `read_topology` for files.

    Parameters
    ----------
    network : str, path, networkx.Graph or Topology
        A name of the catalogue, such as ``"dgx-a100"``, or else the path of a file.
    **options
        Of the named network, as for `collopt.topologies.build`, or of the file, as for `read_topology`.

    Examples
    --------
    >>> topology("dgx-a100", boxes=2)
    <Topology 'dgx-a100-2boxes': 16 ranks, 19 switches, 96 links>
    """
    if isinstance(network, os.PathLike) or (isinstance(network, str) and names_file(network)):
        return read_topology(network, **options)
    if isinstance(network, str):
        return build(find_entry(network, ", or the path of a file").name, **options)
    is_graph = hasattr(network, "nodes") and hasattr(network, "edges") and not isinstance(network, Topology)
    for option in options:
        advice = "collopt.Topology.from_networkx takes those of graphs" if is_graph else "only names and files have any"
        raise UnsupportedError(f"there is no option {shown(option)} of {shown(network)}; {advice}")
    if is_graph:
        return Topology.from_networkx(network)
    if isinstance(network, Topology):
        return network
    raise UnsupportedError(
        f"the topology is {shown(network)}; expected one such as collopt.topologies.ring(4), a networkx graph, a name "
        "such as 'dgx-a100', or a path"
    )


def refuse_options(verb: Callable[..., object], network: object, options: Mapping[str, object]) -> None:
    """Raise `UnsupportedError` for the first of these options, which a function that takes a network does not have."""
    refuse_network_options(verb, network, options)
    for option in options:
        parameters = inspect.signature(verb).parameters
        raise UnsupportedError(f"{verb.__name__} has no option {shown(option)}{hint(option, parameters)}")


def refuse_network_options(verb: Callable[..., object], network: object, options: Mapping[str, object]) -> None:
    """Raise `UnsupportedError` for an option of networks, which is `topology`'s and not the function's."""
    for option, value in options.items():
        of_names = any(option == parameter.name for entry in catalogue() for parameter in entry.parameters)
        if of_names or option in ImportOptions.__annotations__:
            if not isinstance(network, str | os.PathLike):
                raise UnsupportedError(f"{option} is an option of networks by name or file, not of {shown(network)}")
            name = os.fspath(network)
            raise UnsupportedError(
                f"{option} is an option of the network; write "
                f"{verb.__name__}(collopt.topology({name!r}, {option}={shown(value)}), ...)"
            )


def names_file(name: str) -> bool:
    """Whether a network's name is a file's: none of the catalogue, and one that exists or looks like a path."""
    return name.replace("_", "-") not in BUILDERS and (looks_like_path(name) or _exists(name))


def _exists(name: str) -> bool:
    with suppress(OSError):  # longer than names of files may be
        return Path(name).exists()
    return False


def looks_like_path(name: str) -> bool:
    """Whether `name` looks like a path, whether or not the file exists: ``a/b`` or ``a.xml``."""
    return bool(Path(name).suffix) or any(mark in name for mark in (os.sep, os.altsep) if mark)
