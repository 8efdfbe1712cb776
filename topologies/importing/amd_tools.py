"""xGMI links of AMD's tools: ``rocm-smi --shownodesbw``, ``rocm-smi --showtopo``, ``xgmi_num_links`` of the driver.

``--shownodesbw`` prints for each pair the bandwidth of one link and of all its links, ``min-max`` in MB/s; ``0-0``
means no direct link (ROCm release notes).  The driver does not measure them: kernels of 2021 to 2024 multiply the
number of links by 16 lanes of 25 Gb/s, whatever the GPU (``amdgpu_amdkfd_get_xgmi_bandwidth_mbytes``), so an MI300X
shows 50 GB/s for a link of 64 GB/s.  Only their quotient, the number of links, is reliable, so a given GPU model
overrides the bandwidth.

``--showtopo`` prints types and weights.  Its hops are 1 on every xGMI path, direct or not (ROCm/rocm-systems issue
5763), so direct links are identified by their weight, 15.  It does not print the number of parallel links.

``/sys/class/drm/card*/device/xgmi_num_links`` has a line for each GPU, with a two-digit hexadecimal number of links for
each GPU (``amdgpu_xgmi.c`` of the Linux kernel).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from ...support.arrays import components
from ...support.files import decode_json
from ...support.validation import is_int, shown
from ..switched.scale_out import Box
from .box_from_links import Locations, Pair, PcieLocation, check_counts, linked_box, needed_product
from .documents import (
    MAX_LABELS,
    CellKind,
    Document,
    Header,
    TextMatrix,
    find_headers,
    line_below,
    plain_lines,
    read_rows,
    titled_table,
)
from .options import BoxOptions

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
    links: dict[Pair, tuple[int, int]] = {}
    for row, cells in enumerate(matrix.cells):
        for column, cell in enumerate(cells):
            if row == column or cell == "N/A":
                if row == column and cell not in {"N/A", "0-0"}:
                    raise matrix.wrong_cell(document, row, column, "N/A")
                continue
            one_link, all_links = (int(part[: MAX_DIGITS + 1]) for part in cell.split("-"))
            if max(len(part) for part in cell.split("-")) > MAX_DIGITS or (
                all_links and (not one_link or all_links % one_link)
            ):
                expected = "MB/s of one link and, a multiple of it, of all links of this pair"
                raise matrix.wrong_cell(document, row, column, expected)
            if one_link > all_links:
                raise matrix.wrong_cell(document, row, column, "the smaller number first")
            if all_links and row < column:
                links[row, column] = (one_link, all_links // one_link)
    return links


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
    links: Mapping[Pair, tuple[int | None, int]],
    locations: Locations,
) -> Box:
    """Make a box from the number of links of each pair."""
    stated = sorted({megabytes for megabytes, _ in links.values() if megabytes is not None})
    counts = {pair: count for pair, (_, count) in links.items()}
    if options.gpu is None and options.figures == "line" and stated:
        direct = {pair: Fraction(megabytes or 0, 1000) * count for pair, (megabytes, count) in links.items()}
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
        if other := [megabytes for megabytes in stated if Fraction(megabytes, 1000) != rate]:
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


_BANDWIDTH_ROW = re.compile(r"\bGPU\d{1,4}\s+(?:N/A|\d+-\d+)(?!\S)", re.ASCII)
_FORMAT = re.compile(r"Format:\s*min-max;\s*Units:\s*(\w+)", re.ASCII)


def matches_bandwidths(document: Document) -> bool:
    """Return whether there is a table of GPUs whose rows begin with ``min-max`` or N/A; never raises."""
    return _bandwidth_header(document) is not None


def read_bandwidths(document: Document, options: BoxOptions) -> Box:
    """Read the table."""
    matrix = _bandwidth_matrix(document)
    links = link_bandwidths(document, matrix)
    if not links:
        raise document.error(
            "every pair has 0-0, which newer drivers print whatever the links are; use the output of `amd-smi "
            "topology` or `rocm-smi --showtopo`, or a dump of RCCL (NCCL_TOPO_DUMP_FILE)"
        )

    return box_of_bandwidths(document, options, matrix, links, lambda: refuse_pcie(document))


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


GPU_LABEL = re.compile(r"GPU\d{1,4}", re.ASCII)
TYPES = "Link Type between two GPUs"
WEIGHTS = "Weight between two GPUs"
_NUMA = re.compile(r"GPU\[(\d{1,4})\]\s*:\s*\(Topology\)\s*Numa Node:\s*(-?\d{1,4})\b", re.ASCII)


def matches_topology_tables(document: Document) -> bool:
    """Return whether it has a title of the tables; never raises."""
    return TYPES in document.text or WEIGHTS in document.text


def read_topology_tables(document: Document, options: BoxOptions) -> Box:
    """Read the tables of weights, link types and NUMA nodes."""
    lines = plain_lines(document)
    types = titled_table(document, lines, TYPES, GPU_LABEL, LINK_TYPE)
    if types is None:
        raise document.error(f"there is no table '{TYPES}'; expected all that `rocm-smi --showtopo` prints")
    weights = titled_table(document, lines, WEIGHTS, GPU_LABEL, WEIGHT)
    if weights is not None:
        if weights.labels != types.labels:
            raise document.error(
                f"its tables of weights and of link types are of different GPUs, {len(weights.labels)} and "
                f"{len(types.labels)}; expected the same"
            )
        weights.check_symmetry(document)
    return box_of_types(document, options, types, weights, lambda: _locations(document, lines, types, weights))


def _locations(
    document: Document, lines: Sequence[str], types: TextMatrix, weights: TextMatrix | None
) -> tuple[list[PcieLocation], str]:
    """Assign GPUs to the CPUs of their NUMA nodes, or by weight where those are missing."""
    nodes: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        match = _NUMA.search(line)
        if match is None:
            continue
        label, node = f"GPU{int(match.group(1))}", int(match.group(2))
        if nodes.setdefault(label, node) != node:
            raise document.error(f"{label} is on two NUMA nodes, {nodes[label]} and {node}; expected one", number)
    if not nodes.keys() >= set(types.labels) or min(nodes.values()) < 0:
        return locations_by_weight(weights, len(types.labels))
    order = {node: cpu for cpu, node in enumerate(sorted({nodes[label] for label in types.labels}))}
    return [PcieLocation(order[nodes[label]]) for label in types.labels], "every NUMA node is modeled as one CPU"


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

    links = {pair: (None, count) for pair, count in counts.items() if count}
    return box_of_bandwidths(document, options, matrix, links, lambda: refuse_pcie(document))


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
