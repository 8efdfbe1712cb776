"""Witnesses of bounds as plain JSON values; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from ...errors import UnsupportedError
from .cut_duals import Prices
from .cuts import Cut, LinkPrice, Partition, RankCuts, Witness
from .length_duals import LinkLengths

__all__ = ["WITNESS_FIELDS", "witness_from_json", "witness_to_json"]


def _price_rows(prices: Iterable[LinkPrice]) -> list[list[str]]:
    return [[tail, head, str(price)] for tail, head, price in prices]


def _prices(rows: Iterable[tuple[str, str, str]]) -> tuple[LinkPrice, ...]:
    return tuple(LinkPrice(tail, head, Fraction(price)) for tail, head, price in rows)


class _Form(NamedTuple):
    kind: type[Any]
    write: Callable[[Any], Any]
    read: Callable[[Any], Witness]


_FORMS = {
    "cut": _Form(Cut, lambda cut: sorted(cut.nodes), lambda nodes: Cut(frozenset(nodes))),
    "rank_cuts": _Form(
        RankCuts,
        lambda around: [sorted(cut.nodes) for cut in around.cuts],
        lambda rows: RankCuts(tuple(Cut(frozenset(nodes)) for nodes in rows)),
    ),
    "partition": _Form(
        Partition,
        lambda partition: [sorted(part) for part in partition.parts],
        lambda rows: Partition(tuple(frozenset(nodes) for nodes in rows)),
    ),
    "prices": _Form(
        Prices,
        lambda prices: {
            "links": _price_rows(prices.links),
            "into": [_price_rows(row) for row in prices.into],
            "out_of": [_price_rows(row) for row in prices.out_of],
            "relays": sorted(prices.relays),
        },
        lambda entry: Prices(
            _prices(entry["links"]),
            tuple(_prices(rows) for rows in entry["into"]),
            tuple(_prices(rows) for rows in entry["out_of"]),
            frozenset(entry["relays"]),
        ),
    ),
    "lengths": _Form(
        LinkLengths,
        lambda lengths: _price_rows(lengths.links),
        lambda rows: LinkLengths(_prices(rows)),
    ),
}

WITNESS_FIELDS = tuple(_FORMS)
"""Names of the fields, one per kind of witness."""


def witness_to_json(witness: Witness) -> dict[str, Any]:
    """Describe a witness by one field of plain values, ready for `json.dumps`.

    >>> witness_to_json(Cut(frozenset({"gpu1", "gpu0"})))
    {'cut': ['gpu0', 'gpu1']}
    """
    for name, form in _FORMS.items():
        if isinstance(witness, form.kind):
            return {name: form.write(witness)}
    raise UnsupportedError(
        f"there is no form for a {type(witness).__name__} in files; expected one of {', '.join(_FORMS)}"
    )


def witness_from_json(field: str, value: Any) -> Witness:
    """Build the witness that a field describes."""
    return _FORMS[field].read(value)
