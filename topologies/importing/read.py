"""Import of a network from collopt's JSON, from another format, or from the files of its boxes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypedDict

from ...errors import FileFormatError, TopologyError
from ...support.json_files import parse_json
from ...support.quantities import Exact, nic_unit_warning
from ...support.validation import as_size
from ..network.topology import Topology
from ..network.topology_json import TOPOLOGY_FORMAT, TOPOLOGY_VERSION, topology_from_json
from ..switched.scale_out import MAX_BOXES, Box
from .boxes import latencies_note, network_latencies, read_box, read_format
from .compose import FABRICS, compose
from .formats import Format, find_format
from .sources import box_file
from .sources.document import Document, Imported, read_document
from .sources.options import OPTIONS, PRODUCTS, BoxOptions

COMPOSE_OPTIONS = ("nic_bandwidth", "nics", "oversubscription", "boxes_per_leaf", "name")
FABRIC_OPTIONS = ("fabric", "nics", "oversubscription", "boxes_per_leaf")  # options that do not apply to one box

OWN_FORMAT_MARK = '"collopt-'  # prefix of the format names of collopt's own files


class ImportOptions(TypedDict, total=False):
    """Options for files that describe one box; see `read_box` and `compose`."""

    boxes: int
    fabric: str
    figures: str
    gpu: str
    nic_bandwidth: Exact
    pcie_bandwidth: Exact
    nics: int
    oversubscription: Exact | None
    boxes_per_leaf: int
    name: str


def import_network(path: str | os.PathLike[str], options: ImportOptions) -> Imported:
    """Import a network from collopt's JSON or a file of one of `FORMATS`."""
    given: dict[str, Any] = dict(options)
    document = read_document(path)
    own = OWN_FORMAT_MARK in document.text and not box_file.matches(document)
    format_ = None if own else find_format(document)
    if format_ is None:
        _refuse(given, document)
        data = parse_json(document.text, document.where, TOPOLOGY_FORMAT, TOPOLOGY_VERSION)
        return Imported(topology_from_json(data, document.where))
    _check_known(given)
    if format_.is_network:
        _refuse({name: value for name, value in given.items() if name not in format_.options}, document)
    for_box = BoxOptions.of(**{name: given[name] for name in OPTIONS if name in given})
    try:
        made = read_format(document, format_, for_box)
    except FileFormatError as error:
        if for_box.gpu is None and (lacks := _lacks_besides_the_gpu(document, format_, for_box, given)):
            raise FileFormatError(f"{error}; {lacks}") from None
        raise
    if isinstance(made, Imported):
        return made
    network = _composed(made, given, document)
    unused = f"a single box has no network, so its network cards ({len(made.nics)}) are left out; give boxes and fabric"
    more = (
        unused if made.nics and "boxes" not in given else None,
        latencies_note(network_latencies(network, made, stated=format_.states_latencies)),
        # Last, where it is seen.
        nic_unit_warning(given.get("nic_bandwidth"), for_box.nic_bandwidth),
    )
    return Imported(network, (*made.notes, *(note for note in more if note is not None)))


def import_boxes(paths: Sequence[str | os.PathLike[str]], options: ImportOptions) -> Imported:
    """Read files that describe one box each, possibly repeated, and join the boxes in this order."""
    given: dict[str, Any] = dict(options)
    _check_known(given)
    if "boxes" in given:
        raise TopologyError(
            "boxes does not go with several files, which describe one box each; leave it out, and name a file once "
            "for each box"
        )
    if "fabric" not in given:
        raise TopologyError(
            f"the files say nothing about the network between boxes; give fabric, one of {', '.join(FABRICS)}"
        )
    for_box = {name: given.pop(name) for name in OPTIONS if name in given}
    if "nic_bandwidth" in for_box:
        given["nic_bandwidth"] = for_box["nic_bandwidth"]
    boxes = {path: read_box(path, **for_box) for path in dict.fromkeys(paths)}
    network = compose([boxes[path] for path in paths], **given)
    return Imported(network, (*_joined_notes(boxes), *_uneven_nics_notes(boxes, given["fabric"])))


def _joined_notes(boxes: Mapping[str | os.PathLike[str], Box]) -> Iterator[str]:
    """Yield notes that all files share once, and all others with their files."""
    paths_of: dict[str, list[str]] = {}
    for path, box in boxes.items():
        for note in box.notes:
            paths_of.setdefault(note, []).append(os.fspath(path))
    for note, paths in paths_of.items():
        yield note if len(paths) == len(boxes) else f"{', '.join(paths)}: {note}"


def _uneven_nics_notes(boxes: Mapping[str | os.PathLike[str], Box], fabric: str) -> Iterator[str]:
    """Note that NICs are assigned to rails by position, if boxes have different numbers of NICs."""
    counts = {os.fspath(path): len(box.nics) for path, box in boxes.items()}
    if fabric == "rail" and len(set(counts.values())) > 1:
        numbers = ", ".join(f"{path} has {count}" for path, count in counts.items())
        yield f"card i of each box is on rail i, though the boxes have different numbers of network cards: {numbers}"


def _check_known(given: dict[str, Any]) -> None:
    if unknown := given.keys() - ImportOptions.__annotations__.keys():
        known = ", ".join(ImportOptions.__annotations__)
        raise TopologyError(f"there is no option {min(unknown)!r} for a file of a network; expected one of {known}")


def _lacks_besides_the_gpu(document: Document, format_: Format, options: BoxOptions, given: dict[str, Any]) -> str:
    """Say what the network of a file would lack that were readable with some GPU, so that all is asked at once."""
    for product in PRODUCTS.values():
        with suppress(FileFormatError):
            box = read_format(document, format_, replace(options, gpu=product))
            # The name of this product would mislead.
            named = replace(box, name=box.name.removeprefix(f"{product.name}-")) if isinstance(box, Box) else None
            return _lacks(named, given) if named else ""
    return ""


def _lacks(box: Box, given: dict[str, Any]) -> str:
    """Say what the network of several boxes lacks."""
    if as_size(given.get("boxes", 1), "boxes", most=MAX_BOXES) == 1:
        return ""
    lacks = []
    if "fabric" not in given:
        lacks.append(f"nothing describes the network between boxes; give fabric, one of {', '.join(FABRICS)}")
    try:
        compose([box, box], **{name: given[name] for name in ("nic_bandwidth", "nics") if name in given})
    except TopologyError as error:
        lacks.append(str(error))
    return "; ".join(lacks)


def _composed(box: Box, given: dict[str, Any], document: Document) -> Topology:
    boxes = as_size(given.get("boxes", 1), "boxes", most=MAX_BOXES)
    if lacks := _lacks(box, given):
        raise TopologyError(f"{document.where}: {lacks}")
    if boxes == 1 and (idle := [name for name in FABRIC_OPTIONS if name in given]):
        raise TopologyError(
            f"{idle[0]} does not go with one box, which has no network to others; leave it out, or give boxes=2 or more"
        )
    chosen = {name: given[name] for name in COMPOSE_OPTIONS if name in given}
    return compose([box] * boxes, fabric=given.get("fabric", "full"), **chosen)


def _refuse(given: dict[str, Any], document: Document) -> None:
    if given:
        raise TopologyError(
            f"{min(given)} does not go with {document.where}, which describes its network completely; leave it out"
        )
