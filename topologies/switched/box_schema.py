"""Pydantic schema of box files; imported only when a file is validated, as pydantic is slow to import."""

from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, ValidationInfo, field_validator

from ...support.quantities import as_bandwidth, as_latency
from ...support.validation import check_links
from ..network.schema import NodeName, Part, SwitchEntry

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
    """One NIC for every `gpus` consecutive GPUs."""

    gpus: Count
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
