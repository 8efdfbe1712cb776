"""Reading plans from JSON files; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import FileFormatError, UnsupportedError
from ...schedules import SCHEDULE_KINDS, Bound, Witness, schedule_from_json
from ...schedules.bounds.bound import WITNESS_KINDS, witness_from_json
from ...schedules.collective import Collective, collective_or_given
from ...support.files import PLAN_KIND, name_of, read_json, wrong_kind
from ...support.validation import shown
from ...topologies import Topology
from ...topologies.network.topology_json import topology_from_json
from .plan import PLAN_FORMAT, PLAN_VERSION, Plan, check_path

if TYPE_CHECKING:
    from .schema import BoundEntry

INT64_MAX = 2**63 - 1


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
    check_path(path)
    try:
        data = read_json(path, PLAN_FORMAT, PLAN_VERSION)
    except FileFormatError as error:
        if problem := wrong_kind(path, PLAN_KIND, [PLAN_KIND]):
            raise FileFormatError(problem) from error
        raise
    plan = plan_from_json(data, name_of(path))
    plan.verify(topology)
    return plan


def plan_from_json(data: dict[str, Any], where: str) -> Plan:
    """Build a plan from a decoded JSON document, without verification."""
    from pydantic import ValidationError

    from ...topologies.network.schema import first_error
    from .schema import document_kind

    schedule = data.get("schedule")
    if isinstance(schedule, dict) and "kind" not in schedule:
        # What the other fields must hold depends on it.
        raise FileFormatError(f"{where}: field schedule has no kind; expected one of {', '.join(SCHEDULE_KINDS)}")
    kind = document_kind(schedule)
    try:
        document = kind.model_validate(data)
    except ValidationError as error:
        raise FileFormatError(f"{where}: {first_error(error)}") from None
    topology = topology_from_json(document.topology, f"{where}, field topology")
    if topology.digest != document.topology_digest:
        raise FileFormatError(
            f"{where}: field topology has digest {topology.digest[:12]}, but the plan was made for "
            f"{document.topology_digest[:12]!r}; the file was changed, plan again"
        )
    entry, collective = document.bound, collective_or_given(document.collective)
    if not isinstance(collective, Collective):
        raise UnsupportedError(
            f"{where}: the file is of the collective {shown(collective)}, which is not registered here; import the "
            "module that registers it"
        )
    bound = Bound(topology, collective, entry.inverse_rate, _witness(entry, where), tuple(entry.weights))
    schedule, loads = schedule_from_json(document.schedule, where), _loads(document.link_loads, where)
    return Plan(topology, collective, schedule, bound, document.inverse_rate, loads, document.planner, document.options)


def _loads(rows: list[int] | list[list[int]], where: str) -> npt.NDArray[np.int64]:
    numbers = (load for row in rows for load in (row if isinstance(row, list) else (row,)))
    if any(abs(load) > INT64_MAX for load in numbers):
        raise FileFormatError(f"{where}: field link_loads has a number beyond 64 bits")
    try:
        return np.array(rows, dtype=np.int64)
    except ValueError:
        raise FileFormatError(
            f"{where}: field link_loads has rows of different lengths; expected a number for each link in every row"
        ) from None


def _witness(entry: BoundEntry, where: str) -> Witness:
    stated = entry.model_dump(include=set(WITNESS_KINDS), exclude_none=True)
    if len(stated) != 1:
        names = " and ".join(stated) or "no witness"
        raise FileFormatError(f"{where}: field bound has {names}; expected one of {', '.join(WITNESS_KINDS)}")
    [(name, value)] = stated.items()
    return witness_from_json(name, value)
