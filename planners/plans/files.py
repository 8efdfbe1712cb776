"""Plans as JSON files; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import FileFormatError, UnsupportedError
from ...schedules import Bound, Witness, schedule_from_json, schedule_to_json
from ...schedules.bounds.witness_json import WITNESS_FIELDS, witness_from_json, witness_to_json
from ...schedules.traffic.collective import collective_or_given
from ...support.file_kinds import PLAN_KIND, wrong_kind
from ...support.json_files import read_json
from ...support.reading import name_of
from ...support.validation import shown
from ...support.writing import write_whole
from ...topologies import Topology
from ...topologies.network.topology_json import topology_from_json, topology_to_json
from .plan import Plan

if TYPE_CHECKING:
    from .schema import BoundEntry

__all__ = ["load_plan", "plan_from_json", "plan_to_json", "save_plan"]

PLAN_FORMAT = "collopt-plan"
PLAN_VERSION = 4
"""Version 2 added partitions and prices as witnesses, and allreduce with any roots; version 3 schedules in steps;
version 4 all-to-all(v), with flows and lengths.

Older files are read as they are.
"""
INT64_MAX = 2**63 - 1


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan to a file, whole or not at all."""
    _check_path(path)
    fields = plan_to_json(plan)
    body = ",\n".join(f"{json.dumps(key)}: {_laid_out(value)}" for key, value in fields.items())
    write_whole(path, f"{{\n{body}\n}}\n")


def load_plan(path: str | os.PathLike[str], topology: Topology | None = None) -> Plan:
    """Read a plan and verify it, so that whatever is loaded proves what it claims.

    Parameters
    ----------
    path : str or path
        A file that `Plan.save` wrote.
    topology : Topology, optional
        The network that the plan is to be used on.

    Returns
    -------
    Plan

    Raises
    ------
    FileFormatError
        If the file cannot be read, is cut short, of a newer version, or not a plan.
    TopologyError
        If the plan is for another network than `topology`.
    CertificateError
        If the plan does not prove what it claims.
    UnsupportedError
        If `path` is no path.
    """
    _check_path(path)
    try:
        data = read_json(path, PLAN_FORMAT, PLAN_VERSION)
    except FileFormatError as error:
        if told := wrong_kind(path, PLAN_KIND, [PLAN_KIND]):
            raise FileFormatError(told) from error
        raise
    plan = plan_from_json(data, name_of(path))
    plan.verify(topology)
    return plan


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Describe a plan by plain lists, texts and integers, ready for `json.dumps`."""
    return {
        "format": PLAN_FORMAT,
        "version": PLAN_VERSION,
        "made_by": f"collopt {version('collopt')}",
        "collective": str(plan.collective),
        "planner": plan.planner,
        "options": dict(plan.options),
        "inverse_rate": str(plan.inverse_rate),
        "bound": {
            "inverse_rate": str(plan.bound.inverse_rate),
            "weights": list(plan.bound.weights),
            **witness_to_json(plan.bound.witness),
        },
        "topology_digest": plan.topology.digest,
        "topology": topology_to_json(plan.topology),
        "link_loads": plan.link_loads.tolist(),
        "schedule": schedule_to_json(plan.schedule),
    }


def plan_from_json(data: dict[str, Any], where: str) -> Plan:
    """Build the plan that a decoded JSON document describes; its claims are not checked here."""
    from pydantic import ValidationError

    from ...topologies.network.schema import first_problem
    from .schema import document_kind

    kind = document_kind(data.get("schedule"))
    try:
        document = kind.model_validate(data)
    except ValidationError as error:
        raise FileFormatError(f"{where}: {first_problem(error)}") from None
    topology = topology_from_json(document.topology, f"{where}, field topology")
    if topology.digest != document.topology_digest:
        raise FileFormatError(
            f"{where}: field topology has digest {topology.digest[:12]}, but the plan was made for "
            f"{document.topology_digest[:12]!r}; the file was changed, plan again"
        )
    entry, collective = document.bound, collective_or_given(document.collective)
    bound = Bound(topology, collective, entry.inverse_rate, _witness(entry, where), tuple(entry.weights))
    return Plan(
        topology,
        collective,
        schedule_from_json(document.schedule, where),
        bound,
        document.inverse_rate,
        _loads(document.link_loads, where),
        document.planner,
        document.options,
    )


def _check_path(path: object) -> None:
    if not isinstance(path, (str, os.PathLike)):
        raise UnsupportedError(f"the path is {shown(path)}; expected a file's name")


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
    stated = entry.model_dump(include=set(WITNESS_FIELDS), exclude_none=True)
    if len(stated) != 1:
        names = " and ".join(stated) or "no witness"
        raise FileFormatError(f"{where}: field bound has {names}; expected one of {', '.join(WITNESS_FIELDS)}")
    [(name, value)] = stated.items()
    return witness_from_json(name, value)


def _laid_out(value: object) -> str:
    """JSON text with one row per link, path or tree, which people can compare and edit."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    rows = {
        key: "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in entry) + "\n]"
        if isinstance(entry, list) and entry and isinstance(entry[0], (list, dict))
        else json.dumps(entry, ensure_ascii=False)
        for key, entry in value.items()
    }
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {text}" for key, text in rows.items()) + "\n}"
