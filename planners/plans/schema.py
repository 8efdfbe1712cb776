"""The JSON Schema of plan files, from the fields that their readers know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...schedules.steps import flow
from ...schedules.steps.flow import StagedFlow
from ...schedules.steps.step_schedule import StepExchange, StepSchedule
from ...schedules.trees import demand_forest, forest, symmetric_forest
from ...support.arrays import TYPES
from ...topologies.network.schema import ArraysDocument, TopologyDocument
from .files import COUNT, TEXT, PlanDocument
from .plan import PLAN_FORMAT, PLAN_VERSION

Schema = dict[str, Any]

NAMES = {"type": "array", "items": {"type": "string"}}
POSITIVE = {"type": "integer", "minimum": 1}
ROUTES = {"type": "array", "items": {"type": "integer", "minimum": -1}}


def _list(items: Mapping[str, Any]) -> Schema:
    return {"type": "array", "items": items}


def _row(*entries: Mapping[str, Any]) -> Schema:
    return {"type": "array", "prefixItems": list(entries), "minItems": len(entries), "maxItems": len(entries)}


def _object(fields: Mapping[str, Any], optional: Iterable[str] = ()) -> Schema:
    required = [name for name in fields if name not in set(optional)]
    return {"type": "object", "properties": dict(fields), "required": required, "additionalProperties": False}


ITEM = _object(
    {"name": {"type": "string"}, "size": TEXT, "sources": NAMES, "destinations": NAMES, "layer": COUNT}, ["layer"]
)
ARRAY = _object(
    {"type": {"enum": list(TYPES)}, "lag": COUNT, "zlib": {"type": "string"}},
)
FIELDS: dict[str, Schema] = {
    "direction": {"enum": ["broadcast", "reduce"]},
    "traffic": _list(_list(COUNT)),
    "paths": _list(_list(COUNT)),
    "items": _list(ITEM),
    **dict.fromkeys(("trees_per_root", "chunks_per_shard", "chunks_per_unit", "chunks"), POSITIVE),
    **dict.fromkeys(symmetric_forest.COUNTS, POSITIVE),
    **dict.fromkeys(("root_weights", "switches", "servers", "weights"), _list(COUNT)),
    **dict.fromkeys(("steps", "sources", "lower", "upper", "routes"), _list(COUNT)),
    "adds": _list({"enum": [0, 1]}),
}
"""Form of the fields of schedules, where a kind has no form of its own."""


def _kind(name: str, fields: Iterable[str], optional: Iterable[str] = (), **own: Schema) -> Schema:
    """Return the schema of a kind of schedules with these fields."""
    forms = {field: {"const": name} if field == "kind" else own.get(field) or FIELDS[field] for field in fields}
    return _object(forms, optional)


def _kinds() -> list[Schema]:
    arrays = dict.fromkeys(symmetric_forest.ARRAYS, ARRAY)
    halves = {"type": "object", "required": ["kind"]}
    return [
        _kind("forest", (*forest.FIELDS, "switches"), ["switches"], trees=_list(_row(COUNT, POSITIVE, ROUTES))),
        _kind("demand-forest", demand_forest.FIELDS, trees=_list(_row(COUNT, POSITIVE, ROUTES, COUNT))),
        _kind("symmetric-forest", ("kind", "direction", *symmetric_forest.COUNTS, *arrays), **arrays),
        *(_kind(steps.kind, ("kind", *steps.heads, "paths", *steps.names)) for steps in (StepSchedule, StepExchange)),
        _kind("flow", flow.FIELDS),
        _kind(StagedFlow.kind, (*flow.FIELDS, *StagedFlow.further_fields)),
        _kind("allreduce", ("kind", "reduce", "broadcast"), reduce=halves, broadcast=halves),
    ]


def plan_schema() -> Schema:
    """Return the JSON Schema of the newest version of plan files; it says what has which form, and proves nothing."""
    schema = PlanDocument.model_json_schema()
    topologies = [document.model_json_schema() for document in (TopologyDocument, ArraysDocument)]
    for document in topologies:
        schema["$defs"] |= document.pop("$defs")
    for name in ("tails", "heads", "kinds"):
        schema["$defs"]["LinkArraysEntry"]["properties"][name] = ARRAY
    switches = topologies[1]["properties"]["switches"]
    switches["items"] = {"anyOf": [switches["items"], {"type": "string"}]}
    fields = {
        "format": {"const": PLAN_FORMAT},
        "version": {"const": PLAN_VERSION},
        "topology": {
            "oneOf": [
                document | {"properties": document["properties"] | {"version": {"const": version}}}
                for version, document in enumerate(topologies, start=1)
            ]
        },
        "schedule": {"oneOf": _kinds()},
    }
    schema["properties"] |= fields
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A plan file of collopt"}
    return head | {name: _plain(value) for name, value in schema.items() if name not in {"title", "description"}}


def _plain(value: Any) -> Any:
    """Leave out titles and descriptions, which name Python's classes."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _plain(entry)
        for name, entry in value.items()
        if not (name in {"title", "description"} and isinstance(entry, str))
    }
