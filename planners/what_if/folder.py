"""`PlanFolder`: plans for a network and its failures in files; ``docs/reference/plan-folder.md`` has the format."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

from ...errors import FileFormatError, NoAnswerError, TopologyError, UnsupportedError
from ...schedules import Bound
from ...schedules.collective import as_collective
from ...support.arrays import IntArray, decode_integers, encode_integers
from ...support.files import name_of, read_json, write_whole
from ...support.validation import as_path, shown
from ...topologies import Topology, read_topology, write_topology
from ...topologies.network.failures import Failure, Fault
from ...topologies.network.links import as_root
from ..plans.files import Word, as_positive, load_plan
from ..plans.plan import Plan, document_text, proved_plan
from ..plans.registry import as_planner, plan
from ..plans.stages import Trace

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


def carried_plan(plan: Plan, topology: Topology, names: Mapping[str, str]) -> Plan:
    """Carry a plan to a network, and verify it there; `names` has the new name of every node that the plan has."""
    image = np.array([topology.node_index[names[node]] for node in plan.topology.nodes])
    ranks = image[: topology.num_ranks]
    old = plan.bound
    # Of an all-to-all(v) weights are about pairs.
    weights = old.weights if len(old.weights) != len(ranks) else tuple(_by_rank(old.weights, ranks))
    witness: Any = old.witness
    renamed = {field.name: _renamed(getattr(witness, field.name), names) for field in fields(witness)}
    renamed |= {name: tuple(_by_rank(renamed[name], ranks)) for name in witness.by_rank if renamed[name]}
    bound = Bound(topology, plan.collective, old.inverse_rate, replace(witness, **renamed), weights)
    schedule = plan.schedule.renumbered(image)
    return proved_plan(topology, plan.collective, schedule, plan.planner, plan.options, Trace(), bound)


def _by_rank(values: Any, ranks: IntArray) -> list[Any]:
    """Sort what is given for every rank by their new numbers."""
    return [values[rank] for rank in np.argsort(ranks).tolist()]


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Rename nodes wherever they are in a witness, whose only texts they are."""
    if isinstance(value, str):
        return names[value]
    if isinstance(value, frozenset | tuple):
        parts = [_renamed(part, names) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{part.name: _renamed(getattr(value, part.name), names) for part in fields(value)})
    return value


INDEX, TOPOLOGY = "index.json", "topology.json"
PAUSES = 20  # times as long as writing the index took, until it is written again


class PlanFolder:
    """Plans for one network, intact and after failures, of which one is picked when something fails.

    A plan for one failure stands for all that are alike by symmetry: it is carried over when one of them is picked, and
    verified on the network that is left.  `survive` writes such folders.

    Parameters
    ----------
    path : str or path
        The folder; `FileFormatError` if its files are none of these or do not fit together.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from collopt.planners import survive
    >>> from collopt.topologies import dgx_a100
    >>> with TemporaryDirectory() as path:
    ...     _ = survive(dgx_a100(boxes=2), "allgather", folder=path, failures=["nic"], baselines=[], jobs=1)
    ...     plan = PlanFolder(path).pick("box1/nic3")
    >>> print(plan.topology.name, plan.algbw, plan.gap)
    dgx-a100-2boxes without box1/nic3 320 0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from pydantic import ValidationError

        from ...topologies.network.schema import first_error
        from ...topologies.symmetry.failure_orbits import Symmetries

        self.path: Path | None = as_path(path)
        data, where = read_json(self.path / INDEX, INDEX_FORMAT, INDEX_VERSION), name_of(self.path / INDEX)
        try:
            index = IndexDocument.model_validate(data)
        except ValidationError as error:
            raise FileFormatError(f"{where}: {first_error(error)}") from None
        self.topology = read_topology(self.path / TOPOLOGY)
        if self.topology.digest != index.topology_digest:
            raise FileFormatError(f"{where} is not for the network in {TOPOLOGY}; the folder was changed, plan again")
        nodes = len(self.topology.nodes)
        shape, what = (index.num_generators, nodes), f"{where}: field generators"
        generators = decode_integers(index.generators, shape, what, low_limit=0, high_limit=nodes - 1)
        try:
            self._start(index.options.model_dump())
            as_planner(index.options.planner)
            for case in index.cases:
                failure = failure_of(case)
                key = as_collective(case.collective).name, Failure.read(self.topology, failure)
                if key in self._cases or key != (case.collective, failure):
                    raise TopologyError(f"{case.collective} without {failure} is there twice, or has other names")
                self._cases[key] = case
            self.symmetries = Symmetries(self.topology, list(generators), self.root)
        except (TopologyError, UnsupportedError) as error:
            raise FileFormatError(f"{where}: {error}; the folder was changed, plan again") from None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str] | None, topology: Topology, options: Mapping[str, str | None]
    ) -> PlanFolder:
        """Open a folder of this network with these options, or make a new one; without a path, one in memory only."""
        from ...topologies.symmetry.failure_orbits import Symmetries

        home = None if path is None else as_path(path)
        if home is not None and (home / INDEX).exists():
            folder = cls(home)
            if (folder.topology.digest, dict(folder.options)) != (topology.digest, dict(options)):
                request = ", ".join(f"{name} {value}" for name, value in folder.options.items())
                raise UnsupportedError(f"{home} has plans for {folder.topology}, {request}; give another folder")
            return folder
        folder = cls.__new__(cls)
        folder.path, folder.topology = home, topology
        folder._start(options)
        folder.symmetries = Symmetries(topology, fixed=folder.root)
        if home is not None:
            try:
                home.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UnsupportedError(f"{home} cannot be a folder: {error.strerror}; give another") from None
            # A run that was killed at the start left hidden files, or the topology.
            strays = [file for file in home.iterdir() if not file.name.startswith(".")]
            if any(file.name != TOPOLOGY or read_topology(file).digest != topology.digest for file in strays):
                raise UnsupportedError(f"{home} holds other files; give a new folder, or one that survive wrote")
            write_topology(topology, home / TOPOLOGY)
            folder.save()
        return folder

    def _start(self, options: Mapping[str, str | None]) -> None:
        ranks, root = self.topology.compute_nodes, options["root"]
        self.options, self.root = options, None if root is None else as_root(ranks, root)
        self._due = 0.0  # time at which the index is written anew
        self._cases: dict[tuple[str, Failure], CaseEntry] = {}
        self._plans: dict[tuple[str, Failure], Plan] = {}

    @property
    def cases(self) -> tuple[CaseEntry, ...]:
        """All cases, in the order in which they were first planned."""
        return tuple(self._cases.values())

    @property
    def collectives(self) -> tuple[str, ...]:
        """Names of the collectives that have plans."""
        return tuple(dict.fromkeys(case.collective for case in self.cases))

    def case_of(self, collective: str, failure: Failure) -> CaseEntry | None:
        """Return the case of exactly this failure."""
        return self._cases.get((collective, failure))

    def is_complete(self, case: CaseEntry | None, baselines: Iterable[str]) -> bool:
        """Whether a case was compared with these baselines, and its plan, which is verified, is there."""
        if case is None or not case.baselines.keys() >= set(baselines):
            return False
        lost = self.path is None or case.file is None or not (self.path / case.file).exists()
        return case.status != "ok" or (not lost and self._loaded(case) is not None)

    def add(self, case: CaseEntry, new_plan: Plan | None) -> None:
        """Add a case, or replace it: first the file of its plan is written, then the index, each of them whole.

        The index waits until `save` while that takes more than a share of the time since it was last written.
        """
        key = case.collective, failure_of(case)
        if old := self._cases.get(key):
            case = case.model_copy(update={"baselines": {**old.baselines, **case.baselines}})
        self._cases[key] = case
        if new_plan is not None:
            self._plans[key] = new_plan
            if self.path is not None:
                # Files are named by the place of their case, which it keeps when it is replaced.
                file = f"{case.collective}-{list(self._cases).index(key)}.json"
                self._cases[key] = case.model_copy(update={"file": file})
                write_whole(self.path / file, document_text(new_plan.to_json()))
        if time.monotonic() >= self._due:
            self.save()

    def pick(self, failures: str | Failure | Iterable[str | Failure] = (), collective: object = None) -> Plan:
        """Return the verified plan for what is left of the network.

        Schedules in steps or stages cannot be carried over: of those, one like the planned one is planned anew.  Raises
        `TopologyError` for failures that are not understood; `NoAnswerError` if ranks are disconnected then, or no
        plan was made for this; `FileFormatError` or `CertificateError` if a file was changed.

        Parameters
        ----------
        failures : str, Failure or iterable of these
            What has failed at the same time, as `Failure.read` reads it; nothing for the intact network.
        collective : str or Collective, optional
            Which collective, if there are plans for several.
        """
        names = self.collectives
        name = names[0] if collective is None and len(names) == 1 else str(collective)
        if name not in names:
            problem = "no collective is named" if collective is None else f"the collective is {shown(collective)}"
            raise UnsupportedError(
                f"{problem}; expected one of the folder's, {', '.join(names) or 'which has none yet'}"
            )
        failure = Failure.read(self.topology, failures)
        if (name, failure) not in self._plans:
            self._plans[name, failure] = self._nearest_plan(name, failure)
        return self._plans[name, failure]

    def _nearest_plan(self, collective: str, failure: Failure) -> Plan:
        """Load the plan for a failure, or carry that for one like it over."""
        cases_by_row = {
            self.symmetries.row(failure_of(case)): case for case in self.cases if case.collective == collective
        }
        match = self.symmetries.known_image(failure, cases_by_row)
        if match is None:
            raise NoAnswerError(
                f"there is no plan for {collective} without {failure}; run collopt survive with --pairs '{failure}'"
            )
        case, mapping = match
        like = failure_of(case)
        if case.file is None:
            raise NoAnswerError(f"there is no plan for {collective} without {failure}: {case.reason or 'run again'}")
        stored = self._loaded(case)
        if like == failure:
            return stored
        nodes, left = self.topology.nodes, failure.applied(self.topology)
        names = {node: nodes[image] for node, image in zip(nodes, mapping.tolist(), strict=True)}
        try:
            return carried_plan(stored, left, names)
        except UnsupportedError:
            options: dict[str, Any] = {} if self.root is None else {"root": self.options["root"]}
            return plan(left, stored.collective, planner=str(self.options["planner"]), **options)

    def load(self, num_ranks: int) -> None:
        """Load the plans for as many ranks: `pick` reads no files of these later."""
        assert self.path is not None
        for case in self.cases:
            failure = failure_of(case)
            if case.ranks != (ranks := failure.applied(self.topology).num_ranks):
                problem = f"says that {case.ranks} ranks are left without {failure}, and {ranks} are"
                raise FileFormatError(f"{name_of(self.path / INDEX)} {problem}; the folder was changed, plan again")
            if case.file is not None and ranks == num_ranks:
                self._loaded(case)

    def _loaded(self, case: CaseEntry) -> Plan:
        """Return the verified plan of a case, which is as the index says."""
        failure = failure_of(case)
        if kept_plan := self._plans.get((case.collective, failure)):
            return kept_plan
        assert self.path is not None
        assert case.file is not None
        left, planner = failure.applied(self.topology), self.options["planner"]
        try:
            stored = load_plan(self.path / case.file, left)
        except TopologyError as error:  # The file of another case.
            raise FileFormatError(str(error)) from None
        root = stored.schedule.problem(stored.collective).get("root")
        stated = {
            "collective": (case.collective, str(stored.collective)),
            "planner": (planner, planner if planner == "auto" else stored.planner),
            "root": (self.options["root"], None if root is None else stored.topology.compute_nodes[root]),
            "algbw": (case.algbw, stored.algbw),
            "bound": (case.bound, stored.bound.algbw),
        }
        for what, (expected, has) in stated.items():
            if expected != has:
                problem = f"has {what} {has}, but {INDEX} says {expected}; the folder was changed, plan again"
                raise FileFormatError(f"{name_of(self.path / case.file)} {problem}")
        self._plans[case.collective, failure] = stored
        return stored

    def save(self) -> None:
        """Write the index with all cases."""
        if self.path is None:
            return
        start = time.monotonic()
        document = IndexDocument(
            format=INDEX_FORMAT,
            version=INDEX_VERSION,
            made_by=f"collopt {version('collopt')}",
            topology_digest=self.topology.digest,
            options=OptionsEntry.model_validate(self.options),
            num_generators=len(self.symmetries.generators),
            generators=encode_integers([mapping.tolist() for mapping in self.symmetries.generators]),
            cases=self.cases,
        )
        content = json.dumps(document.model_dump(mode="json"), indent=1, ensure_ascii=False)
        write_whole(self.path / INDEX, f"{content}\n")
        self._due = time.monotonic() + PAUSES * (time.monotonic() - start)


def failure_of(case: CaseEntry) -> Failure:
    """Return the failure that stands for a case."""
    return Failure(tuple(Fault(fault.nodes, fault.factor) for fault in case.failure))
