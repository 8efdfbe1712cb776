"""`PlanFolder`: plans for a network and its failures in files, with an index to pick from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import FileFormatError, NoAnswerError, TopologyError, UnsupportedError
from ...schedules import COLLECTIVES
from ...support.array_text import decode_integers, encode_integers
from ...support.json_files import read_json
from ...support.reading import name_of
from ...support.validation import as_path, shown
from ...support.writing import write_whole
from ...topologies import Topology, read_topology, write_topology
from ...topologies.failures.failure import Failure, Fault
from ...topologies.network.links import rank_number
from ..plans.files import load_plan
from ..plans.plan import Plan, document_text
from .carry import carried_plan

if TYPE_CHECKING:
    from .schema import CaseEntry

INDEX, TOPOLOGY = "index.json", "topology.json"


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

        from ...topologies.failures.orbits import Symmetries
        from ...topologies.network.schema import first_error
        from .schema import INDEX_FORMAT, INDEX_VERSION, IndexDocument

        self.path: Path | None = as_path(path)
        data, where = read_json(self.path / INDEX, INDEX_FORMAT, INDEX_VERSION), name_of(self.path / INDEX)
        try:
            index = IndexDocument.model_validate(data)
        except ValidationError as error:
            raise FileFormatError(f"{where}: {first_error(error)}") from None
        self.topology = read_topology(self.path / TOPOLOGY)
        if self.topology.digest != index.topology_digest:
            raise FileFormatError(
                f"{where} is for a network with digest {shown(index.topology_digest[:12])}, but {TOPOLOGY} has "
                f"{self.topology.digest[:12]}; the folder was changed, plan again"
            )
        self._start(index.options, index.cases)
        nodes = len(self.topology.nodes)
        shape, what = (index.num_generators, nodes), f"{where}: field generators"
        generators = decode_integers(index.generators, shape, what, least=0, most=nodes - 1)
        try:
            self.symmetries = Symmetries(self.topology, list(generators), self.root)
        except TopologyError as error:
            raise FileFormatError(f"{where}: {error}; the folder was changed, plan again") from None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str] | None, topology: Topology, options: Mapping[str, str | None]
    ) -> PlanFolder:
        """Open a folder of this network with these options, or make a new one; without a path, one in memory only."""
        from ...topologies.failures.orbits import Symmetries

        if path is not None and (as_path(path) / INDEX).exists():
            found = cls(path)
            if (found.topology.digest, dict(found.options)) != (topology.digest, dict(options)):
                given = ", ".join(f"{name} {value}" for name, value in found.options.items())
                raise UnsupportedError(
                    f"{found.path} has plans for {found.topology!r}, {given}; give another folder, or the same request"
                )
            return found
        made = cls.__new__(cls)
        made.topology = topology
        made._start(options, ())
        made.symmetries = Symmetries(topology, fixed=made.root)
        made.path = None
        if path is not None:
            made.path = as_path(path)
            made.path.mkdir(parents=True, exist_ok=True)
            if next(made.path.iterdir(), None) is not None:
                raise UnsupportedError(f"{made.path} holds other files; give a new folder, or one that survive wrote")
            write_topology(topology, made.path / TOPOLOGY)
        return made

    def _start(self, options: Mapping[str, str | None], cases: Iterable[CaseEntry]) -> None:
        self.options, self.cases = options, list(cases)
        self.root = rank_number(self.topology.compute_nodes, options.get("root"))
        self._plans: dict[tuple[str, Failure], Plan] = {}

    @property
    def collectives(self) -> tuple[str, ...]:
        """Names of the collectives that have plans."""
        return tuple(dict.fromkeys(case.collective for case in self.cases))

    def case_of(self, collective: str, failure: Failure) -> CaseEntry | None:
        """Return the case of exactly this failure."""
        same = (case for case in self.cases if case.collective == collective and failure_of(case) == failure)
        return next(same, None)

    def add(self, case: CaseEntry, plan: Plan | None) -> None:
        """Add a case: first the file of its plan is written, then the index, each of them whole."""
        if plan is not None and self.path is not None:
            case = case.model_copy(update={"file": f"{case.collective}-{len(self.cases)}.json"})
            write_whole(self.path / str(case.file), document_text(plan.to_json()))
        self.cases.append(case)
        if plan is not None:
            self._plans[case.collective, failure_of(case)] = plan
        if self.path is not None:
            self._write_index()

    def pick(self, failures: str | Failure | Iterable[str | Failure] = (), collective: object = None) -> Plan:
        """Return the verified plan for what is left of the network.

        Raises `TopologyError` for failures that are not understood; `NoAnswerError` if ranks are disconnected then, or
        no plan was made for this; `FileFormatError` or `CertificateError` if a file was changed.

        Parameters
        ----------
        failures : str, Failure or iterable of these
            What has failed at the same time, as `Failure.read` reads it; nothing for the intact network.
        collective : str or Collective, optional
            Which collective, if there are plans for several.
        """
        name = self.collectives[0] if collective is None and len(self.collectives) == 1 else str(collective)
        if name not in self.collectives:
            raise UnsupportedError(
                f"the collective is {shown(collective)}; expected one of the folder's, {', '.join(self.collectives)}"
            )
        failure = Failure.read(self.topology, failures)
        if (name, failure) not in self._plans:
            self._plans[name, failure] = self._found(name, failure)
        return self._plans[name, failure]

    def _found(self, collective: str, failure: Failure) -> Plan:
        """Load the plan for a failure, or carry that for one like it over."""
        known = {self.symmetries.row(failure_of(case)): case for case in self.cases if case.collective == collective}
        found = self.symmetries.carried(failure, known)
        if found is None:
            raise NoAnswerError(
                f"there is no plan for {collective} without {failure}; run collopt survive with --pairs '{failure}'"
            )
        case, mapping = found
        like = failure_of(case)
        if case.file is None or self.path is None:
            raise NoAnswerError(f"there is no plan for {collective} without {failure}: {case.reason}")
        plan = self._plans.get((collective, like))
        if plan is None:
            plan = load_plan(self.path / case.file, like.applied(self.topology))
            if plan.collective != COLLECTIVES.get(collective):
                raise FileFormatError(
                    f"{name_of(self.path / case.file)} is for {plan.collective}; expected {collective}"
                )
            self._plans[collective, like] = plan
        if like == failure:
            return plan
        nodes = self.topology.nodes
        names = {node: nodes[image] for node, image in zip(nodes, mapping.tolist(), strict=True)}
        return carried_plan(plan, failure.applied(self.topology), names)

    def _write_index(self) -> None:
        from .schema import INDEX_FORMAT, INDEX_VERSION, IndexDocument

        document = IndexDocument(
            format=INDEX_FORMAT,
            version=INDEX_VERSION,
            made_by=f"collopt {version('collopt')}",
            topology_digest=self.topology.digest,
            options=dict(self.options),
            num_generators=len(self.symmetries.generators),
            generators=encode_integers([mapping.tolist() for mapping in self.symmetries.generators]),
            cases=tuple(self.cases),
        )
        assert self.path is not None
        write_whole(
            self.path / INDEX, json.dumps(document.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
        )


def failure_of(case: CaseEntry) -> Failure:
    """Return the failure that stands for a case."""
    return Failure(tuple(Fault(fault.nodes, fault.factor) for fault in case.failure))
