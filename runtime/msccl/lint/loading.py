"""How to have an MSCCL file picked up: variables, folders, and which calls it is for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...interpreter.findings import Window
from ..format.dialects import UNLIMITED, Dialect
from ..format.document import Document

LIBRARY = "the folder of the library"
FOLDERS = {
    "msccl-executor-nccl": f"{LIBRARY} + /msccl-algorithms or /../share/nccl/msccl-algorithms, or "
    "/usr/share/nccl/msccl-algorithms",
    "rccl": f"{LIBRARY} + /msccl-algorithms or /../share/rccl/msccl-algorithms",
}


def environment_of(paths: list[str], dialect: Dialect) -> Mapping[str, str]:
    """Variables that make a runtime look at files; those that read whole folders look at the first one's."""
    if dialect.absent or not paths:
        return {}
    full = [Path(path).absolute() for path in paths]
    if dialect.is_microsoft:
        return {"MSCCL_XML_FILES": ":".join(map(str, full)), "NCCL_ALGO": "MSCCL,RING,TREE"}
    folder = str(full[0].parent)
    if dialect.name == "rccl":
        return {"RCCL_MSCCL_ENABLE": "1", "RCCL_MSCCL_FORCE_ENABLE": "1", "MSCCL_ALGO_DIR": folder}
    return {"NCCL_MSCCL_ENABLE": "1", "MSCCL_ALGO_DIR": folder}


def loading_of(dialect: Dialect, document: Document | None) -> tuple[str, ...]:
    """What there is to know besides the variables."""
    if dialect.absent:
        return ()
    chunks = document.numbers["nchunksperloop"] if document else 1
    channels = document.numbers["nchannels"] if document else 1
    lines = []
    if dialect.is_microsoft:
        lines.append("a file that is rejected is skipped with a warning; NCCL_DEBUG=INFO says which are connected")
        lines.append("MSCCL_XML_FILES holds 4 files at most, with colons between them, so that no path may hold one")
    else:
        lines.append(
            f"files are read from MSCCL_ALGO_DIR, or else from {FOLDERS[dialect.name]}; keep no other files there: "
            "all files for this number of ranks are loaded, and one that is rejected stops the communicator"
        )
    if dialect.name == "msccl-executor-nccl":
        lines.append("the library must be the executor's own libnccl.so, and each process have one GPU")
    if dialect.name == "rccl":
        lines.append("RCCL has no MSCCL from ROCm 7.13 on, and before it must have been built with its kernels")
        lines.append("RCCL needs RCCL_MSCCL_FORCE_ENABLE except on machines that it knows, such as 8x MI300X")
        lines.append("if ncclCommSplit crashes, set RCCL_MSCCL_ENABLE=0 to run without MSCCL (ROCm/TheRock#7874)")
    if channels > 1:
        lines.append(f"the communicator must have {channels} channels; NCCL_MAX_NCHANNELS must not be below")
    if chunks > 1:
        lines.append(f"only calls whose total number of elements is a multiple of {chunks} pick the file")
    return tuple(lines)


def windows_of(dialect: Dialect, document: Document | None) -> tuple[Window, ...]:
    """Calls that a file is for."""
    if document is None:
        return ()
    numbers = document.numbers
    placements = dialect.placements(numbers.get("inplace", 0), numbers.get("outofplace", 0))
    sizes = dialect.sizes(numbers.get("minBytes"), numbers.get("maxBytes"))
    return tuple(
        Window(document.words["coll"], numbers["ngpus"], in_place, *sizes)
        for in_place, applies in zip((True, False), placements, strict=True)
        if applies
    )


def summary_of(dialect: Dialect, document: Document | None) -> str:
    """Which calls a file is for."""
    if document is None:
        return ""
    windows = windows_of(dialect, document)
    places = " and ".join("in place" if window.in_place else "out of place" for window in windows)
    sizes = sizes_text(windows[0].first, windows[0].beyond) if windows else "of no size"
    return f"{document.words['coll'][:40]} on {document.numbers['ngpus']} ranks, {places or 'for no call'}, {sizes}"


def sizes_text(first: int, beyond: int) -> str:
    """Say which sizes there are from one up to another that is not among them."""
    if first >= beyond:
        return "of no size"
    if beyond >= UNLIMITED:
        return f"from {first} bytes" if first else "of any size"
    return f"from {first} to {beyond - 1} bytes"
