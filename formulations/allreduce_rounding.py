"""Rounding of an allreduce solution to multiples of 1/k, which trades rate for few trees.

Every tree has the bandwidth ``1 / k``.  ForestColl, appendix G, rounds root rates and shares down to multiples of 1/k;
here each root also gives up one multiple for every share that lost something, of the kind of trees where more did.  If
L shares lose, a cut is at least ``k c - L`` wide afterwards, and the rates in a set S that keeps one are at most ``k
x(S) - L``, so everything fits.  With R roots at most ``R (L + 1) / k`` is lost.  The arithmetic is exact: 2.9999999999
is less than 3.
"""

from collections import deque
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import TypeVar

from ..errors import UnsupportedError
from ..support.validation import as_whole, shown
from .inputs import as_share

__all__ = ["RoundedRates", "round_flow", "round_rates"]

Node = TypeVar("Node", bound=Hashable)
Number = float | Fraction
Pair = tuple[str, str]


@dataclass(frozen=True)
class RoundedRates:
    """Root rates and shares in multiples of 1/k for which trees exist.

    Attributes
    ----------
    k : int
        Trees for every unit of rate.
    root_rates : dict of str to Fraction
        By rank.
    broadcast_shares, reduce_shares : dict
        By pair of ranks ``(tail, head)``, Fractions.
    loss : Fraction
        What the sum of the root rates is below that of the program, at most ``R (L + 1) / k``.
    """

    k: int
    root_rates: dict[str, Fraction]
    broadcast_shares: dict[Pair, Fraction]
    reduce_shares: dict[Pair, Fraction]
    loss: Fraction

    @property
    def rate(self) -> Fraction:
        """Sum of the root rates: the algorithm bandwidth that trees reach at least."""
        return sum(self.root_rates.values(), Fraction(0))


def round_rates(
    root_rates: Mapping[str, Number],
    broadcast_shares: Mapping[Pair, Number],
    reduce_shares: Mapping[Pair, Number],
    k: int,
) -> RoundedRates:
    """Round a solution of the allreduce program down to multiples of 1/k, so that trees still fit.

    Parameters
    ----------
    root_rates : mapping of str to number
        As a solution of `collopt.formulations.allreduce.build` has them under ``"root_rate"``.
    broadcast_shares, reduce_shares : mapping of (tail, head) to number
        Those under ``"broadcast_share"`` and ``"reduce_share"``.
    k : int
        Trees for every unit of rate.

    Examples
    --------
    Between two ranks, half of a link with 1 GB/s for each kind of trees:

    >>> half = {("a", "b"): Fraction(1, 2), ("b", "a"): Fraction(1, 2)}
    >>> round_rates({"a": Fraction(1, 2), "b": Fraction(1, 2)}, half, half, 2).rate
    Fraction(1, 1)
    >>> round_rates({"a": Fraction(1, 2), "b": Fraction(1, 2)}, half, half, 99).rate
    Fraction(94, 99)
    """
    k = as_whole(k, "k")
    exact = _read("root_rates", root_rates)
    rate_of = [_read("broadcast_shares", broadcast_shares), _read("reduce_shares", reduce_shares)]
    rounded = [{pair: _round_down(share, k) for pair, share in shares.items()} for shares in rate_of]
    lost = max(sum(new[pair] != old[pair] for pair in old) for old, new in zip(rate_of, rounded, strict=True))
    rates = {root: max(Fraction(0), _round_down(rate - Fraction(lost, k), k)) for root, rate in exact.items()}
    loss = sum(exact.values(), Fraction(0)) - sum(rates.values(), Fraction(0))
    return RoundedRates(k, rates, rounded[0], rounded[1], loss)


def round_flow(
    flow: Mapping[tuple[Node, Node], Number], origin: Node, ends: Collection[Node], k: int
) -> dict[tuple[Node, Node], Fraction]:
    """Round a flow down to multiples of 1/k by path decomposition, and return the links that are left.

    What reaches any end falls by less than 1/k for each of the paths, and there are no more of them than links with
    flow.  Nothing grows, and every node between origin and ends passes on exactly what it gets.

    Parameters
    ----------
    flow : mapping of (tail, head) to number
        GB/s on links, such as what the links carry for one rank; a little more may enter a node than leave it, or less.
    origin : node
        Where paths start.
    ends : collection of node
        Where they end, at the first one that they meet.
    k : int
        Multiples of ``1 / k`` are left.

    Examples
    --------
    >>> left = round_flow({("a", "s"): 0.7, ("s", "b"): 0.4, ("s", "c"): 0.3}, "a", {"b", "c"}, 5)
    >>> {link: str(amount) for link, amount in left.items()}
    {('a', 's'): '3/5', ('s', 'b'): '2/5', ('s', 'c'): '1/5'}
    """
    k = as_whole(k, "k")
    remaining = {link: amount for link, amount in _read("flow", flow).items() if amount}
    heads: dict[Node, list[Node]] = {}
    for tail, head in remaining:
        heads.setdefault(tail, []).append(head)
    kept: dict[tuple[Node, Node], Fraction] = {}
    while path := _shortest_path(remaining, heads, origin, ends):
        amount = min(remaining[link] for link in path)
        integral = _round_down(amount, k)
        for link in path:
            remaining[link] -= amount
            if integral:
                kept[link] = kept.get(link, Fraction(0)) + integral
    return kept


def _shortest_path(
    remaining: Mapping[tuple[Node, Node], Fraction],
    heads: Mapping[Node, list[Node]],
    origin: Node,
    ends: Collection[Node],
) -> list[tuple[Node, Node]]:
    """Find a shortest path of links with flow from `origin` to an end; empty if there is none."""
    before: dict[Node, Node] = {}
    waiting = deque([origin])
    while waiting:
        node = waiting.popleft()
        for head in heads.get(node, ()):
            if remaining[node, head] <= 0 or head in before or head == origin:
                continue
            before[head] = node
            if head in ends:
                path = [(before[head], head)]
                while path[0][0] != origin:
                    path.insert(0, (before[path[0][0]], path[0][0]))
                return path
            waiting.append(head)
    return []


def _round_down(amount: Fraction, k: int) -> Fraction:
    return Fraction(floor(amount * k), k)


def _read(what: str, numbers: Mapping[Node, Number]) -> dict[Node, Fraction]:
    """Read numbers exactly; negative ones within a solver's tolerance become 0."""
    if not isinstance(numbers, Mapping):
        raise UnsupportedError(f"{what} is {shown(numbers)}; expected a mapping to numbers")
    return {key: as_share(value, f"{what} at {shown(key)}") for key, value in numbers.items()}
