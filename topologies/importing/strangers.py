"""Files that people take for descriptions of networks and that are something else."""

from __future__ import annotations

import re

from .sources.document import Document

__all__ = ["what_it_is"]

STRANGERS = (
    (r'"internode_sketch"|"intranode_sketch"', "a TACCL sketch, which restricts routes and has no bandwidths"),
    (r'"logical-dims"', "a logical topology of ASTRA-sim for ns-3, whose links are in another file"),
    (r'"scheduling-policy"', "a system description of ASTRA-sim; its network is in another file"),
    (r'"1-Epoch_Duration"', "a schedule of TE-CCL; the network that it is for is in another file"),
    (r'"collective"[\s\S]*"gpus"', "an MSCCL++ execution plan, not a network; collopt lint checks it"),
    (
        r"\A\s*\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+[A-Za-z]\w*[^\n]*\n\s*\d",
        "a topology of SimAI, whose first line has more than nodes, switches and links; describe it as JSON",
    ),
    (r"\A\s*Nodes \d+\s+Tiers \d+", "a topology of htsim, which is not read; describe it as JSON or in Python"),
    (r"(?m)^[ \t]*(allreduce|allgather|broadcast|reduce\w*),\d+,", "a tuner table of NCCL, not a network"),
    (r"\A\d+( \d+)*\s*(\n\d+( \d+)*\s*)*\Z", "a table of bare numbers; say what they are in a topology file of ours"),
)
"""What is in them, and what they are."""

LOOKED_AT = 2**16
"""Characters: what a file is, its beginning tells."""


def what_it_is(document: Document) -> str | None:
    """Name the kind of a file that describes no network, or return None for an unknown one.

    Examples
    --------
    >>> what_it_is(Document("logical.json", '{"logical-dims": ["8"]}'))
    'a logical topology of ASTRA-sim for ns-3, whose links are in another file'
    """
    beginning = document.text[:LOOKED_AT]
    return next((what for pattern, what in STRANGERS if re.search(pattern, beginning)), None)
