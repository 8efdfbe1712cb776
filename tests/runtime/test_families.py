"""Folders of files of which a runtime picks the fastest for every size."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import TopologyError, UnsupportedError
from collopt.planners import Plan
from collopt.runtime import lint_family, write_family
from collopt.runtime.mscclpp.export import as_executed
from collopt.runtime.nccl.families import fastest_windows, format_of
from collopt.topologies import dgx1_v100, dgx_h100, ring, torus
from sample_sizes import examples

BOX = dgx1_v100()
RUNTIMES = ("msccl", "msccl-executor-nccl", "rccl", "mscclpp")


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    """One with much bandwidth, one with few steps, and one that is worse than both."""
    return [collopt.plan(BOX, "allgather", planner=name) for name in ("forestcoll", "bfb", "ring")]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_size_picks_the_file_of_the_fastest_plan(plans: list[Plan], tmp_path: Path, runtime: str) -> None:
    """And none is left out, to the byte: latencies of 1.4 and 2.1 µs, 400/3 and 1200/7 GB/s meet at 420 kB."""
    folder = tmp_path / "family"
    frame = write_family(plans, folder, sizes=("8K", "1M"), runtime=runtime, format=format_of(runtime))
    assert list(frame[["planner", "min_bytes", "max_bytes"]].itertuples(index=False, name=None)) == [
        ("bfb", 8192, 419_999),
        ("forestcoll", 420_000, 2**20),
    ]
    assert sorted(map(str, folder.iterdir())) == list(frame["file"])
    report = lint_family([folder], runtime)
    assert all(each.runs for each in report.reports)
    first, second = frame["file"]
    for size, path in (
        (8191, ""),
        (8192, first),
        (419_999, first),
        (420_000, second),
        (2**20, second),
        (2**20 + 1, ""),
    ):
        assert report.path_for("allgather", 8, size) == path
    assert list(tmp_path.iterdir()) == [folder]


def test_the_table_says_how_long_both_ends_take(plans: list[Plan], tmp_path: Path) -> None:
    """As the plans estimate, and how fast each is without latency."""
    frame = write_family(plans, tmp_path, sizes=("1K", "1M"), runtime="rccl")
    for row in frame.to_dict("records"):
        plan = next(each for each in plans if each.planner == row["planner"])
        assert (row["us_at_min"], row["us_at_max"]) == (
            plan.estimate(row["min_bytes"]),
            plan.estimate(row["max_bytes"]),
        )
        assert row["algbw"] == float(plan.algbw)


@given(st.integers(0, 2**21), st.integers(0, 2**21))
@settings(max_examples=examples(40))
def test_windows_join_and_belong_to_the_fastest(plans: list[Plan], one: int, other: int) -> None:
    """Whatever the first and the last size."""
    first, last = sorted((one, other))
    windows = fastest_windows(plans, first, last)
    assert (windows[0].first, windows[-1].last) == (first, last)
    for before, after in pairwise(windows):
        assert before.last + 1 == after.first
        assert before.plan is not after.plan
    for window in windows:
        for size in (window.first, (window.first + window.last) // 2, window.last):
            assert window.plan.estimate(max(size, 1)) == min(plan.estimate(max(size, 1)) for plan in plans)


def test_of_equally_fast_plans_the_first_is_taken(plans: list[Plan]) -> None:
    """Everywhere."""
    again = collopt.plan(BOX, "allgather", planner="forestcoll")
    for given_plans in ([plans[0], again], [again, plans[0]]):
        (window,) = fastest_windows(given_plans, 1, 2**30)
        assert window.plan is given_plans[0]


@pytest.mark.parametrize(
    ("collective", "planners"), [("reduce_scatter", ("auto", "bfb")), ("all_to_all", ("auto", "shortest-paths"))]
)
@pytest.mark.parametrize("runtime", ["rccl", "mscclpp"])
def test_other_collectives(tmp_path: Path, collective: str, planners: tuple[str, ...], runtime: str) -> None:
    """Their sizes are those that the runtimes compare with the window, so nothing is multiplied."""
    made = [collopt.plan(ring(4, bandwidth=25, latency=1), collective, planner=name) for name in planners]
    frame = write_family(made, tmp_path, sizes=("16K", "1M"), runtime=runtime, format=format_of(runtime))
    report = lint_family([tmp_path], runtime)
    assert {span.path for span in report.spans if span.first < 2**20 and span.end > 2**14} == set(frame["file"])


def test_estimates_are_of_what_ranks_add_up_in_place_of_switches(tmp_path: Path) -> None:
    """The executor loads no sum of a box into one GPU's memory, so across boxes a plan without switches is faster."""
    network = dgx_h100(2)
    by_switches, by_ranks = (collopt.plan(network, "allreduce", in_network=on) for on in (True, False))
    frame = write_family([by_switches, by_ranks], tmp_path / "new", sizes=("64M", "64M"), format="mscclpp-json")
    assert by_switches.algbw == 400
    assert frame["algbw"].tolist() == [float(by_ranks.algbw)]
    alone = write_family([by_switches], tmp_path / "alone", sizes=("64M", "64M"), format="mscclpp-json")
    run = as_executed(by_switches)
    run.verify()
    assert alone["algbw"].tolist() == [float(run.algbw)]
    assert alone["us_at_max"].tolist() == [run.estimate("64M")]
    assert as_executed(by_switches, version="0.9.0").schedule.forests[1].switches.size == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": ("1M", "1K")}, "expected the smallest first"),
        ({"sizes": "1K-1M"}, "expected the smallest and the largest"),
        ({"sizes": ("1K", "much")}, "size 'much' is not understood"),
        ({"sizes": (-1, 5)}, "size -1 is not understood"),
        ({"sizes": (0, "0")}, "the largest size '0' is not understood"),
        ({"sizes": (0, 10**5000)}, r"is too large; expected less than 10\^18 bytes"),
        ({"sizes": (1, 10**18)}, r"size 1000000000000000000 is too large; expected less than 10\^18 bytes"),
        ({"runtime": "nccl"}, "runtime is 'nccl'; expected one of"),
        ({"format": "xml"}, "format is 'xml'; expected one of msccl-xml, mscclpp-json"),
        ({"format": "mscclpp-json", "runtime": "rccl"}, "runtime is 'rccl', which does not load mscclpp-json"),
        ({"max_bytes": 5}, "max_bytes is 5; leave it out"),
        ({"color": 1}, "color"),
        ({"plans": []}, "there is no plan"),
        ({"plans": ["plan"]}, "one of the plans is 'plan'; expected a Plan"),
        ({"format": "mscclpp-json", "sizes": (1, "1M")}, "the plan by 'bfb' cannot be written for 1 to "),
        ({"format": "mscclpp-json", "protocol": "LL"}, "cannot be used with these options: .*protocol"),
        ({"max_thread_blocks": 1}, "the plan by 'bfb' cannot be written"),
    ],
)
def test_what_cannot_be_leaves_nothing_behind(
    plans: list[Plan], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """One sentence, and no folder."""
    arguments: dict[str, Any] = {"plans": plans, "sizes": ("1K", "1M")} | changes
    with pytest.raises(UnsupportedError, match=message):
        write_family(arguments.pop("plans"), tmp_path / "family", **arguments)
    assert not list(tmp_path.iterdir())


def test_plans_for_different_calls_make_no_family(plans: list[Plan], tmp_path: Path) -> None:
    """Networks, collectives and roots."""
    with pytest.raises(TopologyError, match="the plans are for different networks"):
        write_family([plans[0], collopt.plan(torus(2, 4, bandwidth=5), "allgather")], tmp_path, sizes=(1, 2))
    with pytest.raises(UnsupportedError, match="the plans are for different collectives"):
        write_family([plans[0], collopt.plan(BOX, "allreduce")], tmp_path, sizes=(1, 2))
    rooted = [collopt.plan(BOX, "broadcast", root=root) for root in (0, 1)]
    with pytest.raises(UnsupportedError, match="the plans are for different roots"):
        write_family(rooted, tmp_path, sizes=(1, 2))


def test_a_folder_with_something_in_it_is_left_alone(plans: list[Plan], tmp_path: Path) -> None:
    """The runtimes load all files of a folder, so an older family would be among them."""
    write_family(plans, tmp_path / "family", sizes=(1, "1M"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "family").iterdir()}
    with pytest.raises(FileExistsError, match="is not empty"):
        write_family(plans, tmp_path / "family", sizes=(1, "1M"))
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        write_family(plans, tmp_path / "family" / "00-allgather-bfb.xml", sizes=(1, "1M"))
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_family(plans, tmp_path / "no" / "family", sizes=(1, "1M"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "family").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["family"]


def test_nothing_stays_of_files_that_cannot_be_written(
    plans: list[Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was not there is not there afterwards."""

    def fail(self: Path, target: Path) -> Path:
        raise OSError(errno.EIO, "Input/output error", str(self))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write_family(plans, tmp_path / "family", sizes=("8K", "1M"))
    assert not list(tmp_path.iterdir())


def test_what_others_put_into_the_folder_meanwhile_is_theirs(plans: list[Plan], tmp_path: Path) -> None:
    """And there is no family among it."""

    class Slow(Plan):
        """Takes so long to write that somebody else is faster."""

        def export(self, format: str, path: str | os.PathLike[str], **options: Any) -> None:  # noqa: A002
            super().export(format, path, **options)
            (tmp_path / "theirs.xml").write_text("theirs")

    slow = Slow(*(getattr(plans[0], name) for name in Plan.__dataclass_fields__))
    with pytest.raises(OSError, match="is not empty"):
        write_family([slow], tmp_path, sizes=("8K", "1M"))
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.xml"]


def test_a_family_that_the_runtime_would_not_load_is_not_written(tmp_path: Path, plans: list[Plan]) -> None:
    """The first runtime takes four files; here are five windows of two plans in turn."""
    trees, steps = plans[:2]

    class Turns(Plan):
        """The fastest for sizes with an even number of binary digits."""

        def estimate(self, size: int | str, slices: int | None = None) -> float:
            return float(int(size).bit_length() % 2)

    odd = Turns(*(getattr(steps, name) for name in Plan.__dataclass_fields__))

    class Constant(Turns):
        """Between the two times of the other."""

        def estimate(self, size: int | str, slices: int | None = None) -> float:
            return 0.5

    even = Constant(*(getattr(trees, name) for name in Plan.__dataclass_fields__))
    assert len(fastest_windows([odd, even], 16, 511)) == 5
    with pytest.raises(UnsupportedError, match="the family would be ignored: there are 5 files; msccl loads 4"):
        write_family([odd, even], tmp_path / "family", sizes=(16, 511), runtime="msccl")
    assert not list(tmp_path.iterdir())
    assert len(write_family([odd, even], tmp_path / "family", sizes=(16, 511))) == 5
