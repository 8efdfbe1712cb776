"""Collectives: their table, written by hand, and the one place where names are looked up."""

import copy
import pickle
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from collopt.errors import CertificateError, UnsupportedError
from collopt.schedules import (
    ALL_TO_ALL,
    ALL_TO_ALLV,
    ALLGATHER,
    ALLREDUCE,
    BROADCAST,
    COLLECTIVES,
    PAIR_COLLECTIVES,
    REDUCE,
    REDUCE_SCATTER,
    TREE_COLLECTIVES,
    Bound,
    Collective,
    Cut,
    register_collective,
)
from collopt.schedules.collective import as_collective
from collopt.topologies import complete
from own_collectives import GATHER, HALO, SCATTER, SHIFT, from_root, registered, to_next

YES, NO = True, False
TABLE = {
    # name: (pattern, phases, input, output, pairs, one root, sharded, two phases, direction, reduces, traffic)
    "allgather": ("every root", ("broadcast",), "shard", "all", NO, NO, YES, NO, "broadcast", NO, NO),
    "reduce_scatter": ("every root", ("reduce",), "all", "shard", NO, NO, YES, NO, "reduce", YES, NO),
    "allreduce": ("every root", ("reduce", "broadcast"), "all", "all", NO, NO, NO, YES, None, YES, NO),
    "broadcast": ("one root", ("broadcast",), "shard", "all", NO, YES, NO, NO, "broadcast", NO, NO),
    "reduce": ("one root", ("reduce",), "all", "shard", NO, YES, NO, NO, "reduce", YES, NO),
    "all_to_all": ("pairs", (), "parts", "parts", YES, NO, NO, NO, None, NO, NO),
    "all_to_allv": ("pairs", (), "parts", "parts", YES, NO, NO, NO, None, NO, YES),
}
"""What is true of each, apart from the record."""


def test_the_table_of_collectives() -> None:
    """Every property of every collective, by hand."""
    names = (
        "pattern phases input output in_pairs has_one_root is_sharded has_two_phases direction reduces takes_traffic"
    )
    assert list(COLLECTIVES) == list(TABLE)
    for name, expected in TABLE.items():
        record = COLLECTIVES[name]
        assert (record.name, str(record), repr(record)) == (name, name, f"<Collective {name}>")
        assert tuple(getattr(record, field) for field in names.split()) == expected, name


def test_names_of_other_libraries() -> None:
    """Names are those of nccl-tests, NCCL's tuner plugin and MSCCL++."""
    assert " ".join(collective.nccl_name for collective in COLLECTIVES.values()) == (
        "allgather reducescatter allreduce broadcast reduce alltoall alltoallv"
    )


def test_collectives_by_kind() -> None:
    """Those of trees and those of pairs are all, in their order."""
    assert TREE_COLLECTIVES == (ALLGATHER, REDUCE_SCATTER, ALLREDUCE, BROADCAST, REDUCE)
    assert tuple(PAIR_COLLECTIVES) == (ALL_TO_ALL, ALL_TO_ALLV)
    assert tuple(COLLECTIVES.values()) == (*TREE_COLLECTIVES, *PAIR_COLLECTIVES)
    assert ALL_TO_ALLV in PAIR_COLLECTIVES
    assert ALLGATHER not in PAIR_COLLECTIVES
    assert repr(PAIR_COLLECTIVES) == "(<Collective all_to_all>, <Collective all_to_allv>)"


def test_transposed_partners() -> None:
    """Reversing all transfers turns broadcasts into reductions; twice, it changes nothing."""
    partners = {str(each): str(each.transposed) for each in COLLECTIVES.values()}
    pairs = {"allgather": "reduce_scatter", "broadcast": "reduce"}
    same = {name: name for name in ("allreduce", "all_to_all", "all_to_allv")}
    assert partners == pairs | {back: name for name, back in pairs.items()} | same
    assert all(each.transposed.transposed is each for each in COLLECTIVES.values())
    gather = Collective("gather", "one root", (), "shard", "all")
    with pytest.raises(UnsupportedError, match="gather reversed is no collective that collopt knows"):
        assert gather.transposed


def test_bus_factors_of_nccl_tests() -> None:
    """Factors are those of its PERFORMANCE.md for 4 ranks; of 1 rank, only rooted ones move data."""
    four = {name: each.bus_factor(4) for name, each in COLLECTIVES.items()}
    assert four == dict.fromkeys(COLLECTIVES, Fraction(3, 4)) | {
        "allreduce": Fraction(3, 2), "broadcast": 1, "reduce": 1
    }  # fmt: skip
    assert {name: as_collective(name).bus_factor(4) for name in COLLECTIVES} == four  # type: ignore[arg-type]
    assert all(each.bus_factor(1) == each.has_one_root for each in COLLECTIVES.values())


def test_lookup_by_name() -> None:
    """A name and the collective itself give the collective; spellings of others are a hint."""
    for name, each in COLLECTIVES.items():
        assert as_collective(name) is each
        assert as_collective(each) is each
    with pytest.raises(UnsupportedError, match=r"^there is no collective 'AllReduce'; did you mean allreduce\?$"):
        as_collective("AllReduce")
    with pytest.raises(UnsupportedError, match=r"^there is no collective None; expected one of allgather, .*to_allv$"):
        as_collective(None)
    with pytest.raises(UnsupportedError, match=r"there is no collective \['allgather'\]; expected one of"):
        as_collective(["allgather"])


def test_copies_are_the_same_object() -> None:
    """A copy from another process is the same object, so that `is` compares; an unregistered one keeps its contents."""
    for each in COLLECTIVES.values():
        assert copy.deepcopy(each) is each
        assert pickle.loads(pickle.dumps(each)) is each
    mine = Collective("scatter", "one root", ("broadcast",), "all", "shard")
    again = pickle.loads(pickle.dumps(mine))
    assert again == mine
    assert hash(again) == hash(mine)
    assert len({*COLLECTIVES.values(), *map(copy.copy, COLLECTIVES.values()), mine, again}) == 8


def test_a_registered_collective_is_found_like_the_others() -> None:
    """Its name and record are found among all and among those of pairs, until it is removed."""
    with registered(SCATTER, SHIFT):
        assert as_collective("scatter") is as_collective(SCATTER) is SCATTER
        assert tuple(PAIR_COLLECTIVES) == (ALL_TO_ALL, ALL_TO_ALLV, SCATTER, SHIFT)
        assert len(PAIR_COLLECTIVES) == 4
        assert (SCATTER.in_pairs, SCATTER.has_one_root, SCATTER.parts_differ, SCATTER.takes_traffic) == (1, 1, 1, 0)
        assert (SHIFT.in_pairs, SHIFT.has_one_root, SHIFT.is_sharded, SHIFT.reduces) == (1, 0, 0, 0)
        with pytest.raises(UnsupportedError, match=r"no collective 'Scatter'; did you mean scatter\?"):
            as_collective("Scatter")
    assert list(COLLECTIVES) == list(TABLE)
    with pytest.raises(UnsupportedError, match=r"no collective 'scatter'; did you mean reduce_scatter\?"):
        as_collective(SCATTER)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (SCATTER, "there is a collective scatter already; give 'scatter' another name"),
        (replace(SCATTER, name="demands"), "there is a collective demands already; give 'demands' another name"),
        (replace(SCATTER, name="all_gather"), "there is a collective allgather already; give 'all_gather' another"),
        (replace(SCATTER, name="all-to-one"), "the collective is called 'all-to-one'; expected a name such as"),
        (replace(SCATTER, name="Gossip"), "the collective is called 'Gossip'"),
        (replace(SCATTER, name=7), "the collective is called 7"),  # type: ignore[arg-type]
        ("scan", "the collective is 'scan'; expected a Collective"),
        (replace(SCATTER, name="mine", traffic=None), "traffic of the collective 'mine' is None; expected a function"),
        (replace(SCATTER, name="mine", traffic=[[1]]), "traffic of the collective 'mine' is [[1]]"),  # type: ignore[arg-type]
        (replace(SCATTER, name="mine", takes_traffic=True), "takes_traffic of the collective 'mine' is True; expected"),
        (replace(SCATTER, name="mine", phases=("broadcast",)), "phases of the collective 'mine' is ('broadcast',)"),
        *(
            (
                replace(SCATTER, name="mine", phases=phases),
                f"phases of the collective 'mine' is {phases!r}; expected ()",
            )
            for phases in (None, 0, [], "")
        ),
        (replace(SCATTER, name="mine", pattern="every root"), "is 'every root'; expected 'pairs' or 'one root'"),
        (replace(SCATTER, name="mine", pattern=np.array(["pairs"])), "pattern of the collective 'mine' is array"),  # type: ignore[arg-type]
        (replace(SCATTER, name="mine", output="shard"), "output of the collective 'mine' is 'shard'; expected 'parts'"),
    ],
)
def test_what_cannot_be_registered(record: Collective, problem: str) -> None:
    """A name twice, also in another spelling, names that files would not hold, and records with a wrong field."""
    with registered(SCATTER):
        with pytest.raises(UnsupportedError, match=re.escape(problem)):
            register_collective(record)
        assert list(COLLECTIVES) == [*TABLE, "scatter"]


def test_traffic_comes_in_lowest_terms() -> None:
    """The unit and type of the function's matrix do not matter; of an all-to-all, all is 1."""
    assert GATHER.pair_traffic(3, 1).tolist() == [[0, 1, 0]] * 3
    assert HALO.pair_traffic(4).tolist() == [[3, 1, 0, 2], [2, 3, 1, 0], [0, 2, 3, 1], [1, 0, 2, 3]]
    assert ALL_TO_ALL.pair_traffic(2).tolist() == [[1, 1], [1, 1]]
    for wrong, problem in (
        (lambda ranks, root: [[1]], r"shape \(1, 1\); expected 3 rows of 3 numbers"),
        (lambda ranks, root: -np.ones((3, 3)), "traffic from rank 0 to rank 0 is -1"),
        (lambda ranks, root: np.eye(3), "all off-diagonal traffic is 0"),
    ):
        with pytest.raises(UnsupportedError, match=problem):
            replace(SCATTER, traffic=wrong).pair_traffic(3, 0)


def test_exceptions_of_a_traffic_function_are_told_as_its_own() -> None:
    """The error names the collective; a function that fails for the compared ranks has no reverse."""

    def refuses(ranks: int) -> object:
        raise ValueError("no")

    def wants_four(ranks: int, root: int) -> object:
        assert ranks == 4
        return from_root(ranks, root)

    broken = replace(SHIFT, name="broken", traffic=refuses)
    four = replace(SCATTER, name="four", traffic=wants_four)
    problem = r"^the traffic function of 'broken' raised ValueError: no$"
    with registered(broken, four, SCATTER, GATHER):
        for ask in (lambda: broken.bus_factor(4), lambda: broken.root_of(np.ones((3, 3), dtype=np.int64))):
            with pytest.raises(UnsupportedError, match=problem) as told:
                ask()
            assert isinstance(told.value.__cause__, ValueError)
        with pytest.raises(UnsupportedError, match=r"^the traffic function of 'four' raised AssertionError"):
            four.pair_traffic(5, 0)
        assert (SCATTER.transposed, GATHER.transposed) == (GATHER, SCATTER)
        with pytest.raises(UnsupportedError, match="four reversed is no collective"):
            assert four.transposed


def test_the_traffic_of_no_root_is_refused() -> None:
    """One wrong entry among 256 ranks is found, and exact values of any type are compared."""
    scatter = replace(SCATTER, traffic=lambda ranks, root: (np.arange(ranks) == root)[:, None] * np.ones(ranks, int))
    wrong = scatter.pair_traffic(256, 3)
    wrong[3, 5] = 2
    with pytest.raises(UnsupportedError, match="whichever rank is the root"):
        scatter.root_of(wrong)
    for values in ([[Fraction(1, 3)] * 3] * 3, [["0.5"] * 3] * 3, np.full((3, 3), 0.1)):
        assert replace(SHIFT, traffic=lambda _, values=values: values).root_of(np.ones((3, 3), dtype=np.int64)) is None


def test_the_root_follows_from_the_traffic() -> None:
    """Every root is found, and traffic of another collective or unit has none."""
    for root in range(5):
        assert SCATTER.root_of(SCATTER.pair_traffic(5, root)) == root
        assert GATHER.root_of(GATHER.pair_traffic(5, root)) == root
    assert HALO.root_of(HALO.pair_traffic(5)) is None
    for wrong in (GATHER.pair_traffic(5, 2), 2 * SCATTER.pair_traffic(5, 2), np.ones((5, 5), dtype=np.int64)):
        with pytest.raises(CertificateError, match=r"not that of the collective 'scatter', whichever rank .*$"):
            SCATTER.root_of(wrong, error=CertificateError)
        with pytest.raises(UnsupportedError, match=r"the traffic is not that of the collective 'halo'$"):
            HALO.root_of(wrong)


def test_registered_partners_are_each_others_reverse() -> None:
    """Traffic decides: a shift has no reverse until the shift back is registered."""
    back = replace(SHIFT, name="shift_back", traffic=lambda ranks: to_next(ranks).T)
    both = replace(SHIFT, name="both_ways", traffic=lambda ranks: to_next(ranks) + to_next(ranks).T)
    with registered(SCATTER, GATHER, SHIFT, both):
        assert (SCATTER.transposed, GATHER.transposed, both.transposed) == (GATHER, SCATTER, both)
        with pytest.raises(UnsupportedError, match="shift reversed is no collective"):
            assert SHIFT.transposed
        with registered(back):
            assert (SHIFT.transposed, back.transposed) == (back, SHIFT)
        assert (ALL_TO_ALL.transposed, ALL_TO_ALLV.transposed) == (ALL_TO_ALL, ALL_TO_ALLV)


def test_bus_factors_are_those_of_the_root() -> None:
    """Traffic of a collective's own may depend on the root, which is then required."""

    def more_from_root(ranks: int, root: int) -> object:
        traffic = np.roll(np.eye(ranks, dtype=int), 1, axis=1)
        traffic[root] += 5 * root
        traffic[root, root] = 0
        return traffic

    uneven = replace(SCATTER, name="uneven", traffic=more_from_root)
    assert [uneven.bus_factor(4, root) for root in (0, 1)] == [1, Fraction(16 * 4, 19)]
    with registered(SCATTER):
        for ranks, root, problem in (
            (4, None, "the root of scatter is None; expected a whole number from 0 to 3"),
            (4, 4, "the root of scatter is 4"),
            (0, 0, "num_ranks is 0; expected a whole number of at least 1"),
            (-1, 0, "num_ranks is -1"),
            ("a", 0, "num_ranks is 'a'"),
        ):
            with pytest.raises(UnsupportedError, match=problem):
                as_collective("scatter").bus_factor(ranks, root)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="num_ranks is 0"):
        as_collective("allgather").bus_factor(0)


def test_copies_of_a_registered_collective_are_the_same_object() -> None:
    """A copy is the same object while the collective is registered; later it has the same contents."""
    with registered(SCATTER):
        assert copy.deepcopy(SCATTER) is pickle.loads(pickle.dumps(SCATTER)) is SCATTER
        stored = pickle.dumps(SCATTER)
        assert pickle.loads(pickle.dumps(replace(SCATTER, traffic=to_next))).traffic is to_next
    again = pickle.loads(stored)
    assert again is not SCATTER
    assert again == SCATTER
    assert again.traffic is from_root


def test_a_bound_is_for_the_traffic_of_its_collective() -> None:
    """Weights are those of some root, or of the only traffic that there is."""
    network = complete(3, bandwidth=10)
    rest = Cut(frozenset({"gpu1"}))
    with registered(SCATTER, SHIFT):
        parts = tuple(SCATTER.pair_traffic(3, 1).ravel().tolist())
        bound = Bound.from_witness(network, "scatter", rest, parts)
        bound.verify()
        assert (bound.inverse_rate, bound.total_weight, bound.busbw) == (Fraction(2, 20), 1, 20)
        for collective, weights in (
            ("scatter", ()),
            ("scatter", tuple(2 * part for part in parts)),
            ("scatter", (1, 1, 0, 0, 0, 0, 0, 0, 0)),
            ("shift", parts),
            ("shift", (2**70, *parts[1:])),
        ):
            with pytest.raises(CertificateError, match=f"the traffic is not that of the collective '{collective}'"):
                Bound.from_witness(network, collective, rest, weights)  # type: ignore[arg-type]
        with pytest.raises(CertificateError, match="not one non-negative number per pair of ranks"):
            Bound.from_witness(network, SCATTER, rest, parts[1:])
    with pytest.raises(CertificateError, match="there is no bound for the collective 'scatter'"):
        bound.verify()
