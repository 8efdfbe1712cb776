"""Pydantic schema of the index of a folder of plans; ``docs/reference/plan-folder.md`` describes it."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

from ..plans.schema import Word, as_positive

INDEX_FORMAT = "collopt-plan-folder"
INDEX_VERSION = 1

Status = Literal["ok", "disconnected", "failed"]


def _as_fraction(value: object) -> Fraction:
    return value if isinstance(value, Fraction) else as_positive(value)


Exact = Annotated[Fraction, PlainValidator(_as_fraction), PlainSerializer(str)]
Left = Annotated[Exact, PlainValidator(lambda value: Fraction(0) if value == "0" else _as_fraction(value))]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FaultEntry(_Entry):
    """A node, or both ends of a link, and what is left of its bandwidth."""

    nodes: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]
    factor: Left = Fraction(0)


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

    @model_validator(mode="after")
    def _rates_only_plans(self) -> CaseEntry:
        if any((rate is None) is (self.status == "ok") for rate in (self.bound, self.algbw)):
            raise ValueError("expected bound and algbw where the status is ok, and only there")
        return self


class OptionsEntry(_Entry):
    """Options of all plans."""

    planner: Word
    root: str | None


class IndexDocument(_Entry):
    """All cases, and symmetries that take them to failures that are alike."""

    format: str
    version: int
    made_by: str
    topology_digest: str
    options: OptionsEntry
    num_generators: int
    generators: dict[str, Any]
    cases: tuple[CaseEntry, ...]
