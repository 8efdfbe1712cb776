"""Tables as the tools of vendors print them, made of link counts, and the real ones that somebody may have at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collopt.errors import FileFormatError, TopologyError

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
