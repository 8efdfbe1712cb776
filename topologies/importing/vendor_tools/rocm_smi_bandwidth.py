"""Reader of ``rocm-smi --shownodesbw``: the number of xGMI links of each pair of GPUs of one box.

A cell is ``min-max`` in MB/s, of one link and of all links of the pair; ``0-0`` means no direct link (ROCm release
notes on ``--shownodesbw``).
"""

import re

from ....support.validation import shown
from ...switched.scale_out import Box
from ..sources.document import Document
from ..sources.options import BoxOptions
from ..sources.text_matrix import Header, TextMatrix, find_headers, line_below, plain_lines, read_rows
from .rocm_smi_topology import GPU_LABEL
from .xgmi import BANDWIDTH, box_of_bandwidths, link_bandwidths, no_bandwidths, refuse_pcie

_BANDWIDTH_ROW = re.compile(r"\bGPU\d{1,4}\s+(?:N/A|\d+-\d+)(?!\S)", re.ASCII)
_FORMAT = re.compile(r"Format:\s*min-max;\s*Units:\s*(\w+)", re.ASCII)


def matches_bandwidths(document: Document) -> bool:
    """Return whether there is a table of GPUs whose rows begin with ``min-max`` or N/A; never raises."""
    return _bandwidth_header(document) is not None


def read_bandwidths(document: Document, options: BoxOptions) -> Box:
    """Read the table."""
    matrix = _bandwidth_matrix(document)
    found = link_bandwidths(document, matrix)
    if not found:
        raise no_bandwidths(document)

    return box_of_bandwidths(document, options, matrix, found, lambda: refuse_pcie(document))


def _bandwidth_header(document: Document) -> Header | None:
    """Find the first header above a row of bandwidths."""
    lines = plain_lines(document) if "GPU" in document.text else []
    return next(
        (header for header in find_headers(lines, GPU_LABEL) if _BANDWIDTH_ROW.search(line_below(lines, header.line))),
        None,
    )


def _bandwidth_matrix(document: Document) -> TextMatrix:
    lines, header = plain_lines(document), _bandwidth_header(document)
    if header is None:
        raise document.error("there is no table of bandwidths between GPUs; expected `rocm-smi --shownodesbw`")
    matrix = read_rows(document, lines, header, BANDWIDTH)
    matrix.check_ends(document)
    for number, line in enumerate(lines, 1):
        unit = _FORMAT.search(line)
        if unit is not None and unit.group(1) != "mps":
            raise document.error(f"units are {shown(unit.group(1))}; expected mps, which is MB/s", number)
    return matrix
