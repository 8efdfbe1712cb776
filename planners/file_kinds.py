"""Which kind a file is of that came to the wrong reader, and which command is for it: most of them are JSON."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["MSCCLPP_KIND", "PLAN_KIND", "TOPOLOGY_KIND", "FileKind", "kind_of"]

PLAN_KIND = "a plan of collopt"
TOPOLOGY_KIND = "a topology file"
MSCCLPP_KIND = "an MSCCL++ execution plan"

LOOKED_AT = 2**16
"""Bytes: what a file is, its beginning tells."""


class FileKind(NamedTuple):
    """What a file is, and what can be done with it.

    Attributes
    ----------
    name : str
        With its article.
    advice : str
        With ``{}`` for the file.
    """

    name: str
    advice: str

    def command(self, file: str | os.PathLike[str]) -> str:
        """Say which command is for this file."""
        return self.advice.replace("{}", os.fspath(file))


KINDS = (
    (
        r'\A\s*\{\s*"format"\s*:\s*"collopt-plan"',
        FileKind(
            PLAN_KIND, "collopt verify {} checks it, and collopt plan --xml or --mscclpp writes what runtimes load"
        ),
    ),
    (
        r'\A\s*\{\s*"format"\s*:\s*"collopt-topology"',
        FileKind(TOPOLOGY_KIND, "collopt import {} says what it describes, and collopt plan plans for it"),
    ),
    (
        r'\A\s*\{(?=[\s\S]*"collective"\s*:)(?=[\s\S]*"gpus"\s*:)',
        FileKind(
            MSCCLPP_KIND, "collopt lint {} --runtime mscclpp checks it, collopt plan -o FILE writes a plan to verify"
        ),
    ),
)
"""What files begin with, and what they are."""


def kind_of(path: str | os.PathLike[str]) -> FileKind | None:
    """Recognise a file of ours or of MSCCL++ by its beginning; None for others, and where there is nothing to read."""
    path = Path(path)
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            beginning = file.read(LOOKED_AT).decode("utf-8", "replace").removeprefix("\ufeff")
    except (OSError, ValueError):
        return None
    return next((kind for pattern, kind in KINDS if re.search(pattern, beginning)), None)
