"""Reader of ``amd-smi topology``, as text or as JSON of ROCm 6.3 and the form before (changelog of amdsmi).

Bandwidths are as in ``rocm-smi --shownodesbw``; without them, weights and link types count as in
``rocm-smi --showtopo``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...support.json_files import decode_json
from ...support.validation import is_int, shown
from ..switched.scale_out import Box
from .box_from_links import Pair, PcieLocation
from .documents import Document
from .options import BoxOptions
from .rocm_smi import (
    BANDWIDTH,
    DIRECT_WEIGHT,
    LINK_TYPE,
    WEIGHT,
    box_of_bandwidths,
    box_of_types,
    check_types,
    link_bandwidths,
    locations_by_weight,
)
from .text_matrix import MAX_LABELS, CellKind, TextMatrix, plain_lines, titled_table

ADDRESS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
TABLES = {"LINK TYPE": LINK_TYPE, "WEIGHT": WEIGHT, "NUMA BW": BANDWIDTH}
_TITLE = re.compile(r"(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE:")


def matches_amd_smi(document: Document) -> bool:
    """Return whether it has a title of the tables, or is JSON of this format; never raises."""
    return _TITLE.search(document.text) is not None or looks_like_json(document)


def read_amd_smi(document: Document, options: BoxOptions) -> Box:
    """Read the tables of link types, bandwidths and weights."""
    tables = read_json_tables(document) if looks_like_json(document) else _text_tables(document)
    types = tables.get("LINK TYPE")
    if types is None:
        raise document.error("there is no table of link types; expected all that `amd-smi topology` prints")
    for title, table in tables.items():
        if table.labels != types.labels:
            raise document.error(f"its tables of link types and {title} are of different GPUs; expected the same")
    weights, bandwidths = tables.get("WEIGHT"), tables.get("NUMA BW")

    def locations() -> tuple[list[PcieLocation], str]:
        return locations_by_weight(weights, len(types.labels))

    pairs = check_types(document, types)
    links = {} if bandwidths is None else link_bandwidths(document, bandwidths)
    if weights is not None:
        weights.check_symmetry(document)
    if not links:
        return box_of_types(document, options, types, weights, locations)
    _check_agreement(document, types, weights, pairs, links)
    return box_of_bandwidths(document, options, types, links, locations)


def _check_agreement(
    document: Document,
    types: TextMatrix,
    weights: TextMatrix | None,
    pairs: list[Pair],
    linked_pairs: Mapping[Pair, object],
) -> None:
    """Raise `FileFormatError` for bandwidths of other link types, and for direct links without one."""
    for pair in sorted({*pairs, *linked_pairs}):
        name, line = types.cell_name(*pair), types.lines[pair[0]]
        if pair not in pairs:
            raise document.error(f"{name} is {types.cells[pair[0]][pair[1]]}, but has a bandwidth; expected XGMI", line)
        if pair not in linked_pairs and weights is not None and weights.cells[pair[0]][pair[1]] == DIRECT_WEIGHT:
            raise document.error(f"{name} is XGMI of weight {DIRECT_WEIGHT}, but has no bandwidth as others have", line)


def _text_tables(document: Document) -> dict[str, TextMatrix]:
    lines = plain_lines(document)
    tables = {title: titled_table(document, lines, f"{title} TABLE:", ADDRESS, cell) for title, cell in TABLES.items()}
    return {title: table for title, table in tables.items() if table is not None}


NEW_KEYS = {"LINK TYPE": "link_type", "WEIGHT": "weight", "NUMA BW": "bandwidth"}
OLD_KEYS = {"LINK TYPE": "link_type", "WEIGHT": "weight", "NUMA BW": "numa_bandwidth"}


def looks_like_json(document: Document) -> bool:
    """Return whether the text begins as a JSON list and has link types; never raises."""
    return document.text.lstrip().startswith("[") and '"link_type"' in document.text


def read_json_tables(document: Document) -> dict[str, TextMatrix]:
    """Return those tables of link types, weights and bandwidths that exist."""
    entries = _entries(document)
    is_old = isinstance(entries[0].get("link_type"), Mapping)
    labels = tuple(_label(document, entry) for entry in entries)
    if len(set(labels)) < len(labels):
        raise document.error("two of its GPUs have the same number; expected different ones")
    tables = {}
    for title, key in (OLD_KEYS if is_old else NEW_KEYS).items():
        cell = _old_cell(document, key) if is_old else _new_cells(document, entries, labels, key)
        if all(cell(entry, label) is None for entry in entries for label in labels):
            continue
        rows = tuple(
            tuple(_checked(document, cell(entry, label), key, TABLES[title]) for label in labels) for entry in entries
        )
        names = tuple(f"GPU{label}" for label in labels)
        tables[title] = TextMatrix(names, rows, (None,) * len(labels), ("",) * len(labels))
    return tables


def _entries(document: Document) -> list[Mapping[str, Any]]:
    data = decode_json(document.text, document.where)
    if not isinstance(data, list) or not all(isinstance(entry, Mapping) for entry in data):
        raise document.error("it is not a list of GPUs; expected what `amd-smi topology --json` prints")
    if not 2 <= len(data) <= MAX_LABELS:
        raise document.error(f"it lists {len(data)} GPUs; expected 2 to {MAX_LABELS}")
    return data


def _label(document: Document, entry: Mapping[str, Any]) -> int:
    number = entry.get("gpu")
    if not is_int(number) or not 0 <= number < 10**4:
        raise document.error(f"a GPU has the number {shown(number)}; expected a whole number from 0")
    return number


Cell = Callable[[Mapping[str, Any], int], object]


def _old_cell(document: Document, key: str) -> Cell:
    def cell(entry: Mapping[str, Any], label: int) -> object:
        row = entry.get(key, {})
        if not isinstance(row, Mapping):
            raise document.error(f"field {key} of a GPU is {shown(row)}; expected an object")
        return row.get(f"gpu_{label}")

    return cell


def _new_cells(document: Document, entries: list[Mapping[str, Any]], labels: tuple[int, ...], key: str) -> Cell:
    cells: dict[tuple[int, int], object] = {}
    for entry, row in zip(entries, labels, strict=True):
        links = entry.get("links")
        if not isinstance(links, list) or len(links) > MAX_LABELS:
            raise document.error(f"links of GPU {row} are {shown(links)}; expected one for each GPU")
        for link in links:
            if not isinstance(link, Mapping):
                raise document.error(f"a link of GPU {row} is {shown(link)}; expected an object")
            column = _label(document, link)
            if (row, column) in cells:
                raise document.error(f"GPU {row} lists its link to GPU {column} twice; expected it once")
            cells[row, column] = link.get(key)
    return lambda entry, label: cells.get((int(entry["gpu"]), label))


def _checked(document: Document, value: object, key: str, cell: CellKind) -> str:
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not cell.pattern.fullmatch(text):
        raise document.error(f"{key} of a pair of GPUs is {shown(value)}; expected {cell.expected}")
    return text
