"""The plans that a group of ranks has, and which of them suits a call; knows nothing of torch."""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import ColloptError, FileFormatError, TopologyError
from ....planners import Plan, load_plan, plan
from ....schedules import Collective
from ....topologies import Topology, read_topology
from ..execution.execute import program_of
from .settings import BackendSettings


class Request(NamedTuple):
    """What a rank was asked to do: so many bytes in all, from or to a root if the collective has one."""

    collective: Collective
    num_bytes: int
    root: int | None


class PlanShelf:
    """The plans for one number of ranks: those in the folder, and those that are made when they are first wanted."""

    def __init__(self, settings: BackendSettings, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self.slices = settings.slices
        self.folder = None if settings.plans is None else Path(settings.plans)
        self.topology = _topology_of(settings)
        self._others: set[int] = set()
        self._digest = hashlib.sha256(f"{settings.slices} {settings.min_bytes}".encode())
        if self.topology is not None:
            self._digest.update(self.topology.digest.encode())
        self._plans = [] if self.folder is None else self._loaded(self.folder)
        self._made: dict[tuple[Collective, int | None], Plan | str] = {}
        self._timed = lru_cache(maxsize=4096)(self._fastest)

    @property
    def digest(self) -> str:
        """Equal on ranks that have the same plans and settings."""
        return self._digest.hexdigest()

    def find(self, request: Request) -> Plan | str:
        """Return the plan for a call, or why there is none."""
        if len(suitable := self._suitable(request.collective, request.root)) > 1:
            return self._timed(request)
        if suitable:
            return suitable[0]
        if self.topology is None or self.topology.num_ranks != self.num_ranks:
            return self._lack(request)
        key = request.collective, request.root
        if key not in self._made:
            self._made[key] = self._planned(*key)
        return self._made[key]

    def _loaded(self, folder: Path) -> list[tuple[str, Plan]]:
        """Read all plans of the folder; keep those for as many ranks."""
        paths = sorted(folder.glob("*.json"))
        if not paths:
            raise FileFormatError(f"{folder} has no plan files; expected some called *.json, as Plan.save writes them")
        kept: list[tuple[str, Plan]] = []
        for path in paths:
            found = load_plan(path)
            self._digest.update(path.read_bytes())
            if found.topology.num_ranks != self.num_ranks:
                self._others.add(found.topology.num_ranks)
                continue
            self._check_network(path.name, found, kept)
            kept.append((path.name, found))
        return kept

    def _check_network(self, name: str, found: Plan, before: list[tuple[str, Plan]]) -> None:
        """Refuse a plan for another network than the others' of as many ranks."""
        known = self.topology
        of = "the topology given"
        if known is None or known.num_ranks != self.num_ranks:
            if not before:
                return
            of, known = before[0][0], before[0][1].topology
        if found.topology.digest != known.digest:
            raise TopologyError(
                f"{name} is for another network of {self.num_ranks} ranks, {_told(found.topology)}, than {of}, "
                f"{_told(known)}; keep the plans for one network in a folder"
            )

    def _suitable(self, collective: Collective, root: int | None) -> list[Plan]:
        return [each for each, of_root in self._offers.get(collective, ()) if of_root == root]

    @cached_property
    def _offers(self) -> dict[Collective, list[tuple[Plan, int | None]]]:
        """Plans with equal shards that can be lowered, and their roots."""
        offers: dict[Collective, list[tuple[Plan, int | None]]] = {}
        for _, each in self._plans:
            try:
                layout = program_of(each).layout
            except ColloptError:
                continue
            if not each.collective.is_sharded or len(set(layout.shards)) == 1:
                offers.setdefault(each.collective, []).append((each, layout.root))
        return offers

    def _fastest(self, request: Request) -> Plan:
        """Compare predicted times; the first by file name wins a draw."""
        return min(self._suitable(request.collective, request.root), key=lambda each: self._time(each, request))

    def _time(self, each: Plan, request: Request) -> float:
        return each.estimate(request.num_bytes, self.slices if each.schedule.num_trees else None)

    def _planned(self, collective: Collective, root: int | None) -> Plan | str:
        assert self.topology is not None  # `find` has looked.
        options: dict[str, Any] = {} if root is None else {"root": root}
        try:
            made = plan(self.topology, collective, **options)
            program_of(made)
        except ColloptError as error:
            return f"no plan of it can be made or run on {self.topology.name}: {error}"
        return made

    def _lack(self, request: Request) -> str:
        """Say what there is instead."""
        where = "the topology given" if self.folder is None else str(self.folder)
        there = sorted({each.name + _rooted(root) for each, offers in self._offers.items() for _, root in offers})
        if there:
            wanted = f"it{_rooted(request.root)}"
            return f"{where} has no plan of {wanted}; those that can be run here are of {', '.join(there)}"
        if self.topology is not None:
            self._others.add(self.topology.num_ranks)
        others = ", ".join(map(str, sorted(self._others - {self.num_ranks})))
        return f"{where} has nothing that can be run on {self.num_ranks} ranks" + f", only for {others}" * bool(others)


def _rooted(root: int | None) -> str:
    return "" if root is None else f" with root {root}"


def _told(topology: Topology) -> str:
    """Name a network such that two of one name and size differ."""
    return f"{topology!r} (digest {topology.digest[:12]})"


def _topology_of(settings: BackendSettings) -> Topology | None:
    if settings.topology is None or isinstance(settings.topology, Topology):
        return settings.topology
    return read_topology(settings.topology)
