"""Reading plans from JSON files; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from fractions import Fraction
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)

from ...errors import CertificateError, FileFormatError, TopologyError, UnsupportedError
from ...schedules import (
    EVERY_SCHEDULE,
    SCHEDULE_KINDS,
    Bound,
    DemandForest,
    LoopbackPartition,
    TreePartition,
    Witness,
    schedule_from_json,
)
from ...schedules.bounds.bound import WITNESS_KINDS, witness_from_json
from ...schedules.bounds.cuts import rank_cut
from ...schedules.collective import DEMANDS, Collective, collective_or_given
from ...support.arrays import IntArray
from ...support.files import PLAN_KIND, name_of, read_json, wrong_kind
from ...support.validation import as_integers, shown
from ...topologies import Topology
from ...topologies.network.schema import first_error
from ...topologies.network.topology_json import topology_from_json
from .plan import PLAN_FORMAT, PLAN_VERSION, Plan

SCOPED_BOUNDS = 9
"""Version from which plans have a bound of some schedules beside that of all; older ones have either."""
COUNT = {"type": "integer", "minimum": 0}
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


def _as_cut_row(row: object) -> tuple[str, list[str]]:
    if isinstance(row, list) and len(row) == 2 and isinstance(row[1], list) and set(map(type, row[1])) <= {str}:
        return str(as_positive(row[0])), row[1]
    raise ValueError("expected [weight, names of nodes], the weight a positive fraction as text")


def _as_loads(rows: object) -> IntArray:
    expected = "a list with a whole number of 64 bits for each link, or such a list for each step"
    try:
        return as_integers(rows if isinstance(rows, list) else None, "loads", expected)
    except TopologyError as error:
        raise ValueError(str(error)) from None


TEXT = {"type": "string", "pattern": f"^{FRACTION}$"}
DUAL_ROW = {
    "type": "array",
    "prefixItems": [{"type": "string"}, {"type": "string"}, {"type": "string", "pattern": f"^(0|{FRACTION})$"}],
    "minItems": 3,
    "maxItems": 3,
}
LOADS = {"type": "array", "items": {"anyOf": [COUNT, {"type": "array", "items": COUNT}]}}
ExactText = Annotated[Fraction, PlainValidator(as_positive), WithJsonSchema(TEXT)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,100}$")]


ValueRow = Annotated[tuple[str, str, str], PlainValidator(_as_value_row), WithJsonSchema(DUAL_ROW)]
CUT_ROW = {
    "type": "array",
    "prefixItems": [TEXT, {"type": "array", "items": {"type": "string"}}],
    "minItems": 2,
    "maxItems": 2,
}
CutRow = Annotated[tuple[str, list[str]], PlainValidator(_as_cut_row), WithJsonSchema(CUT_ROW)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CutDualEntry(_Entry):
    """Duals of links, and per rank of hops, each with both ends; see `collopt.schedules.CutDual`."""

    links: list[ValueRow]
    into: list[list[ValueRow]]
    out_of: list[list[ValueRow]]
    relays: list[str]


class ItemCutsEntry(_Entry):
    """Lengths of links, and for each group of items the cuts that it enters; see `collopt.schedules.ItemCuts`."""

    links: list[ValueRow]
    cuts: list[list[CutRow]]


class BoundEntry(_Entry):
    """The bound and its witness: nodes of a cut, of one around each rank, or of parts; duals; or lengths of links."""

    inverse_rate: ExactText
    weights: list[int] = Field(default_factory=list)
    cut: list[str] | None = None
    rank_cuts: list[list[str]] | None = None
    partition: list[list[str]] | None = None
    loopback_partition: list[list[str]] | None = None
    tree_partition: list[list[str]] | None = None
    prices: CutDualEntry | None = None
    lengths: list[ValueRow] | None = None
    tree_dual: list[ValueRow] | None = None
    item_cuts: ItemCutsEntry | None = None


class PlanDocument(_Entry):
    """A plan; the header, the topology and the schedule are checked by their own readers."""

    format: str
    version: int
    made_by: str
    collective: Word
    planner: Word
    options: dict[Word, int | str]
    inverse_rate: ExactText
    bound: BoundEntry
    scoped_bound: BoundEntry | None = None
    topology_digest: str
    topology: dict[str, Any]
    schedule: dict[str, Any]
    link_loads: Annotated[Any, PlainValidator(_as_loads), WithJsonSchema(LOADS)]


def load_plan(path: str | os.PathLike[str], topology: Topology | None = None) -> Plan:
    """Read a plan and verify it.

    Raises `FileFormatError` if the file cannot be read, is cut short, of a newer version, or not a plan;
    `UnsupportedError` if its collective is not registered; `TopologyError` if the plan is for another network than
    `topology`; `CertificateError` if the plan does not prove what it claims.

    Parameters
    ----------
    path : str or path
        A file that `Plan.save` wrote.
    topology : Topology, optional
        The network that the plan is to be used on.
    """
    try:
        data = read_json(path, PLAN_FORMAT, PLAN_VERSION)
    except FileFormatError as error:
        if problem := wrong_kind(path, PLAN_KIND, [PLAN_KIND]):
            raise FileFormatError(problem) from error
        raise
    plan = plan_from_json(data, name_of(path))
    try:
        plan.verify(topology)
    except (CertificateError, TopologyError) as error:
        raise type(error)(f"{name_of(path)}: {error}") from None
    return plan


def plan_from_json(data: dict[str, Any], where: str) -> Plan:
    """Build a plan from a decoded JSON document, without verification."""
    schedule = data.get("schedule")
    if isinstance(schedule, dict) and "kind" not in schedule:
        # What the other fields must hold depends on it.
        raise FileFormatError(f"{where}: field schedule has no kind; expected one of {', '.join(SCHEDULE_KINDS)}")
    try:
        document = PlanDocument.model_validate(data)
    except ValidationError as error:
        raise FileFormatError(f"{where}: {first_error(error)}") from None
    topology = topology_from_json(document.topology, f"{where}, field topology")
    if topology.digest != document.topology_digest:
        raise FileFormatError(
            f"{where}: field topology has digest {topology.digest[:12]}, but the plan was made for "
            f"{document.topology_digest[:12]!r}; the file was changed, plan again"
        )
    read_schedule = schedule_from_json(document.schedule, where)
    collective = collective_or_given(document.collective)
    if document.collective == DEMANDS.name and isinstance(read_schedule, DemandForest):
        collective = read_schedule.demands
    if not isinstance(collective, Collective):
        raise UnsupportedError(
            f"{where}: the collective {shown(collective)} is not registered; import the module that registers it"
        )
    entries = filter(None, (document.bound, document.scoped_bound))
    bound, *scoped = (
        Bound(topology, collective, entry.inverse_rate, _witness(entry, where), tuple(entry.weights))
        for entry in entries
    )
    if document.version < SCOPED_BOUNDS and not scoped and bound.scope != EVERY_SCHEDULE:
        narrow, bound = bound, _bound_of_all(bound)
        scoped = [narrow] if narrow.inverse_rate > bound.inverse_rate else []
    parts = read_schedule, bound, document.inverse_rate, document.link_loads
    return Plan(topology, collective, *parts, document.planner, document.options, {}, *scoped)


def _bound_of_all(narrow: Bound) -> Bound:
    """Bound all schedules where there is a bound of some: by the same parts, or the links of one rank."""
    request, bounds = (narrow.topology, narrow.collective), list[Bound]()
    with suppress(CertificateError):
        narrow.verify()
        bounds.append(Bound.from_witness(*request, rank_cut(*request, narrow.weights), narrow.weights))
        if isinstance(narrow.witness, TreePartition):
            bounds.append(Bound.from_witness(*request, LoopbackPartition(narrow.witness.parts)))
    return max(bounds, key=lambda bound: bound.inverse_rate, default=narrow)


def _witness(entry: BoundEntry, where: str) -> Witness:
    stated = entry.model_dump(include=set(WITNESS_KINDS), exclude_none=True)
    if len(stated) != 1:
        names = " and ".join(stated) or "no witness"
        raise FileFormatError(f"{where}: field bound has {names}; expected one of {', '.join(WITNESS_KINDS)}")
    [(name, value)] = stated.items()
    return witness_from_json(name, value)
