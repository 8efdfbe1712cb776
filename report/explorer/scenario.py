"""`Scenario`: a network, changes of it and what is asked of it, as an address and as a command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from ...errors import UnsupportedError
from ...schedules import ALLGATHER
from ...support.validation import hint, shown
from ...topologies import Failure, Scaling, Topology, scaled_links


@dataclass(frozen=True)
class Scenario:
    """One state of the page.

    >>> scenario = Scenario(("dgx-a100", "--boxes", "2"), "allreduce", without=("box0/nic0",))
    >>> scenario.to_query()
    'network=dgx-a100+--boxes+2&collective=allreduce&without=box0%2Fnic0'
    >>> scenario.command("plan")
    'collopt plan dgx-a100 allreduce --boxes 2 --without box0/nic0'
    """

    network: tuple[str, ...]  # What describes the network on the command line: its name or file, and options
    collective: str = ALLGATHER.name
    root: str | None = None  # Of a broadcast or reduce
    size: str | None = None  # Bytes in all, such as ``"64M"``; None for endless data
    planner: str = "auto"
    scale: tuple[Scaling, ...] = ()  # Bandwidths that are multiplied
    without: tuple[str, ...] = ()  # Nodes and links that are gone, as `Failure.read` reads them

    @classmethod
    def from_query(cls, text: str) -> Scenario:
        """Read the address of a state; `UnsupportedError` for what is not one."""
        fields: dict[str, list[str]] = {}
        for name, value in parse_qsl(text, keep_blank_values=True):
            fields.setdefault(name, []).append(value)
        for name, values in fields.items():
            if name not in cls.__dataclass_fields__:
                raise UnsupportedError(
                    f"the address has {shown(name)}{hint(name, cls.__dataclass_fields__)}; expected parts "
                    f"{', '.join(cls.__dataclass_fields__)}"
                )
            if len(values) > 1 and name not in ("scale", "without"):
                raise UnsupportedError(f"the address has {name} twice; keep one")
        single: dict[str, Any] = {name: values[0] for name, values in fields.items() if values[0]}
        single["network"] = split_words(single.get("network", ""))
        single["scale"] = tuple(map(Scaling.read, fields.get("scale", ())))
        single["without"] = tuple(fields.get("without", ()))
        return cls(**single)

    def to_query(self) -> str:
        """Write the state as the part of an address that `from_query` reads."""
        return urlencode([("network", shlex.join(self.network)), ("collective", self.collective), *self._options()])

    def words(self) -> list[str]:
        """Return the arguments of ``collopt plan`` that ask for the same."""
        options = [word for name, value in self._options() for word in (f"--{name}", value)]
        return [*self.network[:1], self.collective, *self.network[1:], *options]

    def command(self, name: str, *words: str) -> str:
        """Return the command of this name for the state, to be typed in a shell."""
        return shlex.join(["collopt", name, *self.words(), *words])

    def changed(self, network: Topology) -> Topology:
        """Apply the changes to the network."""
        return Failure.read(network, self.without).applied(scaled_links(network, self.scale))

    def _options(self) -> Iterator[tuple[str, str]]:
        for name in ("root", "size", "planner"):
            if (value := getattr(self, name)) != self.__dataclass_fields__[name].default:
                yield name, value
        yield from (("scale", str(scaling)) for scaling in self.scale)
        yield from (("without", failed) for failed in self.without)


def split_words(text: str) -> tuple[str, ...]:
    """Split what describes a network into words, as a shell does."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UnsupportedError(f"the network {shown(text)} cannot be read: {error}; close the quotes") from None
    if not words or words[0].startswith("-"):
        raise UnsupportedError("the network has no name; expected one such as dgx-a100 --boxes 2, or a file")
    return words
