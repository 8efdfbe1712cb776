"""Witnesses of bounds as plain JSON values; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedError
from .cut_duals import Prices
from .cuts import Cut, Partition, RankCuts, Witness
from .length_duals import LinkLengths

_KINDS: dict[str, type[Witness]] = {kind.field: kind for kind in (Cut, RankCuts, Partition, Prices, LinkLengths)}

WITNESS_FIELDS = tuple(_KINDS)
"""Names of the fields, one per kind of witness."""


def witness_to_json(witness: Witness) -> dict[str, Any]:
    """Describe a witness by one field of plain values, ready for `json.dumps`."""
    if not isinstance(witness, Witness):
        raise UnsupportedError(
            f"there is no form for a {type(witness).__name__} in files; expected one of {', '.join(_KINDS)}"
        )
    return {witness.field: witness.to_json()}


def witness_from_json(field: str, value: Any) -> Witness:
    """Build the witness that a field describes."""
    return _KINDS[field].from_json(value)
