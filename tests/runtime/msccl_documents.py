"""MSCCL files of a few elements as the linter holds them, made without a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collopt.runtime.msccl.document import Block, Document, Gpu, Step
from collopt.runtime.programs.findings import Finding

MSCCL, AZURE, RCCL = "msccl", "msccl-executor-nccl", "rccl"
Found = list[str]
"""Severities and first words of findings."""


def step(kind: str = "cpy", number: int = 0, **changes: Any) -> Step:
    """A step that copies chunk 0 of the input to the output."""
    made = Step(1, number, kind, "i", 0, "o", 0, 1, -1, -1, 0)
    return made._replace(**changes)


def block(*steps: Step, number: int = 0, send: int = -1, recv: int = -1, channel: int = 0) -> Block:
    """A thread block."""
    made = Block(1, number, send, recv, channel)
    made.steps.extend(steps)
    return made


def gpu(*blocks: Block, number: int = 0, sizes: tuple[int, int, int] = (1, 1, 0)) -> Gpu:
    """A gpu element."""
    made = Gpu(1, number, *sizes)
    made.blocks.extend(blocks)
    return made


def document(*gpus: Gpu, coll: str = "allreduce", proto: str = "Simple", name: str = "x", **numbers: int) -> Document:
    """A file for calls out of place; numbers of None are left out."""
    every = {"nchannels": 1, "nchunksperloop": 1, "ngpus": max(1, len(gpus)), "inplace": 0, "outofplace": 1}
    every |= {"minBytes": 0, "maxBytes": 2**20} | numbers
    words = {"name": name, "proto": proto, "coll": coll}
    made = Document(1, words, {key: value for key, value in every.items() if value is not None})
    made.gpus.extend(gpus)
    return made


def agree(findings: Iterable[Finding], found: Found) -> bool:
    """Whether findings are of these severities and begin with these words."""
    texts = [f"{finding.severity}: {finding.message}" for finding in findings]
    return len(texts) == len(found) and all(map(str.startswith, texts, found))
