"""What a plan file must look like, checked by pydantic; imported only when a file is read."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints, ValidationInfo, field_validator

__all__ = ["BoundEntry", "PlanDocument", "StepPlanDocument", "TreePlanDocument"]


FRACTION = r"[1-9]\d{0,99}(/[1-9]\d{0,99})?"


def _as_fraction(value: object) -> Fraction:
    if not isinstance(value, str) or not re.fullmatch(FRACTION, value, re.ASCII):
        raise ValueError("expected a positive fraction as text, such as '3/65'")
    return Fraction(value)


def _as_price_row(row: object) -> tuple[str, str, str]:
    if isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row):
        tail, head, price = row
        if price == "0" or re.fullmatch(FRACTION, price, re.ASCII):
            return tail, head, price
    raise ValueError("expected [tail, head, price], the price a fraction as text, such as '3/65'")


NEW_IN_VERSION_2 = ("partition", "prices")
"""Witnesses that files of version 1 cannot have."""

ExactText = Annotated[Fraction, PlainValidator(_as_fraction)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,100}$")]


PriceRow = Annotated[tuple[str, str, str], PlainValidator(_as_price_row)]


class PricesEntry(BaseModel):
    """Prices of links, and per rank of hops, each with both ends; see `collopt.schedules.prices.Prices`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    links: list[PriceRow]
    into: list[list[PriceRow]]
    out_of: list[list[PriceRow]]
    relays: list[str]


class BoundEntry(BaseModel):
    """The bound and its witness: nodes of a cut, of one cut around each rank, or of parts of a partition; or prices."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    inverse_rate: ExactText
    weights: list[int] = Field(default_factory=list)
    cut: list[str] | None = None
    rank_cuts: list[list[str]] | None = None
    partition: list[list[str]] | None = None
    prices: PricesEntry | None = None


class PlanDocument(BaseModel):
    """All but the loads of the links; the header, the topology and the schedule are checked by their own readers."""

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
    schedule: dict[str, Any]

    @field_validator("bound")
    @classmethod
    def _known_to_version(cls, bound: BoundEntry, info: ValidationInfo) -> BoundEntry:
        """Refuse in files of version 1 the witnesses that it did not have."""
        newer = [name for name in NEW_IN_VERSION_2 if getattr(bound, name) is not None]
        if info.data.get("version") == 1 and newer:
            raise ValueError(f"version 1 had no witness {newer[0]!r}; expected 'cut' or 'rank_cuts', or version 2")
        return bound


class TreePlanDocument(PlanDocument):
    """A plan whose schedule consists of trees."""

    link_loads: list[int]


class StepPlanDocument(PlanDocument):
    """A plan whose schedule consists of steps, each with a row of loads."""

    link_loads: list[list[int]]

    @field_validator("schedule")
    @classmethod
    def _has_steps(cls, schedule: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Refuse in older files what they did not have."""
        if info.data.get("version") in (1, 2):
            raise ValueError(f"version {info.data['version']} had no schedules in steps; expected version 3")
        return schedule
