"""File type detection by content, for messages about files given to the wrong command."""

import os
import re
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from .json_files import name_of

PLAN_KIND = "a collopt plan"
TOPOLOGY_KIND = "a topology file"
MSCCL_KIND = "MSCCL XML"
MSCCLPP_KIND = "an MSCCL++ execution plan"
MEASURED_KIND = "a benchmark of nccl-tests or collopt"
NUMBERS_KIND = "a table of numbers"
SENDS_KIND = "a list of sends"
NCCL_KIND = "a topology dump of NCCL or RCCL"
NVIDIA_KIND = "the output of nvidia-smi topo -m"
NETWORK_KINDS = (TOPOLOGY_KIND, NCCL_KIND, NVIDIA_KIND)

PREFIX_BYTES = 2**16  # bytes at the beginning of a file that are searched


class FileKind(NamedTuple):
    """A type of file and the command for it."""

    name: str  # with its article
    advice: str  # what to do with the file, ``{}`` standing for its path

    def command(self, file: str | os.PathLike[str]) -> str:
        """Fill the path into the advice."""
        return self.advice.replace("{}", os.fspath(file))


COMMENT = r"(?><!--(?>[\s\S]*?-->)\s*)"  # atomic groups: otherwise n comments could be split in 2**n ways
XML = rf"\A\s*(?:<\?xml[^>]*>\s*)?(?>{COMMENT}*)"  # what may come before the first element
DESCRIBES = "collopt import {} shows what it describes, and collopt plan plans for it"
PICTURE = FileKind("a picture", "pictures are not read")
BINARY_KINDS = (
    (b"\x89PNG", PICTURE),
    (b"%PDF", PICTURE),
    (b"\x93NUMPY", FileKind("an array of numpy", "pass it as --traffic of an all_to_allv, in a file named .npy")),
    (b"\x1f\x8b", FileKind("a compressed file", "unpack it first")),
    (b"PK\x03\x04", FileKind("a compressed file", "unpack it first")),
)
"""Magic bytes of binary files."""
CHAKRA = FileKind("a Chakra execution trace", "simulators such as ASTRA-sim read it, and collopt score {} scores it")

KINDS = (
    (
        r'\A\s*\{[\s\S]*?"format"\s*:\s*"collopt-plan"',
        FileKind(PLAN_KIND, "collopt verify {} checks it, and collopt export {} exports it for runtimes"),
    ),
    (r'\A\s*\{\s*"format"\s*:\s*"collopt-topology"', FileKind(TOPOLOGY_KIND, DESCRIBES)),
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
    (
        r"\A(?:#.*\n|\s)*(?=.*\bstep\b)(?=.*\bfrom\b)(?=.*\bto\b).*\bchunk\b",
        FileKind(SENDS_KIND, "collopt score {} --topology NAME scores it"),
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
        FileKind(MEASURED_KIND, "collopt calibrate {} fits launch, alpha and efficiency to its times"),
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
"""Patterns of text files."""


def kind_of(path: str | os.PathLike[str]) -> FileKind | None:
    """Detect the type of a file; None if it is unknown or the file cannot be read."""
    path = Path(path)
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            beginning = file.read(PREFIX_BYTES)
    except (OSError, ValueError):
        return None
    if path.suffix == ".et":
        return CHAKRA
    text = beginning.decode("utf-8", "replace").removeprefix("\ufeff")
    return next(
        (kind for mark, kind in BINARY_KINDS if beginning.startswith(mark)),
        next((kind for pattern, kind in KINDS if re.search(pattern, text)), None),
    )


def wrong_kind(path: str | os.PathLike[str], expected: str, accepted: Container[str]) -> str | None:
    """Describe a file of another type than `expected`; None if its type is unknown or among `accepted`."""
    kind = kind_of(path)
    if kind is None or kind.name in accepted:
        return None
    return f"{name_of(path)} is {kind.name}, not {expected}; {kind.command(path)}"
