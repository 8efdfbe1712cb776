"""Pydantic schema of topology files; imported only when a file is read, as pydantic is slow to import."""

from fractions import Fraction
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, PlainValidator, ValidationError

from ...support.quantities import as_bandwidth, as_latency
from ...support.validation import MAX_SWITCHED_LINKS, as_name, shown
from .runtime_costs import RuntimeCosts
from .switch_limits import SwitchLimits
from .topology import Link


def _as_link(row: object) -> Link:
    if not isinstance(row, (list, tuple)) or len(row) != 4:
        raise ValueError(f"is {shown(row)}; expected [tail, head, bandwidth, latency]")
    tail, head = as_name(row[0]), as_name(row[1])
    where = f"link ({tail!r}, {head!r})"
    return Link(tail, head, as_bandwidth(row[2], where), as_latency(row[3], where))


NodeName = Annotated[str, PlainValidator(as_name)]
LinkRow = Annotated[Link, PlainValidator(_as_link)]


class Part(BaseModel):
    """A part of a document, without fields that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SwitchEntry(Part):
    """One switch: its name, in-network abilities and their limits."""

    name: NodeName
    multicast: bool = False
    aggregation: bool = False
    loopback: bool = False
    group: int | None = None
    operators: list[str] = Field(default_factory=list)
    types: list[str] = Field(default_factory=list)
    relay: bool = False

    @property
    def limits(self) -> SwitchLimits:
        """Its limits."""
        return SwitchLimits(self.name, self.loopback, self.group, tuple(self.operators), tuple(self.types), self.relay)


def _as_switch(value: object) -> object:
    return value if isinstance(value, (dict, SwitchEntry)) else {"name": value}


Number = str | int | float


class CostsEntry(Part):
    """Costs of the software."""

    alpha: Number = 0
    send: Number = 0
    launch: Number = 0
    reduction: Number = 0
    efficiency: dict[str, Number] = Field(default_factory=dict)
    calibrated: bool = False

    @property
    def costs(self) -> RuntimeCosts:
        """The costs as the topology holds them."""
        return RuntimeCosts(**dict(self))


def _as_rate(row: object) -> tuple[Fraction, Fraction]:
    if not isinstance(row, (list, tuple)) or len(row) != 2:
        raise ValueError(f"is {shown(row)}; expected [bandwidth, latency]")
    return as_bandwidth(row[0], "a kind of links"), as_latency(row[1], "a kind of links")


class LinkArraysEntry(Part):
    """Many links: numbers of nodes and of rows of `rates`, each as text of `encode_integers`."""

    count: Annotated[int, Field(ge=0, le=MAX_SWITCHED_LINKS)]
    tails: object
    heads: object
    kinds: object
    rates: Annotated[list[Annotated[tuple[Fraction, Fraction], PlainValidator(_as_rate)]], FailFast()]


class _Document(Part):
    """Fields of documents of all versions; the header is checked before."""

    format: str
    version: int
    name: str
    # Only the first error is reported; millions would take gigabytes.
    compute: Annotated[list[NodeName], FailFast()]
    switches: Annotated[list[SwitchEntry], FailFast()]
    costs: CostsEntry | None = None


class TopologyDocument(_Document):
    """A document of version 1, with links row by row."""

    links: Annotated[list[LinkRow], FailFast()]


class ArraysDocument(_Document):
    """A document of version 2, with links as arrays; switches without abilities may be names alone."""

    switches: Annotated[list[Annotated[SwitchEntry, BeforeValidator(_as_switch)]], FailFast()]
    links: LinkArraysEntry


def first_error(error: ValidationError) -> str:
    """Format the first error that pydantic found, starting with the field."""
    problem = error.errors(include_url=False)[0]
    field = "field " + _dotted(problem["loc"])
    if problem["type"] == "missing":
        return f"{field} is missing; add it"
    if problem["type"] == "extra_forbidden":
        return f"{field} is not part of this format; remove it"
    if problem["type"] == "value_error":
        return f"{field}: {problem['ctx']['error']}"
    # pydantic's message, such as "Input should be a valid list".
    return f"{field} is {shown(problem['input'])}; {problem['msg'].replace('Input should', 'it should')}"


def _dotted(place: tuple[int | str, ...]) -> str:
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if part.isidentifier() else shown(part))
    return text
