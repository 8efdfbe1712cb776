"""Pydantic schema of the index of a folder of plans; ``docs/reference/plan-folder.md`` describes it."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator

from ..plans.schema import Word

INDEX_FORMAT = "collopt-plan-folder"
INDEX_VERSION = 1

Status = Literal["ok", "disconnected", "failed"]


def _as_fraction(value: object) -> Fraction:
    if isinstance(value, str | Fraction) and len(str(value)) <= 200:
        return Fraction(value)
    raise ValueError("expected a fraction as text, such as '3/65'")


Exact = Annotated[Fraction, PlainValidator(_as_fraction), PlainSerializer(str)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FaultEntry(_Entry):
    """A node, or both ends of a link, and what is left of its bandwidth."""

    nodes: tuple[str, ...]
    factor: Exact = Fraction(0)


class CaseEntry(_Entry):
    """What came of one case for one collective."""

    collective: Word
    failure: tuple[FaultEntry, ...]
    kind: str
    count: int
    status: Status
    reason: str
    ranks: int
    bound: Exact | None
    algbw: Exact | None
    baselines: dict[Word, Exact | None]
    seconds: float
    file: Word | None = None


class IndexDocument(_Entry):
    """All cases, and symmetries that take them to failures that are alike."""

    format: str
    version: int
    made_by: str
    topology_digest: str
    options: dict[Word, str | None]
    num_generators: int
    generators: dict[str, Any]
    cases: tuple[CaseEntry, ...]
