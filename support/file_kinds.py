"""Which kind a file is of that came to the wrong reader, and what is for it."""

from __future__ import annotations

import os
import re
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from .reading import name_of

__all__ = [
    "MEASURED_KIND",
    "MSCCLPP_KIND",
    "MSCCL_KIND",
    "NETWORK_KINDS",
    "NUMBERS_KIND",
    "PLAN_KIND",
    "FileKind",
    "kind_of",
    "wrong_kind",
]

PLAN_KIND = "a collopt plan"
TOPOLOGY_KIND = "a topology file"
MSCCL_KIND = "MSCCL XML"
MSCCLPP_KIND = "an MSCCL++ execution plan"
MEASURED_KIND = "a benchmark of nccl-tests or collopt"
NUMBERS_KIND = "a table of numbers"
NCCL_KIND = "a topology dump of NCCL or RCCL"
NVIDIA_KIND = "the output of nvidia-smi topo -m"
NETWORK_KINDS = (TOPOLOGY_KIND, NCCL_KIND, NVIDIA_KIND)

LOOKED_AT = 2**16
"""Bytes: what a file is, its beginning tells."""


class FileKind(NamedTuple):
    """What a file is, and what can be done with it.

    `name`: With its article.
    `advice`: With ``{}`` for the file.
    """

    name: str
    advice: str

    def command(self, file: str | os.PathLike[str]) -> str:
        """Say which command is for this file."""
        return self.advice.replace("{}", os.fspath(file))


COMMENT = r"(?><!--(?>[\s\S]*?-->)\s*)"
"""Atomic, or a comment could be divided from the next in two ways, and thirty of them in a billion."""
XML = rf"\A\s*(?:<\?xml[^>]*>\s*)?(?>{COMMENT}*)"
"""What may come before the first element."""
DESCRIBES = "collopt import {} shows what it describes, and collopt plan plans for it"
PICTURE = FileKind("a picture", "pictures are not read")
BINARY_KINDS = (
    (b"\x89PNG", PICTURE),
    (b"%PDF", PICTURE),
    (
        b"\x93NUMPY",
        FileKind("an array of numpy", "pass it as --traffic of an all_to_allv, in a file named .npy"),
    ),
    (b"\x1f\x8b", FileKind("a compressed file", "unpack it first")),
    (b"PK\x03\x04", FileKind("a compressed file", "unpack it first")),
)
"""Bytes that files begin with, and what they are."""
CHAKRA = FileKind("a Chakra execution trace", "simulators such as ASTRA-sim read it")

KINDS = (
    (
        r'\A\s*\{\s*"format"\s*:\s*"collopt-plan"',
        FileKind(PLAN_KIND, "collopt verify {} checks it, and collopt export {} exports it for runtimes"),
    ),
    (
        r'\A\s*\{\s*"format"\s*:\s*"collopt-topology"',
        FileKind(TOPOLOGY_KIND, DESCRIBES),
    ),
    (
        r'\A\s*\{(?=[\s\S]*"collective"\s*:)(?=[\s\S]*"gpus"\s*:)',
        FileKind(
            MSCCLPP_KIND, "collopt lint {} --runtime mscclpp checks it, collopt plan -o FILE writes a plan to verify"
        ),
    ),
    (
        XML + r"<algo\b",
        FileKind(MSCCL_KIND, "collopt lint {} --runtime NAME checks it, collopt plan -o FILE writes a plan to verify"),
    ),
    (XML + r"<system\b", FileKind(NCCL_KIND, DESCRIBES)),
    (r"\A\s*GPU0\s+(?:GPU1|CPU Affinity)\b", FileKind(NVIDIA_KIND, DESCRIBES)),
    (XML + r"<graphs\b", FileKind("a graph of NCCL", "set NCCL_GRAPH_FILE to it for NCCL to load it")),
    (
        r"(?m)^[ \t]*(?:allreduce|allgather|broadcast|reduce\w*),\d+,\d+,[a-z]",
        FileKind("a tuner table of NCCL", "set NCCL_TUNER_CONFIG_FILE to it for NCCL's tuner plugin to load it"),
    ),
    (
        (
            r"(?m)^#[ \t]*(?:collopt bench:|nThread\s|Collective test starting:|size\s+count\s+type\b)"
            r'|\A\s*\{(?=[\s\S]*"warmup_iters"\s*:)'
        ),
        FileKind(MEASURED_KIND, "collopt calibrate {} fits latency and bandwidth to its times"),
    ),
    (
        r"\Asize,count,type,redop,root,",
        FileKind("a table of collopt bench", "collopt calibrate reads the output of bench without --csv"),
    ),
    (r"\Anodes,degree,name,", FileKind("a table of collopt find", "collopt show {} draws it")),
    (
        r"\A\s*\d[\d.eE+-]*\s*(?:,\s*\d[\d.eE+-]*\s*)+(?:\n|\Z)",
        FileKind(NUMBERS_KIND, "pass it as the traffic of an all_to_allv: --traffic {}"),
    ),
    (r"(?i)\A\s*<(?:!doctype html|html)\b", FileKind("a web page", "web pages are not read")),
    (rf"(?i)\A\s*(?:<\?xml[^>]*>\s*)?(?>(?:{COMMENT}|<!doctype svg[^>]*>\s*)*)<svg\b", PICTURE),
)
"""What texts begin with, and what they are."""


def kind_of(path: str | os.PathLike[str]) -> FileKind | None:
    """Recognise a file by its beginning; None for those of another kind, and where there is nothing to read."""
    path = Path(path)
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            beginning = file.read(LOOKED_AT)
    except (OSError, ValueError):
        return None
    if path.suffix == ".et":
        return CHAKRA
    text = beginning.decode("utf-8", "replace").removeprefix("\ufeff")
    return next(
        (kind for mark, kind in BINARY_KINDS if beginning.startswith(mark)),
        next((kind for pattern, kind in KINDS if re.search(pattern, text)), None),
    )


def wrong_kind(path: str | os.PathLike[str], wanted: str, fitting: Container[str]) -> str | None:
    """Say of a file that could not be read what it is, and what is for it."""
    kind = kind_of(path)
    if kind is None or kind.name in fitting:
        return None
    return f"{name_of(path)} is {kind.name}, not {wanted}; {kind.command(path)}"
