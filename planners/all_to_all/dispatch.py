"""Mixture-of-experts dispatch: a multicast all-to-allv that sends a token once to each server with experts of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError, TopologyError, UnsupportedError
from ...schedules.stages.schedule import AllToAllvSchedule
from ...schedules.stages.two_tier_cost import H200, TwoTierModel, check_model
from ...support.arrays import IntArray, read_only
from ...support.formatting import count_text, percentage_text
from ...support.validation import as_integers, as_whole, shown
from .fast import MAX_BYTES, schedule_all_to_allv

TOKEN_BYTES = 2 * 4096
"""A token of 4096 numbers of two bytes."""
RELAY_ROUNDS = (1, 4, 16)
"""Tried by default, as long as more are worth it: these have more wake-ups, and relays that lag behind less."""
MAX_ROUNDS = 1024
PLANNING_US, CELL_US = 300, Fraction(1, 10)
"""Relays take about so long to plan, and so long for each class of a rank."""
MAX_GPUS = 8
"""GPUs of a server: those that want a token are the bits of a byte."""
MAX_SUBSET_SERVERS = 16
"""Servers of which all subsets are looked at."""


@dataclass(frozen=True, eq=False)
class DispatchCounts:
    """Tokens that GPUs have for other servers; counts that are too large or contradict each other are refused.

    Attributes
    ----------
    sends : ndarray of int64, shape (ranks, servers)
        Tokens of a rank that any GPU of a server wants, 0 for its own server.
    leaving : ndarray of int64, shape (ranks,)
        Tokens of a rank that any other server wants, each counted once.
    gpus_per_server : int
        Rank r is GPU ``r % gpus_per_server`` of server ``r // gpus_per_server``.
    classes : ndarray of int64, shape (ranks, 2^servers), optional
        Tokens of a rank by the set of other servers that want them, as bits.
    """

    sends: IntArray
    leaving: IntArray
    gpus_per_server: int
    classes: IntArray | None = None

    def __post_init__(self) -> None:
        gpus = as_whole(self.gpus_per_server, "gpus_per_server")
        for name in ("sends", "leaving") if self.classes is None else ("sends", "leaving", "classes"):
            counts = _counts(getattr(self, name), name)
            object.__setattr__(self, name, read_only(counts))
        ranks, servers = self.sends.shape if self.sends.ndim == 2 else (0, 0)
        if not ranks or ranks != servers * gpus or self.leaving.shape != (ranks,):
            raise UnsupportedError(
                f"sends has shape {self.sends.shape} and leaving {self.leaving.shape}; expected (ranks, servers) and "
                f"(ranks,), with {gpus} ranks per server"
            )
        own = np.diagonal(self.by_server)
        if own.any():
            raise UnsupportedError(f"server {own.argmax()} sends to itself; expected tokens for other servers only")
        floor, ceiling = self.sends.max(axis=1), self.sends.sum(axis=1)
        if (faults := (self.leaving < floor) | (self.leaving > ceiling)).any():
            rank = faults.argmax()
            raise UnsupportedError(
                f"{self.leaving[rank]} tokens leave rank {rank}; expected {floor[rank]} to {ceiling[rank]} by its sends"
            )
        if self.classes is not None and not _fits(self.classes, self.sends, self.leaving):
            raise UnsupportedError("classes do not add up to the tokens that ranks send; expected those of the same")

    @property
    def servers(self) -> int:
        """Number of servers."""
        return int(self.sends.shape[1])

    @cached_property
    def by_server(self) -> IntArray:
        """Tokens from server to server, D; shape (servers, servers)."""
        return np.asarray(self.sends.reshape(self.servers, self.gpus_per_server, -1).sum(axis=1))

    @cached_property
    def once(self) -> IntArray:
        """Tokens that leave each server; shape (servers,)."""
        return np.asarray(self.leaving.reshape(self.servers, -1).sum(axis=1))


def _counts(values: Any, name: str) -> IntArray:
    counts = _integers(values, name, "whole numbers of 64 bits")
    if counts.size and counts.min() < 0:
        raise UnsupportedError(f"{name} has {counts.min()}; expected numbers of at least 0")
    if (total := sum(counts.ravel().tolist())) >= MAX_BYTES:
        raise UnsupportedError(f"{name} add up to {total}; expected less than 2^62")
    return counts


def _integers(values: Any, what: str, expected: str) -> IntArray:
    try:
        return np.ascontiguousarray(as_integers(values, what, expected))
    except TopologyError as error:
        raise UnsupportedError(str(error)) from None


def _fits(classes: IntArray, sends: IntArray, leaving: IntArray) -> bool:
    ranks, servers = sends.shape
    if servers > MAX_SUBSET_SERVERS or classes.shape != (ranks, 2**servers):
        return False
    destinations = np.arange(2**servers)[:, None] >> np.arange(servers) & 1
    return np.array_equal(classes @ destinations, sends) and np.array_equal(classes[:, 1:].sum(axis=1), leaving)


def count_dispatch(
    indices: Sequence[npt.ArrayLike], placement: npt.ArrayLike, *, servers: int, gpus_per_server: int
) -> DispatchCounts:
    """Count what the dispatch of routed tokens sends between servers; classes of tokens for up to 16 servers.

    Raises `UnsupportedError` if an index is no expert, or a placement no rank.

    Parameters
    ----------
    indices : sequence of array_like of integers, shape (tokens, choices)
        For each rank the experts of its tokens.
    placement : array_like of integers, shape (experts,)
        The rank that has each expert.
    servers, gpus_per_server : int
        Rank r is GPU ``r % gpus_per_server`` of server ``r // gpus_per_server``; at most 8 GPUs.

    Examples
    --------
    Both tokens of GPU 0 go to both GPUs of the other server, and are sent there once:

    >>> nothing = np.empty((0, 2), dtype=np.int64)
    >>> counts = count_dispatch([[[2, 3], [2, 3]], *[nothing] * 3], range(4), servers=2, gpus_per_server=2)
    >>> counts.by_server.tolist()
    [[0, 2], [0, 0]]
    """
    from ...solvers.steps.dispatch import destination_masks

    n, m = as_whole(servers, "servers"), as_whole(gpus_per_server, "gpus_per_server", high=MAX_GPUS)
    if len(indices) != n * m:
        raise UnsupportedError(f"there are indices of {len(indices)} ranks; expected {n * m}, one array for each")
    homes = as_placement(placement, n * m)
    sends = np.zeros((n * m, n), dtype=np.int64)
    leaving = np.zeros(n * m, dtype=np.int64)
    classes = np.zeros((n * m, 2**n), dtype=np.int64) if n <= MAX_SUBSET_SERVERS else None
    for rank, experts in enumerate(indices):
        elsewhere = destination_masks(as_indices(experts, len(homes)), homes, n, m) > 0
        elsewhere[:, rank // m] = False
        sends[rank], leaving[rank] = elsewhere.sum(axis=0), elsewhere.any(axis=1).sum()
        if classes is not None:
            classes[rank] = class_counts(elsewhere)
    return DispatchCounts(sends, leaving, m, classes)


def class_numbers(elsewhere: npt.NDArray[np.bool_]) -> IntArray:
    """Number the sets of other servers that want tokens; bool (tokens, servers) to int64 (tokens,)."""
    return np.asarray(elsewhere @ (1 << np.arange(elsewhere.shape[1])), dtype=np.int64)


def class_counts(elsewhere: npt.NDArray[np.bool_]) -> IntArray:
    """Count tokens that leave by the set of servers that want them; bool (tokens, servers) to int64 (2^servers,)."""
    counts = np.bincount(class_numbers(elsewhere), minlength=2 ** elsewhere.shape[1])
    counts[0] = 0  # what stays
    return counts


def as_indices(values: Any, experts: int) -> IntArray:
    """Read routing indices, shape (tokens, choices); `UnsupportedError` if one is no expert."""
    indices = _integers(values, "indices", "the numbers of experts")
    if indices.ndim != 2:
        raise UnsupportedError(f"indices have shape {indices.shape}; expected (tokens, choices)")
    faults = np.argwhere((indices < 0) | (indices >= experts))
    if faults.size:
        token, choice = faults[0].tolist()
        raise UnsupportedError(
            f"indices[{token}, {choice}] is {indices[token, choice]}; expected an expert from 0 to {experts - 1}"
        )
    return indices


def as_placement(values: Any, ranks: int) -> IntArray:
    """Read the ranks of experts; `UnsupportedError` if one is no rank."""
    homes = _integers(values, "placement", "the rank of each expert")
    if homes.ndim != 1 or not homes.size:
        raise UnsupportedError(f"placement has shape {homes.shape}; expected one rank for each expert")
    faults = np.flatnonzero((homes < 0) | (homes >= ranks))
    if faults.size:
        raise UnsupportedError(f"placement[{faults[0]}] is {homes[faults[0]]}; expected a rank from 0 to {ranks - 1}")
    return homes


@dataclass(frozen=True)
class DispatchBound:
    """No schedule takes less: a server has to receive, or to send, so many tokens, and each of its GPUs does its part.

    Attributes
    ----------
    server : int
        The server that decides.
    receives : bool
        Whether by what it receives, or by what leaves it, every token once.
    tokens, gpus_per_server : int
        So many tokens, and GPUs with a NIC each that share them.
    """

    server: int
    receives: bool
    tokens: int
    gpus_per_server: int

    @property
    def load(self) -> Fraction:
        """Tokens that the busiest GPU sends, or receives, between servers."""
        return Fraction(self.tokens, self.gpus_per_server)

    def verify(self, counts: DispatchCounts) -> None:
        """Check the bound against counts; raises `CertificateError` if they do not show it."""
        one = counts.by_server[:, self.server] if self.receives else counts.once[self.server]
        if self.gpus_per_server != counts.gpus_per_server or int(np.sum(one)) != self.tokens:
            raise CertificateError(f"{self}, which the counts do not show: these are {int(np.sum(one))} tokens")

    def __str__(self) -> str:
        what = "receives" if self.receives else "has to send"
        return f"server {self.server} {what} {count_text(self.tokens, 'token')}"


@dataclass(frozen=True, eq=False)
class DispatchPlan:
    """A dispatch in balanced one-to-one stages, direct or with relays.

    A direct one sends every token once to each server that wants it.  With relays, of a token for several servers the
    first copy may go to one of these alone, its chief, which sends it on to the others.  The combine is the same in
    reverse: servers add up what their GPUs have of a token, and send one sum.

    Attributes
    ----------
    counts : DispatchCounts
        What is sent.
    rounds : tuple of AllToAllvSchedule
        One, or one more than tokens are divided into for relays, which are sent in the round after.  In tokens, whose
        columns are GPUs of the sender's number, which copy what they receive to the others of their server.
    bound : DispatchBound
        Of all schedules.
    chiefs : ndarray of int64, shape (servers, 2^servers, servers), optional
        Tokens of each class by chief, the tokens' own server among them; None where it is direct.
    """

    counts: DispatchCounts
    rounds: tuple[AllToAllvSchedule, ...]
    bound: DispatchBound
    chiefs: IntArray | None = None

    @property
    def load(self) -> int:
        """Tokens that the busiest GPUs of all rounds send or receive between servers."""
        return sum(schedule.scale_out_bytes for schedule in self.rounds)

    @cached_property
    def direct_load(self) -> Fraction:
        """No direct schedule has less: the largest row or column sum of `DispatchCounts.by_server` per GPU."""
        sends = self.counts.by_server
        return Fraction(int(max(sends.sum(axis=0).max(), sends.sum(axis=1).max())), self.counts.gpus_per_server)

    @property
    def gap(self) -> Fraction:
        """Relative difference of `load` and the bound of all schedules."""
        return Fraction(self.load) / self.bound.load - 1 if self.load else Fraction(0)

    @property
    def columns_decide(self) -> bool:
        """Whether direct schedules are optimal but for whole tokens: where a server receives as much as any sends."""
        return self.direct_load == self.bound.load

    @cached_property
    def relayed_load(self) -> Fraction | None:
        """Tokens that busiest senders send at least where only servers that want a token relay it; None if unknown."""
        if self.counts.classes is None:
            return None
        from ...solvers.steps.dispatch import heaviest_subset

        sends, servers = heaviest_subset(self.counts.once, _by_server(self.counts))
        return Fraction(sends, servers * self.counts.gpus_per_server)

    @cached_property
    def routes(self) -> IntArray:
        """Rank, class, chief, round and number of tokens, in the order of the first two; of a direct dispatch, none."""
        if self.chiefs is None:
            return np.empty((0, 5), dtype=np.int64)
        from ...solvers.steps.dispatch import dealt

        assert self.counts.classes is not None
        return dealt(self.counts.classes, self.chiefs, len(self.rounds) - 1)[0]

    def predicted(self, model: TwoTierModel, token_bytes: int) -> Fraction:
        """Time in µs that the rounds never exceed together; see `AllToAllvSchedule.time_guarantee`."""
        check_model(model)
        units = model.of_units(as_whole(token_bytes, "token_bytes"))
        return sum((schedule.time_guarantee(units) for schedule in self.rounds), Fraction(0))

    def optimum(self, model: TwoTierModel, token_bytes: int) -> Fraction:
        """Time in µs that the bound takes on a model's links between servers."""
        check_model(model)
        return self.bound.load * as_whole(token_bytes, "token_bytes") / Fraction(model.scale_out) / 1000

    def verify(self) -> None:
        """Check that the rounds move what is counted, and the bound; raises `CertificateError` otherwise."""
        self.bound.verify(self.counts)
        n, m = self.counts.servers, self.counts.gpus_per_server
        expected = [self.counts.sends] if self.chiefs is None else _routed_sends(self)
        if len(self.rounds) != len(expected):
            raise CertificateError(f"a dispatch has {len(self.rounds)} rounds; expected {len(expected)}")
        for schedule, sends in zip(self.rounds, expected, strict=True):
            schedule.verify()
            shape = (schedule.servers, schedule.gpus_per_server)
            if shape != (n, m) or not np.array_equal(schedule.traffic.reshape(n * m, n, m).sum(axis=2), sends):
                raise CertificateError("a schedule of the dispatch is of other tokens than its counts")

    def __str__(self) -> str:
        quality = f"{percentage_text(self.gap)} above the bound of all schedules"
        if self.gap == 0:
            quality = "optimal"
        elif self.chiefs is not None:
            quality += f", with relays in {len(self.rounds)} rounds"
        elif not self.columns_decide:
            quality += ", as servers send unequally"
        n, m = count_text(self.counts.servers, "server"), count_text(self.counts.gpus_per_server, "GPU")
        stages = count_text(sum(schedule.num_stages for schedule in self.rounds), "stage")
        return (
            f"dispatch of {n} of {m}, {stages}: {count_text(self.load, 'token')} per GPU between servers, {quality}; "
            f"{self.bound}"
        )


def _by_server(counts: DispatchCounts) -> IntArray:
    """Classes of each server; shape (servers, 2^servers)."""
    assert counts.classes is not None
    return np.asarray(counts.classes.reshape(counts.servers, counts.gpus_per_server, -1).sum(axis=1))


def _routed_sends(plan: DispatchPlan) -> list[IntArray]:
    """What ranks send in each round by the routes, which have to be of all tokens, by chiefs that want or have them."""
    counts, n, m = plan.counts, plan.counts.servers, plan.counts.gpus_per_server
    assert counts.classes is not None
    assert plan.chiefs is not None
    if plan.chiefs.shape != (n, 2**n, n) or plan.chiefs.min() < 0:
        raise CertificateError("the chiefs of the dispatch are no numbers of tokens by server, class and chief")
    rank, subset, chief, number, tokens = plan.routes.T
    dealt = np.zeros_like(counts.classes)
    np.add.at(dealt, (rank, subset), tokens)
    destinations = (subset[:, None] >> np.arange(n) & 1).astype(bool)
    relayed = chief != rank // m
    if not np.array_equal(dealt[:, 1:], counts.classes[:, 1:]) or not destinations[relayed, chief[relayed]].all():
        raise CertificateError("the routes of the dispatch are of other tokens, or by servers that do not want them")
    by_chief = np.arange(n) == chief[:, None]
    sends = np.zeros((len(plan.rounds), len(counts.sends), n), dtype=np.int64)
    np.add.at(sends, (number, rank), np.where(relayed[:, None], by_chief, destinations) * tokens[:, None])
    later = (destinations & ~by_chief & relayed[:, None]) * tokens[:, None]
    np.add.at(sends, (number + relayed, chief * m + rank % m), later)
    return list(sends)


def schedule_dispatch(
    counts: DispatchCounts,
    *,
    token_bytes: int = TOKEN_BYTES,
    stages: str | None = None,
    max_stage_tokens: int | None = None,
    relay_rounds: int | None = None,
) -> DispatchPlan:
    """Plan a dispatch from counts alone; the plan is a deterministic function of the arguments.

    Its bound holds for all schedules: server j receives every token that it wants, and server i sends every token that
    leaves it, once at least.  A direct schedule sends tokens of i once to each server, and takes what the larger of row
    and column sums says; it is optimal if a column sum is the largest, as where all servers send equally much.

    Parameters
    ----------
    counts : DispatchCounts
        As `count_dispatch` returns them.
    token_bytes : int
        What the defaults of the others are predicted with.
    stages, max_stage_tokens : str and int, optional
        As `schedule_all_to_allv` takes them, with stages in tokens.
    relay_rounds : int, optional
        Parts that tokens are divided into for relays, 0 for a direct dispatch.  By default 1, 4, 16 or 0, whichever has
        the least predicted time; 0 if classes are unknown, or relays could save less than a tenth, or less than they
        take to plan.

    Examples
    --------
    >>> sends = np.array([[0, 4], [0, 0], [2, 0], [0, 0]])
    >>> counts = DispatchCounts(sends, sends.sum(axis=1), gpus_per_server=2)
    >>> plan = schedule_dispatch(counts)
    >>> print(plan)
    dispatch of 2 servers of 2 GPUs, 1 stage: 2 tokens per GPU between servers, optimal; server 1 receives 4 tokens
    >>> plan.gap
    Fraction(0, 1)
    """
    if not isinstance(counts, DispatchCounts):
        raise UnsupportedError(f"counts are {shown(counts)}; expected DispatchCounts, as count_dispatch returns them")
    unit = as_whole(token_bytes, "token_bytes")
    cap = None if max_stage_tokens is None else as_whole(max_stage_tokens, "max_stage_tokens") * unit
    options = {"stages": stages, "max_stage_bytes": cap, "unit_bytes": unit}
    bound = _bound_of(counts)
    if relay_rounds is not None:
        rounds = as_whole(relay_rounds, "relay_rounds", low=0, high=MAX_ROUNDS)
        if not rounds:
            return DispatchPlan(counts, (_scheduled(counts, counts.sends, options),), bound)
        if counts.classes is None:
            raise UnsupportedError(f"relay_rounds is {rounds} and the counts have no classes; expected 0, or classes")
        return next(_relayed(counts, bound, (rounds,), options))
    direct = DispatchPlan(counts, (_scheduled(counts, counts.sends, options),), bound)
    if counts.classes is None or not pays_to_relay(counts):
        return direct
    best, per_token = direct, unit / Fraction(H200.scale_out) / 1000
    # Relays have to save more than their planning takes.
    if (direct.direct_load - bound.load) * per_token <= PLANNING_US + CELL_US * counts.classes.size:
        return direct
    for plan in _relayed(counts, bound, RELAY_ROUNDS, options):
        best = min(best, plan, key=lambda candidate: candidate.predicted(H200, unit))
        # Four times as many parts save three quarters of what is sent late; rounds of shorter stages lose about half.
        number, late = len(plan.rounds) - 1, (plan.load - plan.bound.load) * per_token
        if late * len(plan.rounds) <= 2 * number * (plan.predicted(H200, unit) - plan.load * per_token):
            break
    return best


def pays_to_relay(counts: DispatchCounts) -> bool:
    """Whether servers send so unequally that a direct dispatch takes a tenth longer than the bound."""
    received = counts.by_server.sum(axis=0).max()
    return bool(10 * counts.by_server.sum(axis=1).max() > 11 * max(received, counts.once.max()))


def _bound_of(counts: DispatchCounts) -> DispatchBound:
    received = counts.by_server.sum(axis=0)
    receives = bool(received.max() >= counts.once.max())
    tokens = received if receives else counts.once
    return DispatchBound(int(np.argmax(tokens)), receives, int(tokens.max()), counts.gpus_per_server)


def _relayed(
    counts: DispatchCounts, bound: DispatchBound, rounds: Iterable[int], options: dict[str, Any]
) -> Iterator[DispatchPlan]:
    """Plan with relays, with each of some numbers of rounds."""
    from ...solvers.steps.dispatch import chief_quotas, dealt

    assert counts.classes is not None
    chiefs = chief_quotas(counts.once, _by_server(counts), bound.tokens)
    for number in rounds:
        sends = dealt(counts.classes, chiefs, number)[1]
        schedules = tuple(_scheduled(counts, round_sends, options) for round_sends in sends)
        yield DispatchPlan(counts, schedules, bound, chiefs)


def _scheduled(counts: DispatchCounts, sends: IntArray, options: dict[str, Any]) -> AllToAllvSchedule:
    """Schedule one round: what each rank sends to each server, (ranks, servers)."""
    n, m = counts.servers, counts.gpus_per_server
    traffic = np.zeros((n * m, n, m), dtype=np.int64)
    ranks = np.arange(n * m)
    traffic[ranks, :, ranks % m] = sends
    return schedule_all_to_allv(traffic.reshape(n * m, n * m), servers=n, gpus_per_server=m, **options)
