"""What a plan file must look like, checked by pydantic; imported only when a file is read."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints

__all__ = ["BoundEntry", "PlanDocument"]


def _as_fraction(value: object) -> Fraction:
    if not isinstance(value, str) or not re.fullmatch(r"[1-9]\d{0,99}(/[1-9]\d{0,99})?", value, re.ASCII):
        raise ValueError("expected a positive fraction as text, such as '3/65'")
    return Fraction(value)


ExactText = Annotated[Fraction, PlainValidator(_as_fraction)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,100}$")]


class BoundEntry(BaseModel):
    """The bound and the nodes of its cut, or of one cut around each rank."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    inverse_rate: ExactText
    weights: list[int] = Field(default_factory=list)
    cut: list[str] | None = None
    rank_cuts: list[list[str]] | None = None


class PlanDocument(BaseModel):
    """The whole document; its header, topology and schedule are checked by their own readers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: str
    version: int
    made_by: str
    collective: Word
    planner: Word
    options: dict[Word, int | str]
    inverse_rate: ExactText
    bound: BoundEntry
    topology_digest: str
    topology: dict[str, Any]
    link_loads: list[int]
    schedule: dict[str, Any]
