"""Tables as the tools of vendors print them, made of link counts, and the real ones that somebody may have at hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from collopt.errors import FileFormatError, TopologyError
from collopt.topologies.switched.box_files import stored_fields

FRONTIER = (
    (0, 4, 1, 0, 0, 0, 2, 0),
    (4, 0, 0, 1, 0, 1, 0, 0),
    (1, 0, 0, 4, 2, 0, 0, 0),
    (0, 1, 4, 0, 0, 0, 0, 1),
    (0, 0, 2, 0, 0, 4, 1, 0),
    (0, 1, 0, 0, 4, 0, 0, 1),
    (2, 0, 0, 0, 1, 0, 0, 4),
    (0, 0, 0, 1, 0, 1, 4, 0),
)
"""xGMI links between the GCDs of four MI250X, as the driver counts them (ROCm/rocm-systems issue 5763)."""


def refusal(call: Callable[[], object]) -> str:
    """Return what a reader says against its input, or nothing; other exceptions pass."""
    try:
        call()
    except (FileFormatError, TopologyError) as error:
        return str(error)
    return ""


def square(labels: Sequence[str], cell: Callable[[int, int], object], tails: Sequence[str] = ()) -> str:
    """Write a table, a label in front of each row, tabs between the cells."""
    rows = ["\t".join(["", *labels, *tails[:1]])]
    for row, label in enumerate(labels):
        tail = tails[row + 1 : row + 2]
        rows.append("\t".join([label, *(str(cell(row, column)) for column in range(len(labels))), *tail]))
    return "\n".join(rows) + "\n"


def gpu_labels(count: int) -> list[str]:
    """GPU0, GPU1, ..."""
    return [f"GPU{gpu}" for gpu in range(count)]


def node_bandwidths(counts: Sequence[Sequence[int]], link: int = 50000) -> str:
    """Write what ``rocm-smi --shownodesbw`` prints."""

    def cell(row: int, column: int) -> str:
        count = counts[row][column]
        return "N/A" if row == column else f"{link if count else 0}-{link * count}"

    banner = "====== ROCm System Management Interface ======\n====== Bandwidth ======\n"
    footer = "Format: min-max; Units: mps\n====== End of ROCm SMI Log ======\n"
    return banner + square(gpu_labels(len(counts)), cell) + footer


def rocm_topology(weights: Sequence[Sequence[int]], numa: Sequence[int] = ()) -> str:
    """Write what ``rocm-smi --showtopo`` prints; pairs of weight 15 and 30 are on xGMI."""
    labels = gpu_labels(len(weights))
    kinds = {0: "0", 15: "XGMI", 30: "XGMI"}
    text = "\n==== ROCm System Management Interface ====\n==== Weight between two GPUs ====\n"
    text += square(labels, lambda row, column: weights[row][column])
    text += "\n==== Hops between two GPUs ====\n" + square(labels, lambda row, column: int(row != column))
    text += "\n==== Link Type between two GPUs ====\n"
    text += square(labels, lambda row, column: kinds.get(weights[row][column], "PCIE"))
    text += "\n==== Numa Nodes ====\n"
    for gpu, node in enumerate(numa):
        text += f"GPU[{gpu}]\t\t: (Topology) Numa Node: {node}\nGPU[{gpu}]\t\t: (Topology) Numa Affinity: {node}\n"
    return text + "==== End of ROCm SMI Log ====\n"


def two_hives(size: int = 4) -> list[list[int]]:
    """Weights of two groups of GPUs with xGMI inside and PCIe between CPUs from one to the other."""
    gpus = range(2 * size)
    return [[0 if a == b else 15 if a // size == b // size else 72 for b in gpus] for a in gpus]


LEGEND = "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
DGX1_LINKS = {(a, b): count for a, b, count in stored_fields("dgx1-v100")["links"]["pairs"]}
HALVES = ["CPU Affinity\tNUMA Affinity", *["0-31\t0"] * 4, *["32-63\t1"] * 4]


def table(kinds: list[str], tails: list[str] | None = None) -> str:
    """Write the table of kinds above the diagonal, ``"PIX SYS", "SYS"``."""
    rows = [row.split() for row in kinds]

    def cell(row: int, column: int) -> str:
        low, high = sorted((row, column))
        return " X " if low == high else rows[low][high - low - 1]

    return square(gpu_labels(len(rows) + 1), cell, tails or ["CPU Affinity"]) + LEGEND


def all_pairs(kind: str, gpus: int) -> list[str]:
    """Give every pair the same kind."""
    return [" ".join([kind] * count) for count in range(gpus - 1, 0, -1)]


def cube_mesh() -> str:
    """Write the table of a DGX-1."""
    return table(
        [
            " ".join(f"NV{DGX1_LINKS[a, b]}" if (a, b) in DGX1_LINKS else "SYS" for b in range(a + 1, 8))
            for a in range(7)
        ]
    )


MESH = tuple(tuple(int(a != b) for b in range(8)) for a in range(8))
NO_BANDWIDTH = "0-0"
SYSFS = "".join(" ".join(f"{count:02x}" for count in row) + "\n" for row in FRONTIER)


def addresses(count: int) -> list[str]:
    """PCIe addresses as the tool writes them."""
    return [f"0000:{16 * gpu + 12:02x}:00.0" for gpu in range(count)]


def cells(counts: tuple[tuple[int, ...], ...], *, stated: bool = True) -> dict[str, list[list[object]]]:
    """What each table says of some links: pairs without any are on PCIe."""
    size = range(len(counts))

    def kind(a: int, b: int) -> str:
        return "SELF" if a == b else "XGMI" if counts[a][b] else "PCIE"

    def bandwidth(a: int, b: int) -> str:
        links = counts[a][b]
        return "N/A" if not links else f"50000-{50000 * links}" if stated else NO_BANDWIDTH

    return {
        "WEIGHT": [[0 if a == b else 15 if counts[a][b] else 72 for b in size] for a in size],
        "LINK TYPE": [[kind(a, b) for b in size] for a in size],
        "NUMA BW": [[bandwidth(a, b) for b in size] for a in size],
    }


def amd_text(tables: dict[str, list[list[object]]]) -> str:
    """Write the tables as text."""
    written = ""
    for title, rows in tables.items():
        written += f"{title} TABLE:\n" + square(addresses(len(rows)), lambda a, b, rows=rows: rows[a][b]) + "\n"
    return written + "Legend:\n  SELF = Current GPU\n"


def new_json(tables: dict[str, list[list[object]]]) -> str:
    """Write the tables as ROCm 6.3 and later do."""
    keys = {"WEIGHT": "weight", "LINK TYPE": "link_type", "NUMA BW": "bandwidth"}
    size = range(len(tables["WEIGHT"]))
    return json.dumps(
        [
            {"gpu": a, "bdf": addresses(a + 1)[a],
             "links": [{"gpu": b, "num_hops": 1} | {keys[title]: rows[a][b] for title, rows in tables.items()}
                       for b in reversed(size)]}
            for a in size
        ],
        indent=4,
    )  # fmt: skip


def old_json(tables: dict[str, list[list[object]]]) -> str:
    """Write the tables as earlier releases do."""
    keys = {"WEIGHT": "weight", "LINK TYPE": "link_type", "NUMA BW": "numa_bandwidth"}
    size = range(len(tables["WEIGHT"]))
    return json.dumps(
        [
            {"gpu": a} | {keys[title]: {f"gpu_{b}": rows[a][b] for b in size} for title, rows in tables.items()}
            for a in size
        ]
    )
