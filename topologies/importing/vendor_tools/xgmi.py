"""xGMI links of AMD's tools: link counts, bandwidths, and PCIe between hives.

The tools print for each pair the bandwidth of one link and of all its links, ``min-max`` in MB/s.  The driver does not
measure them: kernels of 2021 to 2024 multiply the number of links by 16 lanes of 25 Gb/s, whatever the GPU
(``amdgpu_amdkfd_get_xgmi_bandwidth_mbytes``), so an MI300X shows 50 GB/s for a link of 64 GB/s.  Only their quotient,
the number of links, is reliable, so a given GPU model overrides the bandwidth.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NoReturn

from ....support.arrays import components
from ...switched.scale_out import Box
from ..sources.document import Document
from ..sources.options import BoxOptions
from ..sources.text_matrix import CellKind, TextMatrix
from .box_from_links import Locations, Pair, PcieLocation, check_counts, linked_box, needed_product

BANDWIDTH = CellKind(re.compile(r"(?:N/A|\d+-\d+)(?!\S)", re.ASCII), "min-max in MB/s, such as 50000-100000, or N/A")
LINK_TYPE = CellKind(re.compile(r"(?:XGMI|PCIE|SELF|UNKNOWN|N/A|0)(?!\S)", re.IGNORECASE), "XGMI or PCIE")
WEIGHT = CellKind(re.compile(r"(?:N/A|\d+)(?!\S)", re.ASCII), "a whole number")

DIRECT_WEIGHT = "15"  # Of one xGMI link; a path of two has 30.  The hops are 1 on any xGMI path.
MAX_WITHIN_CPU = 40  # weight of two PCIe segments, from GPU to CPU to GPU; paths between CPUs have more
SINGLE_LINK = ("mi100", "mi300x", "mi350x")  # GPUs with one link to each peer in every product
MAX_DIGITS = 9  # of a bandwidth in MB/s, or of a weight


def link_bandwidths(document: Document, matrix: TextMatrix) -> dict[Pair, tuple[int, int]]:
    """Return the MB/s of a link and the number of links of each pair with direct links."""
    matrix.check_symmetry(document)
    found: dict[Pair, tuple[int, int]] = {}
    for row, cells in enumerate(matrix.cells):
        for column, cell in enumerate(cells):
            if row == column or cell == "N/A":
                if row == column and cell not in {"N/A", "0-0"}:
                    raise matrix.wrong_cell(document, row, column, "N/A")
                continue
            least, most = (int(part[: MAX_DIGITS + 1]) for part in cell.split("-"))
            if max(len(part) for part in cell.split("-")) > MAX_DIGITS or (most and (not least or most % least)):
                expected = "MB/s of one link and, a multiple of it, of all links of this pair"
                raise matrix.wrong_cell(document, row, column, expected)
            if least > most:
                raise matrix.wrong_cell(document, row, column, "the smaller number first")
            if most and row < column:
                found[row, column] = (least, most // least)
    return found


def no_bandwidths(document: Document) -> Exception:
    """Return the error for a table that has 0-0 everywhere."""
    return document.error(
        "every pair has 0-0, which newer drivers print whatever the links are; use the output of `amd-smi topology` or "
        "`rocm-smi --showtopo`, or a dump of RCCL (NCCL_TOPO_DUMP_FILE)"
    )


def refuse_pcie(document: Document) -> NoReturn:
    """Raise the error for a file without PCIe whose xGMI links do not connect all GPUs."""
    raise document.error(
        "xGMI does not join all of its GPUs, and it says nothing about PCIe; use the output of `rocm-smi "
        "--showtopo` or `amd-smi topology`, or a dump of RCCL (NCCL_TOPO_DUMP_FILE)"
    )


def box_of_bandwidths(
    document: Document,
    options: BoxOptions,
    matrix: TextMatrix,
    found: Mapping[Pair, tuple[int | None, int]],
    locations: Locations,
) -> Box:
    """Make a box from the number of links of each pair."""
    stated = sorted({least for least, _ in found.values() if least is not None})
    counts = {pair: count for pair, (_, count) in found.items()}
    if options.gpu is None and options.figures == "line" and stated:
        direct = {pair: Fraction(least or 0, 1000) * count for pair, (least, count) in found.items()}
        notes = [
            f"an xGMI link is modeled with {_listed(stated)} GB/s in each direction, which the driver states unmeasured"
        ]
    else:
        figure = "the speed of" if options.figures == "line" else "the bandwidth that RCCL plans with for"
        product = needed_product(document, options, "amd", f"it does not state {figure} an xGMI link")
        check_counts(document, product, counts, lambda gpu: matrix.lines[gpu])
        rate = product.link(options.figures)
        direct = {pair: count * rate for pair, count in counts.items()}
        notes = [product.rate_note(options.figures)]
        if other := [least for least in stated if Fraction(least, 1000) != rate]:
            notes.append(f"the file states {_listed(other)} GB/s for a link, which the driver does not measure")
    return linked_box(document, options, "amd", len(matrix.labels), direct, locations, notes=notes)


def box_of_types(
    document: Document, options: BoxOptions, types: TextMatrix, weights: TextMatrix | None, locations: Locations
) -> Box:
    """Make a box from link types and weights: a pair has one direct link if it is xGMI of weight 15."""
    gpus = len(types.labels)
    pairs = check_types(document, types)
    if not pairs:
        return linked_box(document, options, "amd", gpus, {}, locations)
    if weights is None:
        raise document.error(
            "it has XGMI pairs but no table of weights, which identifies direct links; expected all tables"
        )
    product = needed_product(
        document, options, "amd", "it states neither the speed of xGMI links nor their number per pair"
    )
    if product.name not in SINGLE_LINK:
        raise document.error(
            f"pairs of {product.name} have one to four links, and it does not say how many; use the "
            "output of `rocm-smi --shownodesbw`, or a dump of RCCL (NCCL_TOPO_DUMP_FILE)"
        )
    counts = {pair: 1 for pair in pairs if weights.cells[pair[0]][pair[1]] == DIRECT_WEIGHT}
    check_counts(document, product, counts, lambda gpu: types.lines[gpu])
    rate = product.link(options.figures)
    notes = [product.rate_note(options.figures), f"a pair of {product.name} is taken to have one xGMI link"]
    return linked_box(document, options, "amd", gpus, dict.fromkeys(counts, rate), locations, notes=notes)


def check_types(document: Document, types: TextMatrix) -> list[Pair]:
    """Return the pairs on xGMI; `FileFormatError` for unknown link types."""
    types.check_symmetry(document)
    pairs = []
    for row, cells in enumerate(types.cells):
        for column, cell in enumerate(cells):
            kind = cell.upper()
            if (row == column) != (kind in {"0", "SELF", "N/A"}) or kind == "UNKNOWN":
                raise types.wrong_cell(document, row, column, "SELF or 0" if row == column else "XGMI or PCIE")
            if kind == "XGMI" and row < column:
                pairs.append((row, column))
    return pairs


def locations_by_weight(weights: TextMatrix | None, gpus: int) -> tuple[list[PcieLocation], str]:
    """Assign GPUs to CPUs by the weight of the path between them, and return a note on it."""
    if weights is None:
        return [PcieLocation(0)] * gpus, "all GPUs are assumed to be on one CPU, as there is no table of weights"
    near = [
        (one, other)
        for one, cells in enumerate(weights.cells)
        for other, cell in enumerate(cells[:one])
        if cell.isdigit() and len(cell) <= MAX_DIGITS and int(cell) <= MAX_WITHIN_CPU
    ]
    return [PcieLocation(cpu) for cpu in components(gpus, near).tolist()], (
        f"GPUs are assumed to be on one CPU if the weight of their path is at most {MAX_WITHIN_CPU}, as that of two "
        "PCIe segments"
    )


def _listed(rates: Sequence[int]) -> str:
    """Format MB/s as GB/s."""
    shown_rates = [f"{rate / 1000:g}" for rate in rates[:3]]
    return " or ".join(shown_rates) + (" or other" if len(rates) > 3 else "")
