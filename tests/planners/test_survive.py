"""What failures cost, and folders of plans to pick from."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import collopt
from collopt.errors import ColloptError, FileFormatError, NoAnswerError, TopologyError, UnsupportedError
from collopt.planners import PlanFolder, survive
from collopt.topologies import Topology, dgx_a100, dgx_h100, failure_cases, hypercube, mi250, ring, torus
from collopt.topologies.symmetry.failure_orbits import Symmetries


def without_times(frame: pd.DataFrame) -> pd.DataFrame:
    """All columns that must not depend on who planned."""
    return frame.drop(columns=["seconds", "file"])


def test_each_case_has_its_loss_beside_that_of_rings(tmp_path: Path) -> None:
    """A lost NIC leaves 300 of 325 GB/s to a GPU, which receives 15 of 16 shards: 1/13 is lost."""
    frame = survive(dgx_a100(boxes=2), "allgather", failures=["nic", "switch"], baselines=["ring"], jobs=1)
    assert frame["failure"].tolist() == ["intact", "box0/nic0", "box0/nvswitch", "ib"]
    assert frame["loss_exact"].tolist()[:2] == [0, Fraction(1, 13)]
    assert frame["loss_ring"][1] > 0
    assert (frame["gap_exact"][:3] == 0).all()
    assert frame["status"].tolist() == ["ok", "ok", "ok", "disconnected"]
    assert "there is no path from rank" in frame["reason"][3]
    assert frame["count"].tolist() == [1, 16, 2, 1]


@pytest.mark.parametrize(
    ("network", "collective", "options"),
    [
        (dgx_h100(boxes=2), "allreduce", {}),
        (mi250(), "reduce_scatter", {"failures": ["gpu"]}),
        (torus(3, 3), "allreduce", {}),
        (torus(3, 3), "all_to_all", {}),
        (ring(6), "broadcast", {"root": 2}),
        (hypercube(3), "allgather", {"planner": "symmetric", "failures": []}),
        (dgx_a100(boxes=2), "allgather", {"failures": [], "derate": ["1/3"], "pairs": ["nic+nic"]}),
    ],
)
def test_every_member_of_a_case_is_picked_with_a_plan_as_good(
    tmp_path: Path, network: Topology, collective: str, options: dict[str, Any]
) -> None:
    """Carried over, it verifies on what its own failure leaves; a few of each case are tried."""
    frame = survive(network, collective, folder=tmp_path, baselines=[], jobs=1, **options)
    folder = PlanFolder(tmp_path)
    rates = {row["failure"]: row["algbw_exact"] for row in frame.to_dict("records") if row["status"] == "ok"}
    chosen = {name: options[name] for name in ("derate", "pairs") if name in options}
    root = options.get("root")
    known = Symmetries(network, fixed=root)
    for case in failure_cases(network, options.get("failures", ["link", "gpu"]), symmetries=known, **chosen):
        for member in case.members[:: max(1, len(case.members) // 5)]:
            if str(case.failure) in rates:
                plan = folder.pick(str(member))
                plan.verify(member.applied(network))
                assert plan.algbw == rates[str(case.failure)]
    assert len(rates) > 1 or not chosen


def test_a_run_resumes_where_it_was_cut_off(tmp_path: Path) -> None:
    """What the folder has is not planned again, also when more is asked for; another request is refused."""
    box = dgx_a100(boxes=2)
    first = survive(box, "allgather", failures=["nic"], folder=tmp_path, baselines=["ring"], jobs=1)
    written = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("allgather*")}
    both = survive(box, "allgather", failures=["nic", "gpu"], folder=tmp_path, baselines=["ring"], jobs=1)
    assert both[:2].equals(first)
    assert len(both) == 3
    assert all((tmp_path / name).stat().st_mtime_ns == when for name, when in written.items())
    for other, options in ((dgx_a100(boxes=3), {}), (box, {"planner": "ring"})):
        with pytest.raises(UnsupportedError, match="give another folder"):
            survive(other, "allgather", folder=tmp_path, **options)  # type: ignore[arg-type]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes").write_text("")
    with pytest.raises(UnsupportedError, match="holds other files"):
        survive(box, "allgather", folder=tmp_path / "new")


def test_a_run_that_compares_with_more_replaces_its_cases(tmp_path: Path) -> None:
    """The folder keeps one case and one file for each failure, and what it was compared with before."""
    options: dict[str, Any] = {"failures": ["link"], "folder": tmp_path, "jobs": 1}
    first = survive(ring(5), "allgather", baselines=[], **options)
    names = {path.name for path in tmp_path.iterdir()}
    for baseline in ("ring", "double-binary-tree", "ring"):
        frame = survive(ring(5), "allgather", baselines=[baseline], **options)
        assert frame["algbw_exact"].equals(first["algbw_exact"])
        assert {path.name for path in tmp_path.iterdir()} == names
    assert [set(case.baselines) for case in PlanFolder(tmp_path).cases] == [{"ring", "double-binary-tree"}] * 2


@pytest.mark.parametrize("lost", ["index.json", "allgather-1.json"])
def test_lost_files_are_written_again(tmp_path: Path, lost: str) -> None:
    """A run that was killed before its first case has no cases, or only the topology."""
    options: dict[str, Any] = {"failures": ["link"], "baselines": [], "folder": tmp_path, "jobs": 1}
    with Dying(1) as executor:
        executor.submitted = 2
        with pytest.raises(NoAnswerError):
            survive(ring(5), "allgather", **options, executor=executor)
    assert {path.name for path in tmp_path.iterdir()} == {"topology.json", "index.json"}
    with pytest.raises(UnsupportedError, match="no collective is named"):
        PlanFolder(tmp_path).pick()
    (tmp_path / ".allgather-0.json.x.tmp").touch()
    if lost == "index.json":
        (tmp_path / lost).unlink()
    first = survive(ring(5), "allgather", **options)
    if lost != "index.json":
        (tmp_path / lost).unlink()
        assert survive(ring(5), "allgather", **options)["file"].equals(first["file"])
    assert PlanFolder(tmp_path).pick("gpu2--gpu3").algbw == first["algbw_exact"][1]


def test_plans_in_steps_are_planned_anew(tmp_path: Path) -> None:
    """They cannot be carried over, but every link can be picked, by the planner of the folder."""
    network = torus(3, 3)
    survive(network, "allgather", folder=tmp_path, failures=["link"], planner="bfb", baselines=[], jobs=1)
    plan = PlanFolder(tmp_path).pick("gpu2.1--gpu2.2")
    plan.verify(network.without_link("gpu2.1", "gpu2.2"))
    assert plan.planner == "bfb"


class Dying(ThreadPoolExecutor):
    """An executor of which only the first two tasks come to an end."""

    submitted = 0

    def submit(self, call: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        """Run the first tasks, and kill the process of all others."""
        self.submitted += 1
        if self.submitted <= 2:
            return super().submit(call, *arguments, **options)
        failed: Future[Any] = Future()
        super().submit(lambda: failed.set_exception(OSError("the machine is gone")))
        return failed


def test_what_was_finished_outlives_the_executor(tmp_path: Path) -> None:
    """The error says how to go on, and going on plans only what is missing."""
    with Dying(1) as executor, pytest.raises(NoAnswerError, match=r"after 2 of 3 cases .*run again to resume"):
        survive(ring(4), "allgather", folder=tmp_path, executor=executor)
    assert len(PlanFolder(tmp_path).cases) == 2
    assert survive(ring(4), "allgather", folder=tmp_path, jobs=1)["status"].tolist() == ["ok"] * 3
    with Dying(1) as executor, pytest.raises(NoAnswerError, match="give a folder"):
        survive(ring(4), "allgather", executor=executor)


def test_a_script_whose_processes_run_it_again_is_told_how_to_start_them() -> None:
    """Python breaks the pool then, before any answer."""
    executor = ThreadPoolExecutor(1, initializer=lambda: 1 // 0)  # Breaks the pool
    with executor, pytest.raises(NoAnswerError, match=r"after 0 of 3 cases .* __name__ == .*jobs=1"):
        survive(ring(4), "allgather", executor=executor)


def test_a_script_without_a_guard_starts_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would run it again: a few cases are planned in its own process, and more or `jobs` are refused."""
    (script := tmp_path / "script.py").write_text("print(__name__, survive(ring(4), 'allgather'))\n")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(script)))
    assert survive(ring(4), "allgather", baselines=[])["status"].tolist() == ["ok"] * 3
    for network, jobs in ((ring(4), 2), (dgx_a100(boxes=2), None)):
        kinds = ["link"] if jobs is None else ["gpu", "link"]
        with pytest.raises(UnsupportedError, match=r'if __name__ == "__main__"'):
            survive(network, ["allgather", "allreduce", "reduce_scatter", "all_to_all"], failures=kinds, jobs=jobs)


@pytest.mark.slow
def test_a_killed_process_ends_in_one_error(tmp_path: Path) -> None:
    """A real one, of a pool of processes."""
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        executor.submit(os._exit, 1)
        with pytest.raises(NoAnswerError, match=r"the executor ended after 0 of 3 cases"):
            survive(ring(4), "allgather", folder=tmp_path, executor=executor)


@pytest.mark.slow
def test_processes_and_dask_find_the_same() -> None:
    """A scheduler and two workers on this machine, each a process of its own."""
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    request: dict[str, Any] = {"failures": ["nic", "gpu"], "baselines": ["double-binary-tree"]}
    here = survive(dgx_a100(boxes=2), ["allgather", "allreduce"], jobs=1, **request)
    there = survive(dgx_a100(boxes=2), ["allgather", "allreduce"], jobs=2, **request)
    pd.testing.assert_frame_equal(without_times(here), without_times(there))
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        spread = survive(dgx_a100(boxes=2), ["allgather", "allreduce"], executor=executor, **request)
    pd.testing.assert_frame_equal(without_times(here), without_times(spread))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with plans for two collectives."""
    path = tmp_path_factory.mktemp("plans")
    kinds = ["nic", "switch"]
    survive(dgx_a100(boxes=2), ["allgather", "allreduce"], failures=kinds, baselines=[], folder=path, jobs=1)
    return path


def test_the_intact_plan_and_one_of_several_collectives_are_picked(folder: Path) -> None:
    """Names of nodes may be short where they are clear."""
    plans = PlanFolder(folder)
    assert plans.collectives == ("allgather", "allreduce")
    for intact in ((), "", "intact"):
        assert plans.pick(intact, collective="allgather").topology == dgx_a100(boxes=2)
    assert plans.pick(["box1/nic7"], collective=collopt.schedules.ALLREDUCE).topology.num_links == 92
    assert plans.pick("box1/nic7", "allreduce") is plans.pick("box1/nic7", "allreduce")


@pytest.mark.parametrize(
    ("failures", "collective", "error", "message"),
    [
        ("ib", "allgather", NoAnswerError, "without ib: there is no path"),
        ("box0/nic0 + box1/nic0", "allgather", NoAnswerError, "--pairs 'box0/nic0 \\+ box1/nic0'"),
        ("nic0", "allgather", TopologyError, "ambiguous"),
        (
            "box0/nic0",
            None,
            UnsupportedError,
            "no collective is named; expected one of the folder's, allgather, allreduce",
        ),
        ("box0/nic0", "broadcast", UnsupportedError, "expected one of the folder's"),
    ],
)
def test_what_was_not_planned_is_refused(
    folder: Path, failures: str, collective: str | None, error: type[ColloptError], message: str
) -> None:
    """In one sentence."""
    with pytest.raises(error, match=message):
        PlanFolder(folder).pick(failures, collective)


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ("index", {"version": 2}, "this release reads version 1"),
        ("index", {"topology_digest": "0"}, "the folder was changed"),
        ("index", {"num_generators": 1}, "generators"),
        ("index", {"cases": [{}]}, "is missing"),
        ("index", {"extra": 1}, "extra"),
        ("index", {"options": {"planner": "no", "root": None}}, "'no'"),
        ("index", {"options": {"planner": "auto", "root": "no"}}, "root 'no'"),
        *(("case", {"algbw": text}, "algbw") for text in ("1/0", "0", "1e300000000", "nan", 3, None)),
        ("case", {"baselines": {"ring": "0"}}, "baselines"),
        ("case", {"collective": "no"}, "'no'"),
        ("case", {"failure": [{"nodes": []}]}, "nodes"),
        ("case", {"failure": [{"nodes": ["x"]}]}, "is not a node"),
        ("case", {"failure": [{"nodes": ["box0/nic0", "box1/nic0"]}]}, "no link between"),
        ("case", {"failure": [{"nodes": ["box0/nic0", "ib"], "factor": "2"}]}, "less than 1"),
        ("case", {"failure": []}, "is there twice"),
        ("case", {"failure": [{"nodes": ["ib", "box0/nic0"]}]}, "has other names"),
    ],
)
def test_changed_folders_are_refused(
    folder: Path, tmp_path: Path, place: str, change: dict[str, Any], message: str
) -> None:
    """Before anything is picked."""
    index = json.loads((folder / "index.json").read_text())
    (index if place == "index" else index["cases"][1]).update(change)
    (tmp_path / "index.json").write_text(json.dumps(index))
    (tmp_path / "topology.json").write_bytes((folder / "topology.json").read_bytes())
    with pytest.raises(FileFormatError, match=message):
        PlanFolder(tmp_path)


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("options", {"root": "c"}, "has root a, but index.json says c"),
        ("options", {"planner": "ring"}, "has planner forestcoll, but index.json says ring"),
        ("case", {"algbw": "999"}, "but index.json says 999"),
        ("case", {"bound": "999"}, "but index.json says 999"),
        ("case", {"collective": "reduce"}, "has collective broadcast"),
    ],
)
def test_plans_that_differ_from_the_index_are_refused(
    tmp_path: Path, field: str, change: dict[str, Any], message: str
) -> None:
    """On a network without symmetries, whose root nothing else tells; also by a run that resumes."""
    links = [("a", "b", 1), ("b", "c", 2), ("c", "d", 3), ("d", "a", 4)]
    network = Topology.from_links(links, compute="abcd", bidirectional=True)
    request: dict[str, Any] = {"folder": tmp_path, "failures": [], "baselines": [], "jobs": 1}
    survive(network, "broadcast", root="a", **request)
    index = json.loads((tmp_path / "index.json").read_text())
    (index["options"] if field == "options" else index["cases"][0]).update(change)
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match=message):
        PlanFolder(tmp_path).pick()
    options, [case] = index["options"], index["cases"]
    with pytest.raises(FileFormatError, match=message):
        survive(network, case["collective"], **options, **request)
