"""Queues of MSCCL's connections: what they hold, and where the two sides of a network disagree about them."""

from __future__ import annotations

from typing import NamedTuple

from ...interpreter.findings import Findings
from ..format.document import Document, at
from ..format.limits import MAX_COUNT, SPELLINGS, UNLIMITED, Dialect, largest_chunk

FIFO_DEPTHS = {"Simple": 2, "LL": 8, "LL128": 8}
"""Transfers that a connection buffers, by protocol: eight steps of NCCL, of which Simple uses four for each."""


class Queue(NamedTuple):
    """What a connection holds."""

    transfers: int
    chunks: int  # That one transfer takes; a step that moves more is several


def queue_of(document: Document, dialect: Dialect) -> Queue:
    """Return what connections hold of the largest size for which the file is selected."""
    protocol, numbers = document.words.get("proto", ""), document.numbers
    if protocol not in FIFO_DEPTHS:
        return Queue(2, 1)
    first, beyond = dialect.sizes(numbers.get("minBytes"), numbers.get("maxBytes"))
    chunk = -(-(beyond - 1) // numbers["nchunksperloop"]) if first < beyond else UNLIMITED
    # They count one step where their kernel takes four; see `check_network`.
    most = dialect.transfer_bytes[protocol] // (4 if uses_one_step(document) else 1)
    return Queue(FIFO_DEPTHS[protocol], max(1, min(MAX_COUNT, most // max(1, chunk))))


def check_rounds(document: Document, dialect: Dialect, findings: Findings) -> None:
    """Note sizes for which a file is selected, but in whose many rounds the waits of the kernel hang."""
    protocol, chunks = document.words.get("proto", ""), document.numbers["nchunksperloop"]
    waits = any(step.wait_block >= 0 for gpu in document.gpus for block in gpu.blocks for step in block.steps)
    if protocol in ("LL", "LL128") and waits and chunks > 0:
        most = chunks * largest_chunk(dialect, protocol)
        if dialect.sizes(document.numbers.get("minBytes"), document.numbers.get("maxBytes"))[1] > most + 1:
            message = f"calls of more than {most} bytes hang with {protocol}, of which maxBytes lets more pick the file"
            findings.add("note", message, at(document.line))


def uses_one_step(document: Document) -> bool:
    """Whether the proxies of the network take one of NCCL's steps at a time, where the kernel takes two."""
    collective = SPELLINGS.get(document.words["coll"])
    return document.words.get("proto") == "Simple" and collective is not None and collective.has_one_root


def check_network(document: Document, gpus_per_box: int | None, findings: Findings) -> None:
    """Report connections over a network that hang, as proxy and kernel wait for different steps of the queue."""
    if gpus_per_box is not None and (left := len(document.gpus) % gpus_per_box):
        message = f"boxes of {gpus_per_box} GPUs do not divide the {len(document.gpus)} ranks; the last box has {left}"
        findings.add("note", message, at(document.line))
    if not uses_one_step(document):
        return
    what = (
        f"a {document.words['coll']} with proto Simple hangs over a network, where kernel and proxy disagree on steps"
    )
    if gpus_per_box is None:
        message = f"{what}; give the number of GPUs in a box, or write LL or LL128"
        findings.add("note", message, at(document.line))
        return
    for gpu in document.gpus:
        for block in gpu.blocks:
            if block.send >= 0 and block.send // gpus_per_box != gpu.number // gpus_per_box:
                findings.add(
                    "hangs", f"{what}, as from rank {gpu.number} to {block.send}; write LL or LL128", at(block.line)
                )
                return
