"""Reader of ``/sys/class/drm/card*/device/xgmi_num_links``: the number of xGMI links of each pair of GPUs.

Each GPU has a line with a two-digit hexadecimal number for each GPU (``amdgpu_xgmi.c`` of the Linux kernel).
"""

import re

from ...switched.scale_out import Box
from ..sources.document import Document
from ..sources.options import BoxOptions
from ..sources.text_matrix import MAX_LABELS, TextMatrix, plain_lines
from .xgmi import box_of_bandwidths, refuse_pcie

MAX_TEXT = 2**20  # characters, more than those of `MAX_LABELS` lines of as many numbers

_COUNT = re.compile(r"[0-9a-f]{2}")


def matches_link_counts(document: Document) -> bool:
    """Return whether the text is a square matrix of two-digit numbers; never raises."""
    return _count_matrix(document) is not None


def read_link_counts(document: Document, options: BoxOptions) -> Box:
    """Read the matrix."""
    matrix = _count_matrix(document)
    if matrix is None:
        raise document.error(
            "it is not a square matrix of hexadecimal numbers; expected one line per GPU of xgmi_num_links"
        )
    matrix.check_symmetry(document)
    counts = {}
    for row, cells in enumerate(matrix.cells):
        if cells[row] != "00":
            raise matrix.wrong_cell(document, row, row, "00")
        counts.update({(row, column): int(cells[column], 16) for column in range(row + 1, len(cells))})

    found = {pair: (None, count) for pair, count in counts.items() if count}
    return box_of_bandwidths(document, options, matrix, found, lambda: refuse_pcie(document))


def _count_matrix(document: Document) -> TextMatrix | None:
    if len(document.text) > MAX_TEXT:
        return None
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    for number, line in enumerate(plain_lines(document), 1):
        words = line.split(None, MAX_LABELS)
        if not words:
            continue
        if not all(_COUNT.fullmatch(word) for word in words) or len(rows) == MAX_LABELS:
            return None
        rows.append(tuple(words))
        lines.append(number)
    if len(rows) < 2 or any(len(row) != len(rows) for row in rows):
        return None
    labels = tuple(f"GPU{gpu}" for gpu in range(len(rows)))
    return TextMatrix(labels, tuple(rows), tuple(lines), ("",) * len(rows))
