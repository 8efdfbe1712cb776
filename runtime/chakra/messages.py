"""The messages of Chakra's ``et_def.proto`` (github.com/mlcommons/chakra, schema 0.0.4), as far as traces need them.

No package of Chakra's is published, so they are described here and made by `google.protobuf` when first used.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

__all__ = ["VALUE_FIELDS", "Messages", "messages"]

VALUE_FIELDS = {
    "double": 3,
    "float": 5,
    "int32": 7,
    "int64": 9,
    "uint32": 11,
    "uint64": 13,
    "bool": 27,
    "string": 29,
    "bytes": 31,
}
"""Field of an attribute's value by its kind.  Others hold lists, or numbers written in rarer ways."""


class Messages(NamedTuple):
    """Classes of the first message of a file and of all others."""

    metadata: Any
    node: Any


@cache
def messages() -> Messages:
    """Make the classes; imports `google.protobuf`, which takes longer than to plan something small."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="collopt_et_def.proto", package="collopt_chakra", syntax="proto3")

    def describe(message: str, *fields: tuple[int, str, str], lists: tuple[str, ...] = ()) -> Any:
        described = file.message_type.add(name=message)
        for number, name, kind in fields:
            label = field.LABEL_REPEATED if name in lists else field.LABEL_OPTIONAL
            added = described.field.add(name=name, number=number, label=label)
            if kind == "attribute":
                added.type, added.type_name = field.TYPE_MESSAGE, ".collopt_chakra.Attribute"
            else:
                added.type = getattr(field, f"TYPE_{kind.upper()}")
        return described

    attribute = describe("Attribute", (1, "name", "string"))
    attribute.oneof_decl.add(name="value")
    for kind, number in VALUE_FIELDS.items():
        kind_of_field = getattr(field, f"TYPE_{kind.upper()}")
        attribute.field.add(name=kind, number=number, type=kind_of_field, label=field.LABEL_OPTIONAL, oneof_index=0)
    describe("Metadata", (1, "version", "string"), (2, "attributes", "attribute"), lists=("attributes",))
    describe(
        "Node",
        (1, "number", "uint64"),
        (2, "name", "string"),
        (3, "kind", "int32"),
        (4, "controls", "uint64"),
        (5, "waits", "uint64"),
        (7, "duration", "uint64"),
        (10, "attributes", "attribute"),
        lists=("controls", "waits", "attributes"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    metadata, node = (pool.FindMessageTypeByName(f"collopt_chakra.{name}") for name in ("Metadata", "Node"))
    return Messages(message_factory.GetMessageClass(metadata), message_factory.GetMessageClass(node))
