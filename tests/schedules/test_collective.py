"""Collectives: their table, written by hand, and the one place where names are looked up."""

import copy
import pickle
from fractions import Fraction

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
    Collective,
    bus_factor,
)
from collopt.schedules.traffic.collective import as_collective, collective_or_given

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
    assert list(COLLECTIVES) == list(TABLE)
    for name, expected in TABLE.items():
        each = COLLECTIVES[name]
        found = (
            each.pattern,
            each.phases,
            each.input,
            each.output,
            each.in_pairs,
            each.has_one_root,
            each.is_sharded,
            each.has_two_phases,
            each.direction,
            each.reduces,
            each.takes_traffic,
        )
        assert (each.name, str(each), f"{each}", repr(each)) == (name, name, name, f"<Collective {name}>")
        assert found == expected, name


def test_names_of_other_libraries() -> None:
    """As in nccl-tests, NCCL's tuner plugin and MSCCL++."""
    assert [each.nccl_name for each in COLLECTIVES.values()] == [
        "allgather",
        "reducescatter",
        "allreduce",
        "broadcast",
        "reduce",
        "alltoall",
        "alltoallv",
    ]


def test_collectives_by_kind() -> None:
    """Those of trees and those of pairs are all, in their order."""
    assert TREE_COLLECTIVES == (ALLGATHER, REDUCE_SCATTER, ALLREDUCE, BROADCAST, REDUCE)
    assert PAIR_COLLECTIVES == (ALL_TO_ALL, ALL_TO_ALLV)
    assert tuple(COLLECTIVES.values()) == TREE_COLLECTIVES + PAIR_COLLECTIVES


def test_transposed_partners() -> None:
    """Reversing all transfers turns broadcasts into reductions; twice, it changes nothing."""
    partners = {str(each): str(each.transposed) for each in COLLECTIVES.values()}
    assert partners == {
        "allgather": "reduce_scatter",
        "reduce_scatter": "allgather",
        "allreduce": "allreduce",
        "broadcast": "reduce",
        "reduce": "broadcast",
        "all_to_all": "all_to_all",
        "all_to_allv": "all_to_allv",
    }
    assert all(each.transposed.transposed is each for each in COLLECTIVES.values())
    gather = Collective("gather", "one root", (), "shard", "all")
    with pytest.raises(UnsupportedError, match="gather reversed is no collective that collopt knows"):
        assert gather.transposed


def test_bus_factors_of_nccl_tests() -> None:
    """As its PERFORMANCE.md has them for 4 ranks; of 1 rank, only rooted ones move data."""
    four = {name: each.bus_factor(4) for name, each in COLLECTIVES.items()}
    assert four == {
        "allgather": Fraction(3, 4),
        "reduce_scatter": Fraction(3, 4),
        "allreduce": Fraction(3, 2),
        "broadcast": 1,
        "reduce": 1,
        "all_to_all": Fraction(3, 4),
        "all_to_allv": Fraction(3, 4),
    }
    assert {name: bus_factor(name, 4) for name in COLLECTIVES} == four  # type: ignore[arg-type]
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


def test_lookup_among_some() -> None:
    """Others are refused in the words of whoever asks, whether by name or not."""
    assert as_collective("reduce", TREE_COLLECTIVES, "trees do not carry out") is REDUCE
    expected = r"^trees do not carry out the collective {}; expected one of allgather, .*, reduce{}$"
    for value, text, hint in (
        ("all_to_all", "'all_to_all'", ""),
        (ALL_TO_ALL, "'all_to_all'", ""),
        ("reduce-scatter", "'reduce-scatter'", r": did you mean 'reduce_scatter'\?"),
        (7, "7", ""),
    ):
        with pytest.raises(UnsupportedError, match=expected.format(text, hint)):
            as_collective(value, TREE_COLLECTIVES, "trees do not carry out")
    with pytest.raises(CertificateError, match="no bound covers the collective 'scan'"):
        as_collective("scan", TREE_COLLECTIVES, "no bound covers", error=CertificateError)


def test_what_is_no_name_is_left_to_later_checks() -> None:
    """Records whose contents are verified take anything, and say later what is wrong."""
    assert collective_or_given("allgather") is ALLGATHER
    assert collective_or_given(ALLGATHER) is ALLGATHER
    assert collective_or_given("gossip") == "gossip"
    assert collective_or_given([]) == []


def test_copies_are_the_same_object() -> None:
    """Also in another process, so that `is` compares; a collective of one's own keeps its contents."""
    for each in COLLECTIVES.values():
        assert copy.deepcopy(each) is each
        assert pickle.loads(pickle.dumps(each)) is each
    mine = Collective("scatter", "one root", ("broadcast",), "all", "shard")
    again = pickle.loads(pickle.dumps(mine))
    assert again == mine
    assert hash(again) == hash(mine)
    assert len({*COLLECTIVES.values(), *map(copy.copy, COLLECTIVES.values()), mine, again}) == 8
