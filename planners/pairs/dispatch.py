"""Mixture-of-experts dispatch: a multicast all-to-allv that sends a token once to each server with experts of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...schedules.stages.schedule import AllToAllvSchedule
from ...schedules.stages.two_tier_cost import H200, TwoTierModel, check_model
from ...support.arrays import IntArray
from ...support.formatting import count_text, percentage_text
from ...support.validation import as_whole, shown
from .dispatch_counts import DispatchCounts
from .fast import schedule_all_to_allv

TOKEN_BYTES = 2 * 4096
"""A token of 4096 numbers of two bytes."""
RELAY_ROUNDS = (1, 4, 16)
"""Tried by default, as long as more are worth it: these have more wake-ups, and relays that lag behind less."""
MAX_ROUNDS = 1024
PLANNING_US, CELL_US = 300, Fraction(1, 10)
"""Relays take about so long to plan, and so long for each class of a rank."""


@dataclass(frozen=True)
class DispatchBound:
    """No schedule takes less: a server has to receive, or to send, so many tokens, and each of its GPUs does its part.

    Attributes
    ----------
    server : int
        The server that decides.
    receives : bool
        Whether by what it receives, every token once, or by the tokens that leave it, each of them once.
    tokens : int
        So many.
    gpus_per_server : int
        GPUs, with a NIC each, that share them.
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
        One, or one more than tokens are divided into for relays, which are sent in the round after.  In tokens.
        Columns of traffic are not the GPUs that want tokens, but those of the sender's number in their server, which
        copy what they receive to the others.
    bound : DispatchBound
        Of all schedules.
    chiefs : ndarray of int64, shape (servers, 2^servers, servers), optional
        Tokens of each class by chief, the tokens' own server among them; None is direct.
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
        from ...solvers.fast.dispatch import heaviest_subset

        sends, servers = heaviest_subset(self.counts.once, _by_server(self.counts))
        return Fraction(sends, servers * self.counts.gpus_per_server)

    @cached_property
    def routes(self) -> IntArray:
        """Rank, class, chief, round and number of tokens, in the order of the first two; of a direct dispatch, none."""
        if self.chiefs is None:
            return np.empty((0, 5), dtype=np.int64)
        from ...solvers.fast.dispatch import dealt

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

    Its bound holds for all schedules.  Raises `UnsupportedError` for wrong arguments.

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

    Notes
    -----
    Server j has to receive every token that it wants, and server i to send every token that leaves it, once at least.
    A direct schedule sends tokens of i once to each server, and takes what the larger of row and column sums says.
    Both are equal if a column sum is the largest, as always where all servers send equally much.

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
        rounds = as_whole(relay_rounds, "relay_rounds", least=0, most=MAX_ROUNDS)
        if not rounds:
            return DispatchPlan(counts, (_scheduled(counts, counts.sends, options),), bound)
        if counts.classes is None:
            raise UnsupportedError(f"relay_rounds is {rounds} and the counts have no classes; expected 0, or classes")
        return next(_relayed(counts, bound, (rounds,), options))
    direct = DispatchPlan(counts, (_scheduled(counts, counts.sends, options),), bound)
    if counts.classes is None or not pays_to_relay(counts):
        return direct
    best, per_token = direct, unit / Fraction(H200.scale_out) / 1000
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
    from ...solvers.fast.dispatch import chief_quotas, dealt

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
