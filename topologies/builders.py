"""Catalogue of topology builders by name."""

import inspect
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from ..errors import TopologyError
from ..support.quantities import Exact
from ..support.validation import hint, shown
from .direct_connect import basic_graphs as small_graphs
from .direct_connect import basic_graphs as tori
from .direct_connect import circulants, distance_regular, kautz
from .direct_connect import circulants as metacirculants
from .network.topology import Topology
from .switched import fabrics, vendor_boxes

REQUIRED = inspect.Parameter.empty  # value of `Parameter.default` for a required option

BUILDERS: dict[str, Callable[..., Topology]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        vendor_boxes.dgx_a100, vendor_boxes.dgx_h100, vendor_boxes.dgx_h200, vendor_boxes.dgx_b200,
        vendor_boxes.dgx_b300, vendor_boxes.gb200_nvl72, vendor_boxes.gb300_nvl72, vendor_boxes.nvl576,
        vendor_boxes.dgx1_v100, vendor_boxes.mi250, vendor_boxes.mi300x, vendor_boxes.mi325x, vendor_boxes.mi355x,
        vendor_boxes.helios, vendor_boxes.gaudi3, vendor_boxes.trn2, vendor_boxes.trn2_ultraserver,
        vendor_boxes.tpu_v4, vendor_boxes.tpu_v5p, vendor_boxes.tpu_v5e, vendor_boxes.tpu_v6e, fabrics.leaf_spine,
        fabrics.rail, fabrics.fat_tree, fabrics.dragonfly, tori.ring, circulants.unidirectional_ring,
        circulants.bidirectional_ring, circulants.shifted_ring, small_graphs.double_binary_tree,
        circulants.circulant, circulants.low_diameter_circulant, circulants.circulant_digraph,
        circulants.directed_circulant, metacirculants.metacirculant_digraph, kautz.kautz, kautz.generalized_kautz,
        kautz.de_bruijn, kautz.modified_de_bruijn, small_graphs.diamond, distance_regular.distance_regular, tori.torus,
        tori.twisted_torus, small_graphs.complete_bipartite, small_graphs.hamming, tori.twisted_hypercube,
        tori.hypercube, tori.complete,
    )
}  # fmt: skip

EXPECTED = {
    "integer": "a whole number",
    "integers": "whole numbers such as 1,4,5",
    "number": "a number, exact if written as 12.5 or 65/3",
    "flag": "true or false",
    "shape": "sizes such as 4x4",
}
TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")


@dataclass(frozen=True)
class Parameter:
    """One option of a builder."""

    name: str  # as in the function's signature
    kind: str  # ``"integer"``, ``"integers"``, ``"number"``, ``"flag"`` or ``"shape"``
    default: object = REQUIRED  # `REQUIRED` where there is none
    optional: bool = False  # whether None, written ``none``, is a value too

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
    return tuple(
        CatalogueEntry(name, inspect.getdoc(function).partition("\n")[0], function, _parameters(function))  # type: ignore[union-attr]
        for name, function in BUILDERS.items()
    )


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
        values[key] = _converted(value, parameters[key], entry.name)
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


def _parameters(function: Callable[..., Topology]) -> tuple[Parameter, ...]:
    hints = get_type_hints(function)
    return tuple(
        _parameter(parameter, hints[parameter.name]) for parameter in inspect.signature(function).parameters.values()
    )


def _parameter(parameter: inspect.Parameter, hint: object) -> Parameter:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return Parameter(parameter.name, "shape")
    if get_origin(hint) is Sequence:
        return Parameter(parameter.name, "integers", parameter.default)
    types = set(get_args(hint)) or {hint}
    optional = type(None) in types
    kinds = {frozenset({int}): "integer", frozenset({bool}): "flag", frozenset(get_args(Exact)): "number"}
    return Parameter(parameter.name, kinds[frozenset(types - {type(None)})], parameter.default, optional)


def _converted(value: object, parameter: Parameter, builder: str) -> object:
    """Convert text from the command line to a Python value; other values are left to the builder's checks."""
    refusal = TopologyError(f"option {parameter.name!r} of {builder} is {shown(value)}; expected {parameter.expected}")
    if parameter.kind == "shape":
        return _shape(value, refusal)
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if parameter.optional and text == "none":
        return None
    if parameter.kind == "integer":
        return _integer(text, refusal)
    if parameter.kind == "integers":
        return [_integer(number, refusal) for number in text.split(",")]
    if parameter.kind == "flag":
        if text not in TRUE + FALSE:
            raise refusal
        return text in TRUE
    return value


def _shape(value: object, refusal: TopologyError) -> Sequence[object]:
    if isinstance(value, str):
        return [_integer(size, refusal) for size in re.split("[x,]", value.strip().lower())]
    if isinstance(value, Sequence):
        return value
    raise refusal


def _integer(text: str, refusal: TopologyError) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
        raise refusal
    return int(text)
