"""Reader of ``nvidia-smi topo -m``: NVLinks and PCIe between the GPUs and NICs of one box.

The format is documented only by the legend below the table.  ``NV#`` between two GPUs is the number of NVLinks between
them or, with an NVSwitch, between each of them and the switch: then all pairs have one number, too many for one GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

from ...support.arrays import components
from ...support.formatting import set_text
from ...support.validation import shown
from ..network.devices import Device
from ..switched.scale_out import Box
from .box_from_links import (
    GpuLinks,
    Pair,
    PcieLocation,
    check_counts,
    direct_links,
    linked_box,
    needed_product,
    switch_links,
    unlinked_note,
)
from .documents import MAX_LINE, CellKind, Document, Header, TextMatrix, plain_lines, read_rows
from .options import NVSWITCH_GPUS, BoxOptions, GpuProduct

BRIDGE = ("PIX", "PXB")  # paths below one CPU
CPU = ("PHB", "NODE")  # paths within one NUMA node
FAR = ("SYS", "SOC")  # paths between NUMA nodes; SOC is of old drivers
NEAREST = BRIDGE + CPU + FAR
SWITCHED = (*NVSWITCH_GPUS, "v100")  # as in DGX-2


def read_nvidia_smi(document: Document, options: BoxOptions) -> Box:
    """Read the table."""
    table = read_table(document)
    counts, links = _nvlinks(document, table), GpuLinks()
    if counts:
        product = needed_product(document, options, "nvidia", "it counts NVLinks but does not state their speed")
        links = _gpu_links(document, table, counts, product, options)
    gpus = len(table.gpus)
    distances = [[NEAREST.index(table.matrix.cells[nic][gpu]) for gpu in table.gpus] for nic in table.nics]
    near = [tuple(gpu for gpu in range(gpus) if row[gpu] == min(row)) for row in distances]
    where = partial(_locations, document, table)
    box = linked_box(document, options, "nvidia", gpus, links, where, near=near, far_note=_far_note(distances))
    return replace(box, devices=tuple(_devices(document, table)))


def _devices(document: Document, table: Table) -> Iterator[Device]:
    """Yield GPUs by NVML's numbers, and NICs by the names in the legend; old drivers have these in the table."""
    names = dict(_LEGEND.findall(document.text))
    for gpu, row in enumerate(table.gpus):
        yield Device(f"gpu{gpu}", number=int(table.matrix.labels[row][3:]))
    for nic, row in enumerate(table.nics):
        label = table.matrix.labels[row]
        if name := names.get(label, "" if label.startswith("NIC") else label):
            yield Device(f"nic{nic}", name)


def _nvlinks(document: Document, table: Table) -> dict[Pair, int]:
    """Count the NVLinks of pairs of GPUs."""
    matrix, counts, place = table.matrix, {}, {row: gpu for gpu, row in enumerate(table.gpus)}
    for row, cells in enumerate(matrix.cells):
        for column, cell in enumerate(cells):
            if not cell.startswith("NV"):
                continue
            if row in table.nics:
                raise matrix.wrong_cell(document, row, column, "a path over PCIe, as only GPUs have NVLinks")
            if column < row:
                if not 0 < len(digits := cell[2:].lstrip("0")) <= 3:
                    raise matrix.wrong_cell(document, row, column, "NV1 to NV999")
                counts[place[column], place[row]] = int(digits)
    return dict(sorted(counts.items()))


def _gpu_links(
    document: Document, table: Table, counts: dict[Pair, int], product: GpuProduct, options: BoxOptions
) -> GpuLinks:
    """Link GPUs directly, or over one NVSwitch for each group of GPUs whose pairs have too many NVLinks."""
    rate, notes = product.link(options.figures), [product.rate_note(options.figures)]
    groups = components(len(table.gpus), [*counts]).tolist()
    members = {group: [gpu for gpu, own in enumerate(groups) if own == group] for group in sorted({*groups})}
    ports = {group: _switch_ports(members[group], counts, product) for group in members}
    switched = {group: own for group, own in ports.items() if own}
    names = {group: f"nvswitch{place if len(switched) > 1 else ''}" for place, group in enumerate(switched)}
    direct = {pair: count for pair, count in counts.items() if groups[pair[0]] not in switched}
    _check_pairs(document, table, counts, product)
    check_counts(document, product, direct, table.line)
    links = direct_links({pair: count * rate for pair, count in direct.items()})
    for group, own in switched.items():
        gpus = f" of {set_text(f'gpu{gpu}' for gpu in own)}" if len(members) > 1 else ""
        full = max(own.values())
        notes.append(
            f"every pair{gpus} has NV{full}, more than {product.name} can give each pair, so the GPUs share one "
            "NVSwitch"
        )
        notes += [
            f"gpu{gpu} has {count} of {full} NVLinks; check it if that is a fault"
            for gpu, count in own.items()
            if count < full
        ]
        for gpu, count in own.items():
            links += switch_links([gpu], names[group], count * rate)
    notes += unlinked_note(len(table.gpus), links, "NVLink")
    limits = tuple(limit._replace(switch=name) for name in names.values() for limit in product.switch_limits)
    if limits:
        notes.append(
            "the NVSwitch is assumed to support in-network multicast and reduction, like the one sold with this GPU"
        )
    return GpuLinks(links, tuple(names.values()), limits, tuple(notes))


def _switch_ports(gpus: Sequence[int], counts: dict[Pair, int], product: GpuProduct) -> dict[int, int]:
    """Return the number of NVLinks from each GPU of a group to an NVSwitch; empty if there is no NVSwitch.

    A pair has those of its GPU with fewer, as after some have failed.
    """
    ports = {gpu: max((count for pair, count in counts.items() if gpu in pair), default=0) for gpu in gpus}
    fits = all(counts.get(pair) == min(ports[pair[0]], ports[pair[1]]) for pair in combinations(gpus, 2))
    full = max(ports.values())
    return ports if fits and product.name in SWITCHED and full <= product.links < full * (len(gpus) - 1) else {}


def _check_pairs(document: Document, table: Table, counts: dict[Pair, int], product: GpuProduct) -> None:
    """Refuse pairs without NVLinks whose GPUs have all of theirs to the same other one, as over an NVSwitch."""
    gpus = table.gpus
    peers: list[set[int]] = [set() for _ in gpus]
    for (one, other), count in counts.items():
        if count == product.links:
            peers[one].add(other)
            peers[other].add(one)
    for one, other in combinations(range(len(gpus)), 2):
        if (one, other) not in counts and peers[one] & peers[other]:
            expected = f"NV{product.links}, as of the other pairs on this NVSwitch"
            raise table.matrix.wrong_cell(document, gpus[other], gpus[one], expected)


def _far_note(distances: Sequence[Sequence[int]]) -> str:
    """Name NICs that are far from every GPU while others are nearer, and say how they are left out."""
    far = [f"nic{nic}" for nic, row in enumerate(distances) if NEAREST[min(row)] in FAR]
    if not far or len(far) == len(distances):
        return ""
    return (
        f"{set_text(far)}: SYS from every GPU while other network cards are nearer, as cards for management are; "
        f"counted like the others, unless left out in each box (--without box0/{far[0]})"
    )


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
            expected = "a nearer class, like that of the others between them: classes have to fit together"
            raise table.matrix.wrong_cell(document, devices[one], devices[other], expected)
    # Bridges that a GPU shares with another device, numbered from 0.
    shared = [bridge for bridge in dict.fromkeys(bridges[: len(table.gpus)]) if bridges.count(bridge) > 1]
    number = {bridge: place for place, bridge in enumerate(shared)}
    return [PcieLocation(cpu, number.get(bridge)) for cpu, bridge in zip(cpus, bridges, strict=True)], (
        "PIX and PXB are modeled as one bridge above all such GPUs, PHB and NODE as one CPU"
    )


_LEGEND = re.compile(r"^[ \t]*(NIC\d{1,4}): ([\w.:-]{1,64})[ \t]*\r?$", re.ASCII | re.MULTILINE)
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
    nics = tuple(row for row in range(len(matrix.labels)) if row not in gpus)
    # The NUMA node of each GPU, or its CPU cores from drivers that do not print the node.
    place = 1 if "NUMA Affinity" in lines[header.line - 1] else 0
    words = [matrix.tails[gpu].split()[place : place + 1] for gpu in gpus]
    affinities = tuple(row[0] if row and row[0][0].isdigit() else "" for row in words)
    return Table(matrix, gpus, nics, affinities)


def _header(lines: Sequence[str]) -> Header | None:
    """Find the first line with GPUs as columns."""
    for number, line in enumerate(lines, 1):
        before, affinity, _ = line.partition("CPU Affinity")
        words = before.split() if len(line) <= MAX_LINE else []
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
            if _CELL.pattern.fullmatch(next(iter(tail.split(None, 1)), "")):
                raise document.error(
                    f"row {matrix.labels[row]} has more than {len(matrix.labels)} cells; expected one for each column",
                    matrix.lines[row],
                )
            continue
        mirror = rows[last][row]
        if not word.startswith(mirror) or not _AFFINITY.fullmatch(word[len(mirror) :]):
            raise document.error(
                f"{matrix.cell_name(row, last)} is {shown(word)}; expected {_CELL.expected}", matrix.lines[row]
            )
        rows[row] = (*rows[row][:last], mirror)
        tails[row] = f" {cell[len(mirror) :]}{tail}"
    return matrix._replace(cells=tuple(rows), tails=tuple(tails))
