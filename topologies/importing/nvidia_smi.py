"""Reader of ``nvidia-smi topo -m``: NVLinks and PCIe between the GPUs and NICs of one box.

The format is documented only by the legend below the table.  ``NV#`` between two GPUs is the number of NVLinks between
them or, with an NVSwitch, between each of them and the switch: then every pair has the same number, and their sum is
more than a GPU has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from ...support.arrays import components
from ...support.validation import shown
from ..network.topology import Link
from ..switched.scale_out import SCALE_UP_LATENCY, Box
from .box_from_links import (
    Pair,
    PcieLocation,
    box_name,
    check_counts,
    directly_linked,
    gpu_nics,
    linked_box,
    needed_product,
)
from .documents import MAX_LINE, CellKind, Document, Header, TextMatrix, plain_lines, read_rows
from .options import BoxOptions, GpuProduct

BRIDGE = ("PIX", "PXB")  # paths below one CPU
CPU = ("PHB", "NODE")  # paths within one NUMA node; SYS, and SOC of old drivers, cross nodes
FAR = ("SYS", "SOC")
NEAREST = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")


def read_nvidia_smi(document: Document, options: BoxOptions) -> Box:
    """Read the table."""
    table = read_table(document)
    counts = _nvlinks(document, table)
    if not counts:
        return _linked(document, options, table, {}, ())
    product = needed_product(document, options, "nvidia", "it counts NVLinks but does not state their speed")
    rate = product.link(options.figures)
    notes = (product.rate_note(options.figures),)
    if (switched := _switched(table, counts, product)) is not None:
        return _switch_box(document, options, table, product, switched, notes)
    check_counts(document, product, counts, table.line)
    return _linked(document, options, table, {pair: count * rate for pair, count in counts.items()}, notes)


def _nvlinks(document: Document, table: Table) -> dict[Pair, int]:
    counts = {}
    for one in range(len(table.gpus)):
        for other in range(one + 1, len(table.gpus)):
            cell = table.between(one, other)
            if cell.startswith("NV"):
                digits = cell[2:].lstrip("0")
                if not 0 < len(digits) <= 3:
                    raise table.matrix.wrong_cell(document, table.gpus[one], table.gpus[other], "NV1 to NV999")
                counts[one, other] = int(digits)
    for row in table.nics:
        for column, cell in enumerate(table.matrix.cells[row]):
            if cell.startswith("NV"):
                raise document.error(
                    f"{table.matrix.cell_name(row, column)} is {shown(cell)}, but only GPUs have NVLinks",
                    table.matrix.lines[row],
                )
    return counts


def _switched(table: Table, counts: dict[Pair, int], product: GpuProduct) -> int | None:
    """Return the number of NVLinks from each GPU to an NVSwitch, or None if there is no NVSwitch."""
    peers = len(table.gpus) - 1
    distinct_counts = set(counts.values())
    if len(distinct_counts) > 1 or 2 * len(counts) < peers * (peers + 1):
        return None
    count = distinct_counts.pop()
    return count if product.links >= count > product.links / peers else None


def _switch_box(
    document: Document, options: BoxOptions, table: Table, product: GpuProduct, count: int, notes: tuple[str, ...]
) -> Box:
    gpus = len(table.gpus)
    attached = gpu_nics(document, options, _near(table))
    all_notes = [
        *notes,
        f"every pair has NV{count}, more than {product.name} can give each pair, so the GPUs share one NVSwitch",
    ]
    limits = product.switch_limits
    if limits:
        all_notes.append(
            "the NVSwitch is assumed to support in-network multicast and reduction, like the one sold with this GPU"
        )
    rate = count * product.link(options.figures)
    return Box(
        box_name("nvidia", options, gpus),
        gpus,
        tuple(Link(f"gpu{gpu}", "nvswitch", rate, SCALE_UP_LATENCY / 2) for gpu in range(gpus)),
        attached.nics,
        ("nvswitch",),
        tuple(limit.switch for limit in limits),
        (*all_notes, *attached.notes),
        attached.shared,
        limits,
    )


def _linked(
    document: Document, options: BoxOptions, table: Table, direct: dict[Pair, Fraction], notes: tuple[str, ...]
) -> Box:
    gpus = len(table.gpus)
    near = _near(table) if directly_linked(gpus, direct) else ()
    where = partial(_locations, document, table)
    return linked_box(document, options, "nvidia", gpus, direct, where, near=near, notes=notes)


def _near(table: Table) -> list[tuple[int, ...]]:
    """Return the nearest GPUs of each NIC."""
    near = []
    for nic in table.nics:
        distances = [NEAREST.index(table.matrix.cells[nic][gpu]) for gpu in table.gpus]
        near.append(tuple(gpu for gpu, distance in enumerate(distances) if distance == min(distances)))
    return near


def _locations(document: Document, table: Table) -> tuple[list[PcieLocation], str]:
    """Assign GPUs, then NICs, to bridges and CPUs."""
    devices = [*table.gpus, *table.nics]
    kinds = {
        (one, other): table.matrix.cells[devices[one]][devices[other]]
        for one in range(len(devices))
        for other in range(one)
    }
    below = [pair for pair, kind in kinds.items() if kind in BRIDGE]
    near = [
        pair
        for pair, kind in kinds.items()
        if kind in BRIDGE + CPU
        or (kind.startswith("NV") and table.affinities[pair[0]] == table.affinities[pair[1]] != "")
    ]
    bridges, cpus = (components(len(devices), pairs).tolist() for pairs in (below, near))
    for (one, other), kind in kinds.items():
        groups = cpus if kind in FAR else bridges if kind in CPU else None
        if groups is not None and groups[one] == groups[other]:
            row, column = devices[one], devices[other]
            raise document.error(
                f"{table.matrix.cell_name(row, column)} is {kind}, but both are nearer than that to the same others; "
                "expected classes that fit together",
                table.matrix.lines[row],
            )
    return _renumbered(len(table.gpus), bridges, cpus), (
        "PIX and PXB are modeled as one bridge above all such GPUs, PHB and NODE as one CPU"
    )


def _renumbered(gpus: int, bridges: list[int], cpus: list[int]) -> list[PcieLocation]:
    """Keep the bridges that a GPU shares with another device, and renumber them."""
    size = {bridge: bridges.count(bridge) for bridge in set(bridges[:gpus])}
    number: dict[int, int] = {}
    for bridge in bridges:
        if size.get(bridge, 1) > 1:
            number.setdefault(bridge, len(number))
    return [PcieLocation(cpu, number.get(bridge)) for cpu, bridge in zip(cpus, bridges, strict=True)]


_GPU = re.compile(r"GPU\d{1,4}", re.ASCII)
_ROW = re.compile(r"\bGPU\d{1,4}\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\b", re.ASCII)
_LABEL = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_CELL = CellKind(
    re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC", re.ASCII),
    "X, NV#, PIX, PXB, PHB, NODE or SYS, as `nvidia-smi topo -m` prints",
)
_AFFINITY = re.compile(r"[\d,-]*", re.ASCII)


class Table(NamedTuple):
    """The parsed table."""

    matrix: TextMatrix  # GPUs and NICs
    gpus: tuple[int, ...]  # rows of GPUs
    nics: tuple[int, ...]  # rows of NICs
    affinities: tuple[str, ...]  # NUMA node or CPU cores of each GPU; empty where the table has neither

    def between(self, one: int, other: int) -> str:
        """Return the cell of two GPUs, by their position among the GPUs."""
        return self.matrix.cells[self.gpus[one]][self.gpus[other]]

    def line(self, gpu: int) -> int | None:
        """Return the line of a GPU's row."""
        return self.matrix.lines[self.gpus[gpu]]


def matches_nvidia_smi(document: Document) -> bool:
    """Return whether there is a table of GPUs with the tool's connection types; never raises."""
    lines = plain_lines(document) if "GPU" in document.text else []
    return any(_ROW.search(line) for line in lines) and _header(lines) is not None


def read_table(document: Document) -> Table:
    """Read the table; `FileFormatError` if it is truncated or inconsistent."""
    lines = plain_lines(document)
    header = _header(lines)
    if header is None:
        raise document.error("there is no line that names the GPUs of the table; expected `nvidia-smi topo -m`")
    matrix = _split_affinities(document, read_rows(document, lines, header, _CELL))
    for row, cells in enumerate(matrix.cells):
        for column, cell in enumerate(cells):
            if (cell == "X") != (row == column):
                raise matrix.wrong_cell(document, row, column, "X" if row == column else "a kind of connection")
    matrix.check_symmetry(document)
    gpus = tuple(row for row, label in enumerate(matrix.labels) if _GPU.fullmatch(label))
    if len(gpus) < 2:
        raise document.error("the table has one GPU only; expected at least two", header.line)
    nics = tuple(row for row in range(len(matrix.labels)) if row not in set(gpus))
    return Table(matrix, gpus, nics, _affinities(lines[header.line - 1], matrix, gpus))


def _header(lines: Sequence[str]) -> Header | None:
    """Find the first line with GPUs as columns."""
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            continue
        before, affinity, _ = line.partition("CPU Affinity")
        words = before.split()
        first = next((index for index, word in enumerate(words) if _GPU.fullmatch(word)), None)
        if first is None or any(_CELL.pattern.fullmatch(word) or not _LABEL.fullmatch(word) for word in words[first:]):
            continue
        if affinity or (len(words) > first + 1 and _GPU.fullmatch(words[first + 1])):
            return Header(number, tuple(words[first:]))
    return None


def _split_affinities(document: Document, matrix: TextMatrix) -> TextMatrix:
    """Split last cells from affinities where the tab is lost, as in ``NV120-31``, by the symmetric cell."""
    last = len(matrix.labels) - 1
    rows, tails = list(matrix.cells), list(matrix.tails)
    for row, tail in enumerate(tails):
        cell = rows[row][last]
        word = f"{cell}{tail}".split(None, 1)[0]
        if word == cell:
            following = tail.split(None, 1)
            if following and _CELL.pattern.fullmatch(following[0]):
                raise document.error(
                    f"row {matrix.labels[row]} has more than {len(matrix.labels)} cells; expected one for each column",
                    matrix.lines[row],
                )
            continue
        mirror = rows[last][row]
        affinity = word[len(mirror) :]
        if not word.startswith(mirror) or not _AFFINITY.fullmatch(affinity):
            raise document.error(
                f"{matrix.cell_name(row, last)} is {shown(word)}; expected {_CELL.expected}", matrix.lines[row]
            )
        rows[row] = (*rows[row][:last], mirror)
        tails[row] = f" {cell[len(mirror) :]}{tail}"
    return matrix._replace(cells=tuple(rows), tails=tuple(tails))


def _affinities(header: str, matrix: TextMatrix, gpus: Sequence[int]) -> tuple[str, ...]:
    """Return the NUMA node of each GPU, or its CPU cores from drivers that do not print the node."""
    column = 1 if "NUMA Affinity" in header else 0
    words = [matrix.tails[gpu].split() for gpu in gpus]
    return tuple(row[column] if len(row) > column and row[column][0].isdigit() else "" for row in words)
