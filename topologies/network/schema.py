"""Pydantic schema of topology files; imported only when a file is read, as pydantic is slow to import."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import prod
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from ...support.quantities import as_bandwidth, as_latency
from ...support.validation import MAX_SWITCHED_LINKS, as_name, check_links, shown
from .devices import Device
from .runtime_costs import RuntimeCosts
from .switch_limits import SwitchLimits
from .topology import Link


def _as_link(row: object) -> Link:
    if not isinstance(row, (list, tuple)) or len(row) != 4:
        raise ValueError(f"is {shown(row)}; expected [tail, head, bandwidth, latency]")
    tail, head = as_name(row[0]), as_name(row[1])
    where = f"link ({tail!r}, {head!r})"
    return Link(tail, head, as_bandwidth(row[2], where), as_latency(row[3], where))


NAME = {"type": ["string", "integer"]}
NUMBER = {"type": ["string", "number"]}


def _row(*entries: Mapping[str, object]) -> WithJsonSchema:
    """State the JSON Schema of a row of these entries."""
    return WithJsonSchema(
        {"type": "array", "prefixItems": list(entries), "minItems": len(entries), "maxItems": len(entries)}
    )


NodeName = Annotated[str, PlainValidator(as_name), WithJsonSchema(NAME)]
LinkRow = Annotated[Link, PlainValidator(_as_link), _row(NAME, NAME, NUMBER, NUMBER)]


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
    ends: list[list[Number]] = Field(default_factory=list)

    @property
    def costs(self) -> RuntimeCosts:
        """The costs as the topology holds them."""
        return RuntimeCosts(**dict(self))


class DeviceEntry(Part):
    """One device, by the name of its node."""

    name: str = ""
    number: int | None = None
    bus: str = ""

    def of(self, node: str) -> Device:
        """Return the device as the topology holds it."""
        return Device(node, self.name, self.number, self.bus)


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
    rates: Annotated[
        list[Annotated[tuple[Fraction, Fraction], PlainValidator(_as_rate), _row(NUMBER, NUMBER)]], FailFast()
    ]


class _Document(Part):
    """Fields of documents of all versions; the header is checked before."""

    format: str
    version: int
    name: str
    # Only the first error is reported; millions would take gigabytes.
    compute: Annotated[list[NodeName], FailFast()]
    switches: Annotated[list[SwitchEntry], FailFast()]
    costs: CostsEntry | None = None
    devices: dict[str, DeviceEntry] = Field(default_factory=dict)


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


Bandwidth = Annotated[Fraction, PlainValidator(lambda value: as_bandwidth(value, "every link"))]
Latency = Annotated[Fraction, PlainValidator(lambda value: as_latency(value, "every link"))]
Count = Annotated[int, Field(ge=1, le=2**16)]
Sizes = Annotated[list[Count], Field(min_length=1, max_length=8)]
Rates = Annotated[list[Bandwidth], Field(min_length=1, max_length=8)]
Words = Annotated[str, Field(min_length=1)]


class Star(Part):
    """Every GPU on one switch."""

    pattern: Literal["star"]
    switch: NodeName
    bandwidth: Bandwidth
    latency: Latency


class Full(Part):
    """A link between every two GPUs."""

    pattern: Literal["full"]
    bandwidth: Bandwidth
    latency: Latency


class Pairs(Part):
    """Two GPUs and the number of links between them, each of which has the bandwidth."""

    pattern: Literal["pairs"]
    pairs: list[Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=3, max_length=3)]]
    bandwidth: Bandwidth
    latency: Latency


class Torus(Part):
    """A torus with one bandwidth for each dimension."""

    pattern: Literal["torus"]
    shape: Sizes
    bandwidths: Rates
    latency: Latency


class Slice(Part):
    """Slices of a torus, in which dimensions of multiples of `closed` chips are rings; `jointly`: all or none."""

    pattern: Literal["slice"]
    bandwidths: Rates
    latency: Latency
    closed: Count
    jointly: bool
    longest: Count | None = None


class Nics(Part):
    """One NIC for every `gpus` consecutive GPUs, attached to them or to a switch of the box."""

    gpus: Count
    switch: NodeName | None = None
    near_bandwidth: Bandwidth
    bandwidth: Bandwidth
    near_latency: Latency
    latency: Latency


class BoxDocument(Part):
    """The whole document, whose header is checked before."""

    format: str
    version: int
    name: NodeName
    gpus: Count
    switches: list[SwitchEntry]
    links: Annotated[Star | Full | Pairs | Torus | Slice, Field(discriminator="pattern")]
    nics: Nics | None = None
    sources: dict[Literal["links", "switches", "nics", "latencies"], Words]
    assumed: list[Words]
    not_public: list[Words]

    @field_validator("switches")
    @classmethod
    def _check_switches(cls, switches: list[SwitchEntry]) -> list[SwitchEntry]:
        for switch in switches:
            if switch.multicast != switch.aggregation:
                raise ValueError(f"{switch.name!r} has one of multicast and aggregation; expected both or neither")
            if not switch.multicast and (stated := list(switch.limits.stated)):
                raise ValueError(
                    f"{switch.name!r} has {stated[0]}, but neither multicast nor aggregation, which it is about; add "
                    "these, or leave it out"
                )
        return switches

    @field_validator("links")
    @classmethod
    def _check_links(cls, links: Part, info: ValidationInfo) -> Part:
        for problem in _link_problems(links, info.data.get("gpus", 0), info.data.get("switches", [])):
            raise ValueError(problem)
        return links

    @field_validator("nics")
    @classmethod
    def _check_nics(cls, nics: Nics | None, info: ValidationInfo) -> Nics | None:
        if nics is not None and (gpus := info.data.get("gpus", 0)) % nics.gpus:
            raise ValueError(f"{gpus} GPUs cannot share NICs in groups of {nics.gpus}; expected a divisor")
        names = [switch.name for switch in info.data.get("switches", [])]
        if nics is not None and nics.switch is not None and nics.switch not in names:
            raise ValueError(f"{nics.switch!r} is not listed in switches; expected one of them")
        return nics

    @field_validator("sources")
    @classmethod
    def _check_sources(cls, sources: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        cited = ["links", "latencies"] + [name for name in ("switches", "nics") if info.data.get(name)]
        if missing := [name for name in cited if name not in sources]:
            raise ValueError(f"there is none for {missing[0]}; cite where the figures come from")
        return sources


def _link_problems(links: Part, gpus: int, switches: list[SwitchEntry]) -> Iterator[str]:
    if isinstance(links, Star) and links.switch not in [switch.name for switch in switches]:
        yield f"{links.switch!r} is not listed in switches; expected one of them"
    if isinstance(links, Full):
        check_links(gpus * (gpus - 1), f"{gpus} GPUs")
    if isinstance(links, Pairs):
        for a, b, count in links.pairs:
            if a == b or max(a, b) >= gpus or not count:
                yield f"{[a, b, count]} are not two of {gpus} GPUs and a number of links"
    if isinstance(links, Torus) and (len(links.bandwidths) != len(links.shape) or prod(links.shape) != gpus):
        yield f"the shape {links.shape} does not fit {gpus} GPUs and {len(links.bandwidths)} bandwidths"
    joined = links.switch if isinstance(links, Star) else None
    for switch in switches:
        if switch.multicast and (count := gpus if switch.name == joined else 0) < 2:
            yield (
                f"switch {switch.name!r} is said to multicast and aggregate, but has links to {count} GPUs; expected "
                "two or more: use the pattern 'star' with this switch, or leave these abilities out"
            )
