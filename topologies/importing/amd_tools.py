"""xGMI links of ``rocm-smi``, ``amd-smi topology``, and ``xgmi_num_links`` of AMD's driver."""

import re
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from ...support.arrays import components
from ...support.files import decode_json
from ...support.formatting import count_text
from ...support.validation import is_int, shown
from ..switched.scale_out import Box
from .box_from_links import (
    GpuLinks,
    Locations,
    Pair,
    PcieLocation,
    check_counts,
    direct_links,
    linked_box,
    needed_product,
    unlinked_note,
)
from .documents import (
    MAX_LABELS,
    CellKind,
    Document,
    Header,
    TextMatrix,
    find_headers,
    plain_lines,
    read_rows,
    titled_table,
)
from .options import BoxOptions

BANDWIDTH = CellKind(re.compile(r"(?:N/A|\d+-\d+)(?!\S)", re.ASCII), "min-max in MB/s, such as 50000-100000, or N/A")
LINK_TYPE = CellKind(re.compile(r"(?:XGMI|PCIE|SELF|UNKNOWN|N/A|0)(?!\S)", re.IGNORECASE), "XGMI or PCIE")
WEIGHT = CellKind(re.compile(r"(?:N/A|\d+)(?!\S)", re.ASCII), "a whole number")

DIRECT_WEIGHT = "15"  # of one xGMI link; a path of two has 30
PARTITION_WEIGHTS = ("13", "41")  # of partitions of one package, and of different ones (`kfd_crat.c` of the kernel)
MAX_WITHIN_CPU = 40  # weight of two PCIe segments, from GPU to CPU to GPU; paths between CPUs have more
MAX_DIGITS = 9  # of a bandwidth in MB/s, or of a weight
OTHER_SOURCES = "`rocm-smi --showtopo` or `amd-smi topology`, or a dump of RCCL (NCCL_TOPO_DUMP_FILE)"

GPU_LABEL = re.compile(r"GPU\d{1,4}", re.ASCII)


def link_bandwidths(document: Document, matrix: TextMatrix) -> dict[Pair, tuple[int, int]]:
    """Return the MB/s of a link and the number of links of each pair with direct links.

    A cell has the bandwidth of one link and of all links of the pair; ``0-0`` means no direct link (ROCm release
    notes).  Kernels of 2021 to 2024 do not measure them, but multiply the number of links by 16 lanes of 25 Gb/s,
    whatever the GPU (``amdgpu_amdkfd_get_xgmi_bandwidth_mbytes``).  So only the quotient is reliable.
    """
    matrix.check_symmetry(document)
    links: dict[Pair, tuple[int, int]] = {}
    for row, cells in enumerate(matrix.cells):
        for column, cell in enumerate(cells[: row + 1]):
            if row == column and cell not in {"N/A", "0-0"}:
                raise matrix.wrong_cell(document, row, column, "N/A")
            if row == column or cell == "N/A":
                continue
            one_link, all_links = (int(part[: MAX_DIGITS + 1]) for part in cell.split("-"))
            too_long = max(map(len, cell.split("-"))) > MAX_DIGITS
            if too_long or one_link > all_links or (all_links and (not one_link or all_links % one_link)):
                expected = "MB/s of one link and, a multiple of it, of all links of this pair"
                raise matrix.wrong_cell(document, row, column, expected)
            if all_links:
                links[column, row] = (one_link, all_links // one_link)
    return links


def _refuse_pcie(document: Document) -> NoReturn:
    """Raise the error for a file without PCIe whose xGMI links do not join all GPUs."""
    raise document.error(
        f"xGMI does not join all of its GPUs, and it says nothing about PCIe; use the output of {OTHER_SOURCES}"
    )


def _box_of_links(
    document: Document,
    options: BoxOptions,
    matrix: TextMatrix,
    links: Mapping[Pair, tuple[int | None, int]],
    locations: Locations | None = None,
) -> Box:
    """Make a box from the number of links of each pair, and MB/s of a link where the file states them."""
    stated = sorted({megabytes for megabytes, _ in links.values() if megabytes is not None})
    if options.gpu is None and options.figures == "line" and stated:
        rates = {pair: Fraction(megabytes or 0, 1000) * count for pair, (megabytes, count) in links.items()}
        notes = [
            f"an xGMI link is modeled with {_listed(stated)} GB/s in each direction, which the driver states unmeasured"
        ]
    else:
        figure = "the speed of" if options.figures == "line" else "the bandwidth that RCCL plans with for"
        product = needed_product(document, options, "amd", f"it does not state {figure} an xGMI link")
        counts = {pair: count for pair, (_, count) in links.items()}
        check_counts(document, product, counts, matrix.lines.__getitem__)
        rate = product.link(options.figures)
        rates = {pair: count * rate for pair, count in counts.items()}
        notes = [product.rate_note(options.figures)]
        if other := [megabytes for megabytes in stated if Fraction(megabytes, 1000) != rate]:
            notes.append(f"the file states {_listed(other)} GB/s for a link, which the driver does not measure")
    direct = direct_links(rates)
    between = GpuLinks(direct, notes=(*notes, *unlinked_note(len(matrix.labels), direct, "xGMI link")))
    return linked_box(
        document, options, "amd", len(matrix.labels), between, locations or (lambda: _refuse_pcie(document))
    )


def _box_of_types(
    document: Document, options: BoxOptions, types: TextMatrix, weights: TextMatrix | None, locations: Locations
) -> Box:
    """Make a box from link types and weights: a pair has one direct link if it is xGMI of weight 15.

    Hops are 1 on every xGMI path, direct or not (ROCm/rocm-systems issue 5763), and parallel links are not counted.
    """
    pairs, between = check_types(document, types), GpuLinks()
    if pairs:
        if weights is None:
            raise document.error(
                "it has XGMI pairs but no table of weights, which identifies direct links; expected all tables"
            )
        _refuse_partitions(document, weights, pairs)
        product = needed_product(
            document, options, "amd", "it states neither the speed of xGMI links nor their number per pair"
        )
        if not product.per_pair:
            raise document.error(
                f"pairs of {product.name} have one to four links, and it does not say how many; use the "
                "output of `rocm-smi --shownodesbw`, or a dump of RCCL (NCCL_TOPO_DUMP_FILE)"
            )
        counts = {pair: product.per_pair for pair in pairs if weights.cells[pair[0]][pair[1]] == DIRECT_WEIGHT}
        check_counts(document, product, counts, types.lines.__getitem__)
        links = direct_links(dict.fromkeys(counts, product.per_pair * product.link(options.figures)))
        notes = [
            product.rate_note(options.figures),
            f"a pair of {product.name} is taken to have {count_text(product.per_pair, 'xGMI link')}",
            *unlinked_note(len(types.labels), links, "xGMI link"),
        ]
        lost = [f"gpu{one}-gpu{other}" for one, other in pairs if (one, other) not in counts]
        if lost and product.links >= product.per_pair * (len(types.labels) - 1):
            notes.append(
                f"no direct link of {', '.join(lost[:3])}{' ...' * (len(lost) > 3)}, though {product.name} has enough "
                "for all pairs; check it if that is a fault"
            )
        between = GpuLinks(links, notes=tuple(notes))
    return linked_box(document, options, "amd", len(types.labels), between, locations)


def _refuse_partitions(document: Document, weights: TextMatrix, pairs: Collection[Pair]) -> None:
    """Raise `FileFormatError` for partitions of GPUs, those of two packages sharing the link between these."""
    for one, other in pairs:
        if weights.cells[one][other] in PARTITION_WEIGHTS:
            expected = (
                f"{DIRECT_WEIGHT}, one xGMI link: {' and '.join(PARTITION_WEIGHTS)} are of partitions of GPUs, as "
                "in CPX mode, which share links; set SPX mode (amd-smi set --compute-partition SPX), or describe the "
                "network as JSON"
            )
            raise weights.wrong_cell(document, one, other, expected)


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


def _locations_by_weight(weights: TextMatrix | None, gpus: int) -> tuple[list[PcieLocation], str]:
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
    return " or ".join([*(f"{rate / 1000:g}" for rate in rates[:3]), *(["other"] if len(rates) > 3 else [])])


_BANDWIDTH_ROW = re.compile(r"\bGPU\d{1,4}\s+(?:N/A|\d+-\d+)(?!\S)", re.ASCII)
_FORMAT = re.compile(r"Format:\s*min-max;\s*Units:\s*(\w+)", re.ASCII)


def matches_bandwidths(document: Document) -> bool:
    """Return whether there is a table of GPUs whose rows begin with ``min-max`` or N/A; never raises."""
    return _bandwidth_header(document) is not None


def read_bandwidths(document: Document, options: BoxOptions) -> Box:
    """Read the table of ``rocm-smi --shownodesbw``."""
    lines, header = plain_lines(document), _bandwidth_header(document)
    assert header is not None, "matches_bandwidths found it"
    matrix = read_rows(document, lines, header, BANDWIDTH)
    matrix.check_ends(document)
    for number, line in enumerate(lines, 1):
        unit = _FORMAT.search(line)
        if unit is not None and unit.group(1) != "mps":
            raise document.error(f"units are {shown(unit.group(1))}; expected mps, which is MB/s", number)
    if not (links := link_bandwidths(document, matrix)):
        raise document.error(
            f"every pair has 0-0, which newer drivers print whatever the links are; use the output of {OTHER_SOURCES}"
        )
    return _box_of_links(document, options, matrix, links)


def _bandwidth_header(document: Document) -> Header | None:
    """Find the first header above a row of bandwidths."""
    lines = plain_lines(document) if "GPU" in document.text else []
    for header in find_headers(lines, GPU_LABEL):
        below = next((lines[number] for number in range(header.line, len(lines)) if lines[number].strip()), "")
        if _BANDWIDTH_ROW.search(below):
            return header
    return None


TYPES = "Link Type between two GPUs"
WEIGHTS = "Weight between two GPUs"
_NUMA = re.compile(r"GPU\[(\d{1,4})\]\s*:\s*\(Topology\)\s*Numa Node:\s*(-?\d{1,4})\b", re.ASCII)


def matches_topology_tables(document: Document) -> bool:
    """Return whether it has a title of the tables; never raises."""
    return TYPES in document.text or WEIGHTS in document.text


def read_topology_tables(document: Document, options: BoxOptions) -> Box:
    """Read the tables of weights, link types and NUMA nodes of ``rocm-smi --showtopo``."""
    lines = plain_lines(document)
    types = titled_table(document, lines, TYPES, GPU_LABEL, LINK_TYPE)
    if types is None:
        raise document.error(f"there is no table '{TYPES}'; expected all that `rocm-smi --showtopo` prints")
    weights = titled_table(document, lines, WEIGHTS, GPU_LABEL, WEIGHT)
    if weights is not None:
        _check_labels(document, types, weights, "weights")
        weights.check_symmetry(document)
    return _box_of_types(document, options, types, weights, lambda: _locations(document, lines, types, weights))


def _check_labels(document: Document, types: TextMatrix, table: TextMatrix, title: str) -> None:
    if table.labels != types.labels:
        raise document.error(
            f"its tables of {title} and of link types are of different GPUs, {len(table.labels)} and "
            f"{len(types.labels)}; expected the same"
        )


def _locations(
    document: Document, lines: Sequence[str], types: TextMatrix, weights: TextMatrix | None
) -> tuple[list[PcieLocation], str]:
    """Assign GPUs to the CPUs of their NUMA nodes, or by weight where those are missing."""
    nodes: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if match := _NUMA.search(line):
            label, node = f"GPU{int(match.group(1))}", int(match.group(2))
            if nodes.setdefault(label, node) != node:
                raise document.error(f"{label} is on two NUMA nodes, {nodes[label]} and {node}; expected one", number)
    if not nodes.keys() >= set(types.labels) or min(nodes.values()) < 0:
        return _locations_by_weight(weights, len(types.labels))
    order = {node: cpu for cpu, node in enumerate(sorted({nodes[label] for label in types.labels}))}
    return [PcieLocation(order[nodes[label]]) for label in types.labels], "every NUMA node is modeled as one CPU"


MAX_TEXT = 2**20  # characters, more than those of `MAX_LABELS` lines of as many numbers

_COUNT = re.compile(r"[0-9a-f]{2}")


def matches_link_counts(document: Document) -> bool:
    """Return whether the text is a square matrix of two-digit numbers; never raises."""
    return _count_matrix(document) is not None


def read_link_counts(document: Document, options: BoxOptions) -> Box:
    """Read the matrix of ``xgmi_num_links``."""
    matrix = _count_matrix(document)
    assert matrix is not None, "matches_link_counts found it"
    matrix.check_symmetry(document)
    links: dict[Pair, tuple[int | None, int]] = {}
    for row, cells in enumerate(matrix.cells):
        if cells[row] != "00":
            raise matrix.wrong_cell(document, row, row, "00")
        links |= {(column, row): (None, count) for column in range(row) if (count := int(cells[column], 16))}
    return _box_of_links(document, options, matrix, links)


def _count_matrix(document: Document) -> TextMatrix | None:
    """Read a line for each GPU, with a two-digit hexadecimal number of links for each GPU (``amdgpu_xgmi.c``)."""
    lines = plain_lines(document) if len(document.text) <= MAX_TEXT else []
    rows = {number: tuple(line.split(None, MAX_LABELS)) for number, line in enumerate(lines, 1) if line.strip()}
    if not 2 <= len(rows) <= MAX_LABELS:
        return None
    if any(len(row) != len(rows) or not all(map(_COUNT.fullmatch, row)) for row in rows.values()):
        return None
    labels = tuple(f"GPU{gpu}" for gpu in range(len(rows)))
    return TextMatrix(labels, tuple(rows.values()), tuple(rows), ("",) * len(rows))


ADDRESS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
TABLES = {"LINK TYPE": LINK_TYPE, "WEIGHT": WEIGHT, "NUMA BW": BANDWIDTH}
_TITLE = re.compile(r"(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE:")


def matches_amd_smi(document: Document) -> bool:
    """Return whether it has a title of the tables, or is JSON of this format; never raises."""
    return _TITLE.search(document.text) is not None or looks_like_json(document)


def looks_like_json(document: Document) -> bool:
    """Return whether the text begins as a JSON list and has link types; never raises."""
    return document.text.lstrip().startswith("[") and '"link_type"' in document.text


def read_amd_smi(document: Document, options: BoxOptions) -> Box:
    """Read the tables of link types, bandwidths and weights of ``amd-smi topology``, as text or JSON.

    Without bandwidths, weights and link types count as those of ``rocm-smi --showtopo``.
    """
    tables = _json_tables(document) if looks_like_json(document) else _text_tables(document)
    types, weights, bandwidths = (tables.get(title) for title in TABLES)
    if types is None:
        raise document.error("there is no table of link types; expected all that `amd-smi topology` prints")
    for title, table in tables.items():
        _check_labels(document, types, table, title)
    gpus = len(types.labels)
    pairs = check_types(document, types)
    links = {} if bandwidths is None else link_bandwidths(document, bandwidths)
    if weights is not None:
        weights.check_symmetry(document)
    if not links:
        return _box_of_types(document, options, types, weights, lambda: _locations_by_weight(weights, gpus))
    # Bandwidths have to be of xGMI links, and of all that are direct.
    for pair in sorted({*pairs, *links}):
        if pair not in pairs:
            raise types.wrong_cell(document, *pair, "XGMI, as it has a bandwidth")
        if pair not in links and weights is not None and weights.cells[pair[0]][pair[1]] == DIRECT_WEIGHT:
            raise types.wrong_cell(document, *pair, f"a bandwidth of it, as others of weight {DIRECT_WEIGHT} have")
    if weights is not None:
        _refuse_partitions(document, weights, pairs)
    return _box_of_links(document, options, types, links, lambda: _locations_by_weight(weights, gpus))


def _text_tables(document: Document) -> dict[str, TextMatrix]:
    lines = plain_lines(document)
    tables = {title: titled_table(document, lines, f"{title} TABLE:", ADDRESS, cell) for title, cell in TABLES.items()}
    return {title: table for title, table in tables.items() if table is not None}


NEW_KEYS = {"LINK TYPE": "link_type", "WEIGHT": "weight", "NUMA BW": "bandwidth"}
OLD_KEYS = {"LINK TYPE": "link_type", "WEIGHT": "weight", "NUMA BW": "numa_bandwidth"}


def _json_tables(document: Document) -> dict[str, TextMatrix]:
    """Return those tables that exist, in JSON of ROCm 6.3 or of the form before (changelog of amdsmi)."""
    entries = decode_json(document.text, document.where)
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise document.error("it is not a list of GPUs; expected what `amd-smi topology --json` prints")
    if not 2 <= len(entries) <= MAX_LABELS:
        raise document.error(f"it lists {len(entries)} GPUs; expected 2 to {MAX_LABELS}")
    labels = tuple(_label(document, entry) for entry in entries)
    if len(set(labels)) < len(labels):
        raise document.error("two of its GPUs have the same number; expected different ones")
    is_old = isinstance(entries[0].get("link_type"), Mapping)
    keys, row_of = (OLD_KEYS, _old_row) if is_old else (NEW_KEYS, _new_row)
    tables = {}
    for title, key in keys.items():
        listed = [row_of(document, entry, label, key) for entry, label in zip(entries, labels, strict=True)]
        rows = [[row.get(f"gpu_{label}") for label in labels] for row in listed]
        if any(value is not None for row in rows for value in row):
            checked = tuple(tuple(_checked(document, value, key, TABLES[title]) for value in row) for row in rows)
            names = tuple(f"GPU{label}" for label in labels)
            tables[title] = TextMatrix(names, checked, (None,) * len(labels), ("",) * len(labels))
    return tables


def _label(document: Document, entry: Mapping[str, Any]) -> int:
    number = entry.get("gpu")
    if not is_int(number) or not 0 <= number < 10**4:
        raise document.error(f"a GPU has the number {shown(number)}; expected a whole number from 0")
    return number


def _old_row(document: Document, entry: Mapping[str, Any], label: int, key: str) -> dict[str, object]:
    row = entry.get(key, {})
    if not isinstance(row, dict):
        raise document.error(f"field {key} of GPU {label} is {shown(row)}; expected an object")
    return row


def _new_row(document: Document, entry: Mapping[str, Any], label: int, key: str) -> dict[str, object]:
    links = entry.get("links")
    if not isinstance(links, list) or len(links) > MAX_LABELS or not all(isinstance(link, Mapping) for link in links):
        raise document.error(f"links of GPU {label} are {shown(links)}; expected an object for each GPU")
    row = {f"gpu_{_label(document, link)}": link.get(key) for link in links}
    if len(row) < len(links):
        raise document.error(f"GPU {label} lists its links to another GPU twice; expected them once")
    return row


def _checked(document: Document, value: object, key: str, cell: CellKind) -> str:
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not cell.pattern.fullmatch(text):
        raise document.error(f"{key} of a pair of GPUs is {shown(value)}; expected {cell.expected}")
    return text
