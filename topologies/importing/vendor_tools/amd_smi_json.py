"""What ``amd-smi topology --json`` prints, in the form of ROCm 6.3 and in the one before (changelog of amdsmi)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ....support.validation import shown
from ..sources.document import Document
from ..sources.text_matrix import MAX_LABELS, CellKind, TextMatrix
from .xgmi import BANDWIDTH, LINK_TYPE, WEIGHT

__all__ = ["looks_like_json", "read_json_tables"]

NEW = {"LINK TYPE": "link_type", "WEIGHT": "weight", "NUMA BW": "bandwidth"}
OLD = {"LINK TYPE": "link_type", "WEIGHT": "weight", "NUMA BW": "numa_bandwidth"}
CELLS = {"LINK TYPE": LINK_TYPE, "WEIGHT": WEIGHT, "NUMA BW": BANDWIDTH}


def looks_like_json(document: Document) -> bool:
    """Tell whether the text begins as a JSON list and has link types; never raises."""
    return document.text.lstrip().startswith("[") and '"link_type"' in document.text


def read_json_tables(document: Document) -> dict[str, TextMatrix]:
    """Return the tables of link types, weights and bandwidths, as far as they are there.

    Raises
    ------
    FileFormatError
        If it is not JSON, or not of the form that amd-smi prints.
    """
    entries = _entries(document)
    old = isinstance(entries[0].get("link_type"), Mapping)
    labels = tuple(_label(document, entry) for entry in entries)
    if len(set(labels)) < len(labels):
        raise document.error("two of its GPUs have the same number; expected different ones")
    tables = {}
    for title, key in (OLD if old else NEW).items():
        cell = _old_cell(document, key) if old else _new_cells(document, entries, labels, key)
        if all(cell(entry, label) is None for entry in entries for label in labels):
            continue
        rows = tuple(
            tuple(_checked(document, cell(entry, label), key, CELLS[title]) for label in labels) for entry in entries
        )
        names = tuple(f"GPU{label}" for label in labels)
        tables[title] = TextMatrix(names, rows, (None,) * len(labels), ("",) * len(labels))
    return tables


def _entries(document: Document) -> list[Mapping[str, Any]]:
    try:
        data = json.loads(document.text)
    except json.JSONDecodeError as error:
        raise document.error(f"it is not valid JSON ({error.msg}); is it cut short?", error.lineno) from None
    except RecursionError:
        raise document.error("it is nested too deeply; expected what `amd-smi topology --json` prints") from None
    except ValueError as error:
        raise document.error(f"it is not valid JSON: {shown(str(error))}") from None
    if not isinstance(data, list) or not all(isinstance(entry, Mapping) for entry in data):
        raise document.error("it is not a list of GPUs; expected what `amd-smi topology --json` prints")
    if not 2 <= len(data) <= MAX_LABELS:
        raise document.error(f"it lists {len(data)} GPUs; expected 2 to {MAX_LABELS}")
    return data


def _label(document: Document, entry: Mapping[str, Any]) -> int:
    number = entry.get("gpu")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 10**4:
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
