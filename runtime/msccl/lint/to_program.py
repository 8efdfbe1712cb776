"""What an MSCCL file does, as a `Program` of the collective that it names."""

from __future__ import annotations

from ....errors import ProgramError, UnsupportedError
from ....schedules import Collective
from ...interpreter.findings import Findings
from ...programs.layout import Layout
from ...programs.program import Program
from ..format.document import Document, at
from ..format.limits import SPELLINGS
from ..format.rank_program import rank_program
from .header_rules import chunks_of_buffers

MAX_RANKS, MAX_PAIRED = 4096, 1024
"""More than that the parsers do not keep, and a table of all pairs of so many."""
MAX_CHUNKS = 2**24
"""In all buffers of all ranks; each is a number in memory when the file is run."""


def layout_of(document: Document, findings: Findings) -> Layout | None:
    """Where the chunks of a file's collective stand; None, with the reason as a finding, if that cannot be told."""
    collective = SPELLINGS.get(document.words["coll"])
    ranks, chunks = document.numbers["ngpus"], document.numbers["nchunksperloop"]
    if collective is None:
        findings.add(
            "not checked", f"what {document.words['coll'][:40]!r} computes is not known, so its data is not checked"
        )
        return None
    if sorted(gpu.number for gpu in document.gpus) != list(range(len(document.gpus))) or ranks != len(document.gpus):
        return None  # There is a rank without an element, which is told elsewhere.
    most = MAX_PAIRED if collective.in_pairs else MAX_RANKS
    total = sum(max(0, gpu.scratch_chunks) for gpu in document.gpus) + 2 * ranks * max(0, chunks)
    if ranks > most or chunks < 1 or total > MAX_CHUNKS:
        findings.add(
            "not checked", f"{total} chunks on {ranks} ranks are too many to interpret, so data is not checked"
        )
        return None
    try:
        if collective.in_pairs:
            return Layout.of(collective, ranks, chunks * ranks)
        return Layout.of(collective, ranks, chunks, _shards(document, collective))
    except ProgramError as error:
        findings.add("wrong data", str(error).replace("the program", "the file"), at(document.line))
    except UnsupportedError as error:
        findings.add("wrong data", str(error), at(document.line))
    return None


def _shards(document: Document, collective: Collective) -> tuple[int, ...]:
    """Find the root of a broadcast or reduce: only it has an input, or an output, or nobody to send or receive from."""
    if not collective.has_one_root:
        return ()
    ranks, chunks = document.numbers["ngpus"], document.numbers["nchunksperloop"]
    broadcast = not collective.reduces
    roots = {gpu.number for gpu in document.gpus if (gpu.input_chunks if broadcast else gpu.output_chunks) > 0}
    if len(roots) != 1:
        roots = {
            gpu.number
            for gpu in document.gpus
            if not any((block.recv if broadcast else block.send) >= 0 for block in gpu.blocks)
        }
    if len(roots) != 1:
        raise UnsupportedError(f"{len(roots)} ranks could be the root of the {collective}; expected one")
    return tuple(chunks if rank in roots else 0 for rank in range(ranks))


def program_of(document: Document, layout: Layout, findings: Findings) -> Program:
    """Translate a file; it has the gpu elements and thread blocks that it should, and steps of known types."""
    ranks = sorted(document.gpus, key=lambda gpu: gpu.number)
    shards = layout.shards if layout.collective.has_one_root else ()
    return Program(
        document.words.get("name", "unnamed"),
        layout.collective,
        document.numbers["ngpus"],
        layout.chunks,
        tuple(rank_program(gpu, *chunks_of_buffers(layout, gpu.number), findings) for gpu in ranks),
        shards=shards,
    )
