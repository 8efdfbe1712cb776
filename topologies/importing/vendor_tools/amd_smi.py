"""What ``amd-smi topology`` prints, as text or as JSON: links between the GPUs of one box, named by their PCIe address.

Bandwidths are as `rocm-smi --shownodesbw` has them; where the driver says nothing about them, weights and kinds count
as in `rocm-smi --showtopo`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...switched.scale_out import Box
from ..sources.document import Document
from ..sources.options import BoxOptions
from ..sources.text_matrix import CellKind, TextMatrix, find_headers, plain_lines, read_rows
from .amd_smi_json import looks_like_json, read_json_tables
from .box_from_links import Pair
from .pcie_paths import Place
from .xgmi import (
    BANDWIDTH,
    DIRECT_WEIGHT,
    LINK_TYPE,
    WEIGHT,
    box_of_bandwidths,
    box_of_types,
    check_types,
    link_bandwidths,
    places_by_weight,
)

__all__ = ["matches", "read_box"]

ADDRESS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
TABLES = {"LINK TYPE": LINK_TYPE, "WEIGHT": WEIGHT, "NUMA BW": BANDWIDTH}
_TITLE = re.compile(r"(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE:")


def matches(document: Document) -> bool:
    """Tell whether one of the titles of its tables is there, or JSON of its kind; never raises."""
    return _TITLE.search(document.text) is not None or looks_like_json(document)


def read_box(document: Document, options: BoxOptions) -> Box:
    """Read the tables of link types, bandwidths and weights.

    Parameters
    ----------
    document : Document
        What the tool printed, with or without ``--json``.
    options : BoxOptions
        `gpu` is needed for the figures of RCCL and where the driver states no bandwidths; it takes the place of the
        file's own figure for a link.

    Returns
    -------
    Box
        ``gpu0`` ... in the order of the tables, and ``cpu0`` ... where xGMI does not join all GPUs; the tool knows
        nothing about NICs.

    Raises
    ------
    FileFormatError
        If a table is missing or cut, contradicts itself or another one, or the links of a pair cannot be counted.
    """
    tables = read_json_tables(document) if looks_like_json(document) else _text_tables(document)
    types = tables.get("LINK TYPE")
    if types is None:
        raise document.error("there is no table of link types; expected all that `amd-smi topology` prints")
    for title, table in tables.items():
        if table.labels != types.labels:
            raise document.error(f"its tables of link types and {title} are of different GPUs; expected the same")
    weights, bandwidths = tables.get("WEIGHT"), tables.get("NUMA BW")

    def places() -> tuple[list[Place], str]:
        return places_by_weight(weights, len(types.labels))

    pairs = check_types(document, types)
    found = {} if bandwidths is None else link_bandwidths(document, bandwidths)
    if weights is not None:
        weights.check_symmetry(document)
    if not found:
        return box_of_types(document, options, types, weights, places)
    _check_agreement(document, types, weights, pairs, found)
    return box_of_bandwidths(document, options, types, found, places)


def _check_agreement(
    document: Document, types: TextMatrix, weights: TextMatrix | None, pairs: list[Pair], found: Mapping[Pair, object]
) -> None:
    """Refuse bandwidths of what is no xGMI, and direct links without one where others have one."""
    for pair in sorted({*pairs, *found}):
        name, line = types.cell_name(*pair), types.lines[pair[0]]
        if pair not in pairs:
            raise document.error(f"{name} is {types.cells[pair[0]][pair[1]]}, but has a bandwidth; expected XGMI", line)
        if pair not in found and weights is not None and weights.cells[pair[0]][pair[1]] == DIRECT_WEIGHT:
            raise document.error(f"{name} is XGMI of weight {DIRECT_WEIGHT}, but has no bandwidth as others have", line)


def _text_tables(document: Document) -> dict[str, TextMatrix]:
    lines = plain_lines(document)
    tables = {}
    for title, cell in TABLES.items():
        at = next((number for number, line in enumerate(lines, 1) if f"{title} TABLE:" in line), None)
        if at is not None:
            tables[title] = _table(document, lines, at, title, cell)
    return tables


def _table(document: Document, lines: Sequence[str], at: int, title: str, cell: CellKind) -> TextMatrix:
    header = next((header for header in find_headers(lines[at:], ADDRESS)), None)
    if header is None or any(line.strip() for line in lines[at : at + header.line - 1]):
        raise document.error(
            f"no line that names two GPUs or more follows the title of table {title}; is it cut short?", at
        )
    matrix = read_rows(document, lines, header._replace(line=at + header.line), cell)
    matrix.check_ends(document)
    return matrix
