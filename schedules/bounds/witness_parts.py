"""What witnesses are made of, in the one form that their sums rely on: each node once, and prices exact."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from ...errors import CertificateError
from ...support.validation import shown
from ...topologies import Topology

__all__ = ["as_node_set", "as_parts", "as_price", "check_known", "entering", "leaving"]


def as_node_set(nodes: object, what: str) -> frozenset[str]:
    """Read names of nodes, each of which counts once however often it is written.

    Parameters
    ----------
    nodes : iterable of str
        Names, not one text.
    what : str
        Names the set in the error message, such as ``"cut"``.

    Returns
    -------
    frozenset of str

    Raises
    ------
    CertificateError
        If `nodes` is no collection, or holds something else than text.

    Examples
    --------
    >>> sorted(as_node_set(["b", "a", "b"], "cut"))
    ['a', 'b']
    """
    names = as_parts(nodes, what, "names of nodes")
    if strangers := [name for name in names if type(name) is not str]:
        raise CertificateError(f"the bound's {what} holds {shown(strangers[0])}; expected names of nodes")
    return nodes if type(nodes) is frozenset else frozenset(names)


def as_parts(values: object, what: str, expected: str) -> tuple[Any, ...]:
    """Read several things of a witness; a text, or what cannot be gone through, raises `CertificateError`."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise CertificateError(f"the bound's {what} is {shown(values)}; expected a collection of {expected}")
    return tuple(values)


def as_price(price: object, tail: str, head: str) -> Fraction:
    """Read the exact price of a link or hop: a fraction or an integer; anything else raises `CertificateError`."""
    if type(price) is Fraction:
        return price
    if type(price) is not int:
        raise CertificateError(
            f"the bound's price of {shown((tail, head))} is {shown(price)}; expected a Fraction or an integer"
        )
    return Fraction(price)


def leaving(nodes: frozenset[str], topology: Topology) -> Fraction:
    """Bandwidth of the links that leave a set of nodes, GB/s."""
    links = (link for node in nodes for link in topology.out_links(node))
    return sum((link.bandwidth for link in links if link.head not in nodes), Fraction(0))


def entering(nodes: frozenset[str], topology: Topology) -> Fraction:
    """Bandwidth of the links that enter a set of nodes, GB/s."""
    links = (link for node in nodes for link in topology.in_links(node))
    return sum((link.bandwidth for link in links if link.tail not in nodes), Fraction(0))


def check_known(nodes: frozenset[str], topology: Topology, what: str) -> None:
    """Raise `CertificateError` unless all are nodes of the topology."""
    if stranger := sorted(node for node in nodes if node not in topology.node_index):
        raise CertificateError(f"the bound's {what} names {shown(stranger[0])}, which is not a node of {topology!r}")
