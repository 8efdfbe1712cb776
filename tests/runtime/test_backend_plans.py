"""Settings of the torch backend, and the choice among its plans; no torch needed."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collopt import Plan, plan
from collopt.errors import (
    CertificateError,
    ColloptError,
    FileFormatError,
    ProgramError,
    TopologyError,
    UnsupportedError,
)
from collopt.planners import survive
from collopt.runtime import plan_cache
from collopt.runtime.plan_cache import BackendSettings, PlanCache, Request, configure, settings_of
from collopt.schedules import COLLECTIVES
from collopt.topologies import complete, dgx_a100, ring
from own_collectives import SCATTER, registered


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "_configured", [])
    monkeypatch.delenv("COLLOPT_PLANS", raising=False)
    monkeypatch.delenv("COLLOPT_TOPOLOGY", raising=False)


def test_the_plan_with_the_least_predicted_time_is_taken(tmp_path: Path) -> None:
    """Little data takes the plan with few hops, much data the plan with the best use of links."""
    topology = dgx_a100(boxes=2)
    made = {name: plan(topology, "allreduce", planner=name) for name in ("multitree", "forestcoll")}
    for name, each in made.items():
        each.save(tmp_path / f"{name}.json")
    cache = PlanCache(BackendSettings(plans=tmp_path, slices=1000), 16)
    chosen = set()
    for size in (2**10, 2**16, 2**20, 2**30):
        found = cache.find(Request(COLLECTIVES["allreduce"], size, None))
        assert not isinstance(found, str)
        times = {name: each.estimate(size, 1000) for name, each in made.items()}
        assert times[found.planner] == min(times.values())
        chosen.add(found.planner)
    assert len(chosen) == 2


def test_roots_are_told_apart(tmp_path: Path) -> None:
    """A broadcast from another root is another plan."""
    for root in (0, 2):
        plan(ring(4, bandwidth=25), "broadcast", root=root).save(tmp_path / f"{root}.json")
    cache = PlanCache(BackendSettings(plans=tmp_path), 4)
    assert not isinstance(cache.find(Request(COLLECTIVES["broadcast"], 100, 2)), str)
    assert cache.find(Request(COLLECTIVES["broadcast"], 100, 1)) == (
        f"{tmp_path} has no plan of it with root 1; those that can be run here are of broadcast with root 0, broadcast "
        "with root 2"
    )


def test_plans_with_unequal_shards_are_left_alone(tmp_path: Path) -> None:
    """Torch's allgather into one tensor has equal ones."""
    plan(ring(4, bandwidth=25), "allgather", weights=[1, 2, 1, 1]).save(tmp_path / "uneven.json")
    found = PlanCache(BackendSettings(plans=tmp_path), 4).find(Request(COLLECTIVES["allgather"], 100, None))
    assert found == f"{tmp_path} has nothing that can be run on 4 ranks"


def test_a_file_comes_before_planning(tmp_path: Path) -> None:
    """A collective without a file is planned, once."""
    topology = ring(4, bandwidth=25)
    plan(topology, "allgather", planner="blink").save(tmp_path / "slow.json")
    cache = PlanCache(BackendSettings(plans=tmp_path, topology=topology), 4)
    from_file, made = (cache.find(Request(COLLECTIVES[name], 100, None)) for name in ("allgather", "reduce_scatter"))
    assert not isinstance(from_file, str)
    assert not isinstance(made, str)
    assert (from_file.planner, made.planner) == ("blink", "forestcoll")
    assert cache.find(Request(COLLECTIVES["reduce_scatter"], 200, None)) is made


def test_plans_of_what_the_backend_does_not_run_are_ignored(tmp_path: Path) -> None:
    """The warning has their file names, whether their collective is registered here or not."""
    network = ring(4, bandwidth=25)
    plan(network, "broadcast", root=1).save(tmp_path / "a.json")
    plan(network, "all_to_allv", traffic=[[1] * 4] * 4).save(tmp_path / "b.json")
    with registered(SCATTER):
        plan(network, SCATTER, root=0).save(tmp_path / "c.json")
        known = PlanCache(BackendSettings(plans=tmp_path), 4)
    unknown = PlanCache(BackendSettings(plans=tmp_path), 4)
    first = "b.json: calls of all_to_allv are not run by plans"
    assert known.ignored == [first, "c.json: calls of scatter are not run by plans"]
    assert unknown.ignored[0] == first
    assert unknown.ignored[1].startswith("c.json: the collective 'scatter' is not registered")
    for cache in (known, unknown):
        assert cache.find(Request(COLLECTIVES["allgather"], 100, None)) == (
            f"{tmp_path} has no plan of it; those that can be run here are of broadcast with root 1"
        )


def test_what_cannot_be_planned_is_a_reason() -> None:
    """A root that is no rank, and a group of another size, are reasons to fall back."""
    cache = PlanCache(BackendSettings(topology=ring(4, bandwidth=25)), 8)
    assert cache.find(Request(COLLECTIVES["allgather"], 100, None)) == (
        "the topology given has nothing that can be run on 8 ranks, only for 4"
    )
    one_way = PlanCache(BackendSettings(topology=ring(4, bandwidth=25)), 4)
    assert "root 9 is not a rank" in str(one_way.find(Request(COLLECTIVES["broadcast"], 100, 9)))


def test_a_group_has_its_part_of_the_network_of_all_ranks(tmp_path: Path) -> None:
    """Plans are made for it, unless a file is for exactly that, or for any aligned group of the size."""
    whole = complete(4, bandwidth=10)
    ask = Request(COLLECTIVES["allgather"], 100, None)
    plan(ring(2, bandwidth=5), "allgather", planner="bruck").save(tmp_path / "any.json")

    def chosen(ranks: list[int]) -> str:
        cache = PlanCache(BackendSettings(plans=tmp_path, topology=whole), len(ranks), ranks, 4)
        assert cache.misfit is None
        found = cache.find(ask)
        assert isinstance(found, Plan)
        return f"{found.planner} on {found.topology.name}"

    planned = "forestcoll on complete-4 [2 of 4 ranks]"
    assert (chosen([0, 1]), chosen([1, 2])) == ("bruck on ring-2", planned)
    for ranks in ([0, 1], [0, 2]):
        plan(whole.restrict(ranks), "allgather", planner="blink").save(tmp_path / f"{ranks[1]}.json")
    assert [chosen(ranks) for ranks in ([0, 1], [0, 2], [2, 3])] == [
        *["blink on complete-4 [2 of 4 ranks]"] * 2,
        planned,
    ]
    assert PlanCache(BackendSettings(topology=whole), 2, [1, 2], 8).misfit is not None  # Of a part of all ranks


def test_failures_reach_the_groups_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that take one of their ranks away are refused, those of other ranks are not."""
    monkeypatch.setenv("COLLOPT_FAILURES", "gpu3")
    cache = PlanCache(BackendSettings(topology=complete(4, bandwidth=10)), 2, [1, 2], 4)
    assert cache.watches_failures
    cache.switch("gpu3\ngpu1--gpu2 x 1/2")
    found = cache.find(Request(COLLECTIVES["allgather"], 100, None))
    assert isinstance(found, Plan)
    assert found.algbw == 10
    for lost, reason in (("gpu1", "gpu1 leaves 1 of 2 ranks"), ("gpu1--gpu2", "no path")):
        with pytest.raises(ColloptError, match=reason):
            cache.switch(lost)


def test_the_first_rank_plans_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache has no answer of its own then."""
    monkeypatch.setattr(plan_cache, "MAX_OWN_WORK", 4 * 8**2 - 1)
    assert PlanCache(BackendSettings(topology=ring(4)), 4).find(Request(COLLECTIVES["allgather"], 9, None)) is None
    monkeypatch.setattr(plan_cache, "MAX_OWN_WORK", 4 * 8**2)
    assert PlanCache(BackendSettings(topology=ring(4)), 4).find(Request(COLLECTIVES["allgather"], 9, None))


def test_a_failure_that_takes_too_many_chunks_leaves_calls_to_the_wrapped_backend() -> None:
    """Billions of trees for each root would take all memory, and end the job."""
    cache = PlanCache(BackendSettings(topology=complete(4, bandwidth=10)), 4)
    cache.switch("gpu1--gpu2 x 1/33333333333")
    found = cache.find(Request(COLLECTIVES["allgather"], 100, None))
    assert isinstance(found, str)
    assert "expected at most 67108864: plan with fewer trees per root" in found


def test_plan_folders_are_read_when_the_cache_is_made(tmp_path: Path) -> None:
    """A file that is damaged then is named; one that goes later is not missed, at a failure or before."""
    survive(ring(4, bandwidth=25), "allgather", folder=tmp_path, failures=["link"], baselines=[], jobs=1)
    cache = PlanCache(BackendSettings(plans=tmp_path), 4)
    file = tmp_path / "allgather-1.json"
    intact = (tmp_path / "allgather-0.json").read_text()
    for content in ("{}", intact, json.dumps({**json.loads(file.read_text()), "link_loads": []})):
        file.write_text(content)
        with pytest.raises((FileFormatError, CertificateError), match=r"allgather-1\.json"):
            PlanCache(BackendSettings(plans=tmp_path), 4)
    file.unlink()
    with pytest.raises(FileFormatError, match=r"allgather-1\.json does not exist"):
        PlanCache(BackendSettings(plans=tmp_path), 4)
    index = tmp_path / "index.json"
    stated = index.read_text()
    index.write_text(stated.replace('"ranks": 4', '"ranks": 3'))
    with pytest.raises(FileFormatError, match=r"index\.json says that 3 ranks are left without intact, and 4 are"):
        PlanCache(BackendSettings(plans=tmp_path), 4)
    index.write_text(stated)
    for plan_file in tmp_path.glob("allgather-*.json"):
        plan_file.unlink()
    for failure in ("", "gpu1--gpu2", "gpu0--gpu1"):
        cache.switch(failure)
        found = cache.find(Request(COLLECTIVES["allgather"], 100, None))
        assert not isinstance(found, str)
        assert str(cache.failure) == (failure or "intact")


def test_groups_share_the_verified_plans_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second group of a process verifies no plan again while the files are the same."""
    survive(ring(4, bandwidth=25), "allgather", folder=tmp_path, failures=["link"], baselines=[], jobs=1)
    PlanCache(BackendSettings(plans=tmp_path), 4)
    monkeypatch.setattr(Plan, "verify", lambda *_: pytest.fail("a plan is verified again"))
    found = PlanCache(BackendSettings(plans=tmp_path), 4).find(Request(COLLECTIVES["allgather"], 100, None))
    assert not isinstance(found, str)


def test_ranks_with_different_files_are_told_which(tmp_path: Path) -> None:
    """Every rank gets the error, which names a rank and a file."""
    store = pytest.importorskip("torch.distributed").HashStore()
    digests = []
    for bandwidth in (25, 50):
        plan(ring(4, bandwidth=bandwidth), "allgather").save(tmp_path / "a.json")
        digests.append(PlanCache(BackendSettings(plans=tmp_path), 4).digest)
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(plan_cache.compare_digests, store, rank, 3, digests[rank == 2]) for rank in range(3)]
    for each in calls:
        with pytest.raises(ProgramError, match=r"ranks 0 and 2 have different plans .* \(a\.json\)"):
            each.result()


def test_the_file_of_failures_is_read_within_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pipes block no rank, large files and those of other kinds are refused later, and equal lines count once."""
    path = tmp_path / "failures"
    monkeypatch.setenv("COLLOPT_FAILURES", "gpu0")
    monkeypatch.setenv("COLLOPT_FAILURES_FILE", str(path))
    assert plan_cache.told_failures() == "gpu0"
    path.write_text("gpu1--gpu2\n gpu0\n\n" * 3000)
    assert plan_cache.told_failures() == "gpu0\ngpu1--gpu2"
    path.write_text("gpu0\n" * 200_000)
    assert "is larger than 65536 bytes" in plan_cache.told_failures()
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in plan_cache.told_failures()
    cache = PlanCache(BackendSettings(topology=ring(4, bandwidth=25)), 4)
    with pytest.raises(TopologyError, match="no regular file"):
        cache.switch(plan_cache.told_failures())


def test_what_is_configured_counts_more_than_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Options of a group count more than both."""
    (tmp_path / "options").mkdir()
    monkeypatch.setenv("COLLOPT_PLANS", str(tmp_path))
    assert settings_of(None) == BackendSettings(plans=str(tmp_path))
    configured = configure(topology=ring(4, bandwidth=25), min_bytes="1K")
    assert settings_of(None) is configured
    assert configured.min_bytes == 1024
    options = BackendSettings(plans=tmp_path / "options")
    assert settings_of(options) == options


@pytest.mark.parametrize(
    ("name", "value"), [("plans", 5), ("topology", 5), ("slices", 0), ("min_bytes", -1), ("min_bytes", "many")]
)
def test_wrong_settings_are_refused_when_they_are_given(name: str, value: object, tmp_path: Path) -> None:
    """They come by `configure`, or as options of one group, which also takes sizes as texts."""
    with pytest.raises(UnsupportedError, match=name):
        configure(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match=name):
        settings_of(BackendSettings(**{"plans": tmp_path, name: value}))  # type: ignore[arg-type]
    assert settings_of(BackendSettings(tmp_path, min_bytes="64K")).min_bytes == 2**16  # type: ignore[arg-type]
