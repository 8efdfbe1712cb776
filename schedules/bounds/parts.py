"""A number for each of some links, in the one form that witnesses rely on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from ...errors import CertificateError
from ...support.validation import shown
from .witness_parts import as_parts, as_price

__all__ = ["LinkPrice", "Pair", "as_link_prices", "price_by_link"]

Pair = tuple[str, str]


class LinkPrice(NamedTuple):
    """What a unit of bandwidth is worth.

    Attributes
    ----------
    tail, head : str
        A link, or the two ends of a hop.
    price : Fraction
        In any unit, the same for all.
    """

    tail: str
    head: str
    price: Fraction


def as_link_prices(rows: object) -> tuple[LinkPrice, ...]:
    """Read prices with both ends of their links; raises `CertificateError` for anything else."""
    return tuple(_as_link_price(row) for row in as_parts(rows, "list of prices", "prices with both ends"))


def _as_link_price(row: object) -> LinkPrice:
    if not isinstance(row, tuple) or [type(end) for end in row[:2]] != [str, str] or len(row) != 3:
        raise CertificateError(f"the bound's list of prices holds {shown(row)}; expected (tail, head, price)")
    tail, head, price = row
    return LinkPrice(tail, head, as_price(price, tail, head))


def price_by_link(prices: Sequence[LinkPrice], known: Iterable[Pair], what: str) -> dict[Pair, Fraction]:
    """Arrange prices by their links.

    Parameters
    ----------
    prices : sequence of LinkPrice
        In any order.
    known : iterable of pairs of str
        Ends of what may have a price.
    what : str
        Names it in messages, such as ``"link"``.

    Returns
    -------
    dict
        By both ends.

    Raises
    ------
    CertificateError
        If something unknown has a price, something has two, or a price is negative.
    """
    mapping: dict[Pair, Fraction] = {}
    for tail, head, price in prices:
        if (tail, head) not in known:
            raise CertificateError(
                f"the bound has a price for {what} {shown((tail, head))}, which is none of this topology"
            )
        if (tail, head) in mapping:
            raise CertificateError(f"the bound has two prices for {what} {shown((tail, head))}; expected one")
        if price < 0:
            raise CertificateError(f"the bound's price of {what} {shown((tail, head))} is {price}; expected at least 0")
        mapping[tail, head] = price
    return mapping
