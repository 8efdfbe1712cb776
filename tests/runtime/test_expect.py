"""Expected bandwidths: bound, NCCL's model and measurements of such machines, against tables left out."""

from __future__ import annotations

import pytest

import collopt
from cli_calls import Cli
from collopt.runtime import measurements, network
from collopt.runtime.health.expect import measured_at, model_shares
from collopt.runtime.health.measurements import usual_rows

HELD_OUT = ("azure-nd_h200_v5", "stas-a100-8", "aws-p5-16-eks", "coreweave-gb200-72", "stas-h200-ramp")
"""Some of all tables, each left out in turn; docs/reference/measurements.md has the result for all."""


def test_an_expectation_is_what_tables_and_bound_say() -> None:
    """At a size that all tables have, the measurements are their rows."""
    expectation = collopt.expect("dgx-a100", sizes=["1G", 2**40])
    expectation.bound.verify()
    row, beyond = expectation.sizes
    rows = usual_rows()
    measured = rows[(rows.machine == "8 x A100") & (rows.collective == "allreduce") & (rows.size_bytes == 2**30)]
    assert set(measured.table) <= set(row.tables)
    assert row.low == pytest.approx(measured.busbw_gbps.min())
    assert row.bound == float(collopt.bound("dgx-a100", "allreduce").busbw) == 300
    assert row.threshold < row.low < row.nccl < row.normal_high <= row.bound
    assert (beyond.low, beyond.rows, beyond.tables) == (None, 0, ())
    assert beyond.threshold is not None
    assert expectation.to_frame()["size"].tolist() == [2**30, 2**40]


def test_curves_are_interpolated_inside_their_sizes() -> None:
    """Halfway between 1M and 4M lies the geometric mean; 2G of a curve up to 1G is unknown."""
    rows = measurements()
    curve = rows[rows.table == "stas-a100-8"]
    ends = [curve[curve.size_bytes == size].busbw_gbps.iloc[0] for size in (2**20, 2**22)]
    (value,) = measured_at(curve[curve.size_bytes.isin([2**20, 2**22])], 2**21).values()
    assert value == pytest.approx((ends[0] * ends[1]) ** 0.5)
    assert measured_at(curve[curve.size_bytes <= 2**30], 2**31) == {}


def test_forced_algorithms_and_other_libraries_are_not_usual() -> None:
    """They say what hardware can do, and not what NCCL does."""
    tables = set(usual_rows().table)
    assert {"mscclpp-ndmv4", "nccl-tests-232"}.isdisjoint(tables)
    assert not usual_rows().algorithm.str.contains("forced", na=False).any()


@pytest.mark.parametrize("table", HELD_OUT)
def test_a_table_left_out_lies_in_the_range_of_the_others(table: str) -> None:
    """All of its rows, here."""
    rows = usual_rows()
    for _, part in rows[rows.table == table].groupby(["machine", "collective"]):
        sizes = sorted({int(size) for size in part.size_bytes})
        expectation = collopt.expect(network(part.iloc[0]), part.collective.iloc[0], sizes=sizes, without=[table])
        ranges = {row.size: row for row in expectation.sizes}
        for row in part.itertuples():
            normal = ranges[int(row.size_bytes)]
            assert table not in normal.tables
            assert normal.threshold <= row.busbw_gbps <= normal.normal_high, row


def test_shares_of_the_model_come_from_the_other_tables() -> None:
    """A table that is left out leaves them too."""
    assert model_shares() != model_shares(("stas-b200-32",))
    assert all(0 < low < high for low, high in model_shares().values())


def test_a_machine_like_no_other_has_a_model() -> None:
    """Nothing was measured on three boxes of H100; all-to-alls have no model either."""
    (row,) = collopt.expect(collopt.topologies.dgx_h100(3), sizes=["1G"]).sizes
    assert (row.rows, row.algorithm) == (0, "ring Simple")
    assert "NCCL's model" in row.reason
    (row,) = collopt.expect(collopt.topologies.dgx_h100(3), "all_to_all", sizes=["1G"]).sizes
    assert (row.nccl, row.threshold, row.normal_high) == (None, None, None)


def test_the_command_prints_the_same(cli: Cli) -> None:
    """As a table, as JSON and as CSV."""
    expectation = collopt.expect("dgx-h100", sizes=["1G"])
    data = cli("expect", "dgx-h100", "--size", "1G", "--json").data
    assert data["machines"] == list(expectation.machines)
    assert data["sizes"][0]["low"] == expectation.sizes[0].low
    answer = cli("expect", "dgx-h100", "allreduce", "--size", "1G")
    assert "8 x H100; 8 x H200" in answer.out
    assert answer.out.splitlines()[-1].split()[:4] == ["1073741824", "473", "nvls", "Simple"]
    assert cli("expect", "dgx-h100", "--size", "1G", "--csv").out.startswith("size,bound,nccl,algorithm,low,high,")
