"""Networks by their names in the catalogue, from files, and as arguments of functions give them."""

import inspect
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, Unpack, get_args, get_origin, get_type_hints

from ..errors import TopologyError, UnsupportedError
from ..support.files import write_whole
from ..support.quantities import Exact
from ..support.validation import hint, shown
from .direct_connect import basic_graphs as graphs
from .direct_connect import circulants, distance_regular
from .importing.read import ImportOptions, import_network
from .network.topology import Topology, as_topology
from .network.topology_json import topology_to_json
from .switched import fabrics
from .switched import vendor_boxes as boxes

if TYPE_CHECKING:
    import networkx as nx

REQUIRED = inspect.Parameter.empty  # value of `Parameter.default` for a required option

BUILDERS: dict[str, Callable[..., Topology]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        boxes.dgx_a100, boxes.dgx_h100, boxes.dgx_h200, boxes.hgx_h20, boxes.dgx_b200, boxes.dgx_b300,
        boxes.gb200_nvl72, boxes.gb300_nvl72, boxes.nvl576, boxes.dgx1_v100, boxes.l40s, boxes.rtx_pro_6000,
        graphs.dgx_spark, boxes.mi250, boxes.mi300a, boxes.mi300x, boxes.mi325x, boxes.mi355x, boxes.helios,
        boxes.gaudi3, boxes.trn2, boxes.trn2_ultraserver, boxes.trn3_ultraserver, boxes.tpu_v4, boxes.tpu_v5p,
        boxes.tpu_v5e, boxes.tpu_v6e, fabrics.leaf_spine, fabrics.rail, fabrics.fat_tree, fabrics.dragonfly,
        graphs.ring, circulants.unidirectional_ring, circulants.bidirectional_ring, circulants.shifted_ring,
        graphs.double_binary_tree, circulants.circulant, circulants.low_diameter_circulant,
        circulants.circulant_digraph, circulants.directed_circulant, circulants.metacirculant_digraph, graphs.kautz,
        graphs.generalized_kautz, graphs.de_bruijn, graphs.modified_de_bruijn, graphs.diamond,
        distance_regular.distance_regular, graphs.torus, graphs.twisted_torus, graphs.complete_bipartite,
        graphs.hamming, graphs.twisted_hypercube, graphs.hypercube, graphs.complete,
    )
}  # fmt: skip

EXPECTED = {
    "integer": "a whole number",
    "integers": "whole numbers such as 1,4,5",
    "number": "a number, exact if written as 12.5 or 65/3",
    "flag": "true or false",
    "shape": "sizes such as 4x4",
}
FLAGS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
KINDS = {frozenset({int}): "integer", frozenset({bool}): "flag", frozenset(get_args(Exact)): "number"}


@dataclass(frozen=True)
class Parameter:
    """One option of a builder; `optional` where None, written ``none``, is a value too."""

    name: str  # as in the function's signature
    kind: str  # a key of `EXPECTED`
    default: object = REQUIRED  # `REQUIRED` where there is none
    optional: bool = False

    @property
    def required(self) -> bool:
        """Whether the option must be given."""
        return self.default is REQUIRED

    @property
    def expected(self) -> str:
        """The expected form of a value, for messages."""
        return EXPECTED[self.kind] + (", or none" if self.optional else "")


@dataclass(frozen=True)
class CatalogueEntry:
    """A builder: its `name`, such as ``"fat-tree"``, `summary`, `function` and `parameters` in the signature's order.

    The summary is the first line of the function's documentation.
    """

    name: str
    summary: str
    function: Callable[..., Topology]
    parameters: tuple[Parameter, ...]


@cache
def catalogue() -> tuple[CatalogueEntry, ...]:
    """List every topology that can be built by name.

    Examples
    --------
    >>> [entry.name for entry in catalogue()][:3]
    ['dgx-a100', 'dgx-h100', 'dgx-h200']
    """
    entries = []
    for name, function in BUILDERS.items():
        hints = get_type_hints(function)
        parameters = [
            _parameter(option, hints[option.name]) for option in inspect.signature(function).parameters.values()
        ]
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        entries.append(CatalogueEntry(name, summary, function, tuple(parameters)))
    return tuple(entries)


def _parameter(parameter: inspect.Parameter, hint: object) -> Parameter:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return Parameter(parameter.name, "shape")
    if get_origin(hint) is Sequence:
        return Parameter(parameter.name, "integers", parameter.default)
    types = set(get_args(hint)) or {hint}
    kind = KINDS[frozenset(types - {type(None)})]
    return Parameter(parameter.name, kind, parameter.default, type(None) in types)


def build(name: str, /, **options: object) -> Topology:
    """Build a topology by its catalogue name.

    Raises `TopologyError` for an unknown name or option, a missing option, or a value that the builder cannot use.

    Parameters
    ----------
    name : str
        Such as ``"dgx-a100"``; ``dgx_a100`` is understood too.
    **options : object
        Arguments of the builder, as Python values or as text from a command line: ``boxes="2"``, ``shape="4x4"``,
        ``offsets="1,4,5"``, ``oversubscription="3/2"``, ``bidirectional="no"``.

    Examples
    --------
    >>> build("torus", shape="4x4", bandwidth="12.5")
    <Topology 'torus-4x4': 16 ranks, 64 links>
    """
    entry = find_entry(name)
    parameters = {parameter.name: parameter for parameter in entry.parameters}
    values: dict[str, Any] = {}
    for option, value in options.items():
        key = option.replace("-", "_")
        if key not in parameters:
            intended = "n" if key == "nodes" else option
            raise TopologyError(_unknown(f"option of {entry.name}", option, parameters, intended))
        if key in values:
            raise TopologyError(f"option {key!r} of {entry.name} is given twice; keep one")
        try:
            values[key] = _converted(value, parameters[key])
        except ValueError:
            expected = parameters[key].expected
            raise TopologyError(f"option {key!r} of {entry.name} is {shown(value)}; expected {expected}") from None
    for parameter in entry.parameters:
        if parameter.required and parameter.name not in values:
            raise TopologyError(f"{entry.name} needs the option {parameter.name!r}: {parameter.expected}")
    shapes = [parameter.name for parameter in entry.parameters if parameter.kind == "shape"]
    sizes = [size for shape in shapes for size in values.pop(shape)]
    return entry.function(*sizes, **values)


def find_entry(name: object, alternative: str = "") -> CatalogueEntry:
    """Look up a catalogue entry; `TopologyError` lists similar and known names, and the alternative to them."""
    key = name.replace("_", "-") if isinstance(name, str) else None
    if match := next((entry for entry in catalogue() if entry.name == key), None):
        return match
    raise TopologyError(_unknown("topology", name, BUILDERS) + alternative)


def _unknown(what: str, name: object, names: Collection[str], intended: object = None) -> str:
    words = hint(name if intended is None else intended, names)
    return f"there is no {what} called {shown(name)}{words}; expected one of {', '.join(names)}"


def _converted(value: object, parameter: Parameter) -> object:
    """Convert text to a Python value, or raise `ValueError`; other values are left to the builder's checks."""
    text = value.strip().lower() if isinstance(value, str) else None
    if parameter.kind == "shape" and text is None and not isinstance(value, Sequence):
        raise ValueError(value)
    if text is None or parameter.kind == "number":
        return None if text == "none" and parameter.optional else value
    if parameter.optional and text == "none":
        return None
    if parameter.kind == "flag":
        if text not in FLAGS:
            raise ValueError(value)
        return FLAGS[text]
    words = [text] if parameter.kind == "integer" else re.split("[x,]" if parameter.kind == "shape" else ",", text)
    if not all(re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", word) for word in words):
        raise ValueError(value)
    return int(text) if parameter.kind == "integer" else list(map(int, words))


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
    # One row per line: people compare and edit these files.
    lines = []
    for key, value in topology_to_json(topology).items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            text = "[\n    " + ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n  ]"
        lines.append(f"  {json.dumps(key)}: {text}")
    write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")


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
    names = {parameter.name for entry in catalogue() for parameter in entry.parameters}.union(
        ImportOptions.__annotations__
    )
    for option in filter(names.__contains__, options):
        if not isinstance(network, str | os.PathLike):
            raise UnsupportedError(f"{option} is an option of networks by name or file, not of {shown(network)}")
        raise UnsupportedError(
            f"{option} is an option of the network; write {verb.__name__}(collopt.topology({os.fspath(network)!r}, "
            f"{option}={shown(options[option])}), ...)"
        )


def names_file(name: str) -> bool:
    """Whether a network's name is a file's: none of the catalogue, and one that exists or looks like a path."""
    if name.replace("_", "-") in BUILDERS:
        return False
    with suppress(OSError):  # longer than names of files may be
        return looks_like_path(name) or Path(name).exists()
    return False


def looks_like_path(name: str) -> bool:
    """Whether `name` looks like a path, whether or not the file exists: ``a/b`` or ``a.xml``."""
    return bool(Path(name).suffix) or any(mark in name for mark in (os.sep, os.altsep) if mark)
