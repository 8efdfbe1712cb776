"""Pydantic schema of plan files; imported only when a file is read."""

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints

from ...schedules import SCHEDULE_KINDS
from ...schedules.schedule import schedule_kind

FRACTION = r"[1-9]\d{0,99}(/[1-9]\d{0,99})?"


def as_positive(value: object) -> Fraction:
    """Read a positive fraction of a file."""
    if not isinstance(value, str) or not re.fullmatch(FRACTION, value, re.ASCII):
        raise ValueError("expected a positive fraction as text, such as '3/65'")
    return Fraction(value)


def _as_value_row(row: object) -> tuple[str, str, str]:
    if isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row):
        tail, head, dual = row
        if dual == "0" or re.fullmatch(FRACTION, dual, re.ASCII):
            return tail, head, dual
    raise ValueError("expected [tail, head, dual value], the dual value a fraction as text, such as '3/65'")


ExactText = Annotated[Fraction, PlainValidator(as_positive)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,100}$")]


ValueRow = Annotated[tuple[str, str, str], PlainValidator(_as_value_row)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CutDualEntry(_Entry):
    """Duals of links, and per rank of hops, each with both ends; see `collopt.schedules.CutDual`."""

    links: list[ValueRow]
    into: list[list[ValueRow]]
    out_of: list[list[ValueRow]]
    relays: list[str]


class BoundEntry(_Entry):
    """The bound and its witness: nodes of a cut, of one around each rank, or of parts; duals; or lengths of links."""

    inverse_rate: ExactText
    weights: list[int] = Field(default_factory=list)
    cut: list[str] | None = None
    rank_cuts: list[list[str]] | None = None
    partition: list[list[str]] | None = None
    tree_partition: list[list[str]] | None = None
    prices: CutDualEntry | None = None
    lengths: list[ValueRow] | None = None
    tree_dual: list[ValueRow] | None = None


class PlanDocument(_Entry):
    """All but the loads of the links; the header, the topology and the schedule are checked by their own readers."""

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
    schedule: dict[str, Any]


class WholePlanDocument(PlanDocument):
    """A plan of trees or of one flow."""

    link_loads: list[int]


class StepPlanDocument(PlanDocument):
    """A plan whose schedule consists of steps or stages, each with a row of loads."""

    link_loads: list[list[int]]


def document_kind(schedule: object) -> type[WholePlanDocument | StepPlanDocument]:
    """Return the schema of a plan file by the kind of its schedule."""
    kind = SCHEDULE_KINDS.get(str(schedule_kind(schedule)))
    return WholePlanDocument if kind is None or kind.pipelined else StepPlanDocument
