"""The torch backend, with four Gloo processes: it agrees with torch's own, and says where it has no plans."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import backend_tasks
import pytest

from collopt import plan, write_topology
from collopt.errors import MissingDependencyError
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import ring

PRELOAD = ("torch", "torch.distributed", "backend_tasks")
FUNCTIONAL = "torch._dynamo"
"""What the first functional collective imports, for seconds, on every rank unless their common parent has."""
CALLS = 7 + 2 + 2
"""Sizes and types that each collective is called with."""
NETWORK = ring(4, bandwidth=25)
PAIR = ring(2, bandwidth=10)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of plans: good ones for four and two ranks, and wrong ones."""
    base = tmp_path_factory.mktemp("plans")
    for name in ("good", "pairs", "empty", "broken", "mixed"):
        (base / name).mkdir()
    for collective, options in (
        ("allgather", {}),
        ("reduce_scatter", {}),
        ("allreduce", {}),
        ("all_to_all", {}),
        ("broadcast", {"root": 2}),
        ("reduce", {"root": 1}),
    ):
        plan(NETWORK, collective, **options).save(base / "good" / f"{collective}.json")
    plan(PAIR, "allreduce").save(base / "good" / "pair.json")
    shutil.copy(base / "good" / "pair.json", base / "pairs")
    plan(PAIR, "all_to_allv", traffic=[[1, 2], [3, 4]]).save(base / "pairs" / "v.json")
    text = (base / "good" / "allreduce.json").read_text()
    (base / "broken" / "plan.json").write_text(text[: len(text) // 2])
    shutil.copy(base / "good" / "allreduce.json", base / "mixed")
    plan(ring(4, bandwidth=50), "allgather").save(base / "mixed" / "fast.json")
    write_topology(ring(4, bandwidth=50), base / "topology.json")
    return {path.stem: str(path) for path in base.iterdir()}


@pytest.fixture(scope="module")
def answers(folders: dict[str, str]) -> list[backend_tasks.Answers]:
    """What each rank has to tell of everything that should work."""
    task = partial(backend_tasks.everything, plans=folders["good"])
    return run_ranks(task, backend_tasks.RANKS, timeout_s=280, preload=(*PRELOAD, FUNCTIONAL))


def test_calls_agree_with_torch(answers: list[backend_tasks.Answers]) -> None:
    """All collectives, types and sizes agree bit for bit and run by plans; other calls go to the wrapped backend."""
    for answer in answers:
        assert len(answer.agrees) == 8 * CALLS
        for results in (answer.agrees, answer.specials, answer.fallbacks):
            assert [name for name, right in results.items() if not right] == []
        twice = dict.fromkeys(("allgather", "reduce_scatter"), 2 * CALLS)
        assert answer.planned == dict.fromkeys(("allreduce", "all_to_all", "broadcast", "reduce"), CALLS) | twice


def test_a_model_trains_as_with_torch(answers: list[backend_tasks.Answers]) -> None:
    """DDP has the same losses, bit for bit, on numbers that are exact in any order of adding; and they fall."""
    for answer in answers:
        planned, plain = answer.losses
        assert planned == plain == sorted(planned, reverse=True)
        assert planned[-1] < planned[0]


def test_each_reason_is_said_once_by_the_first_rank(
    answers: list[backend_tasks.Answers], folders: dict[str, str]
) -> None:
    """Every call was made twice on all ranks, and each reason is logged once."""
    first, second, *others = answers
    no_root = (
        f"{folders['good']} has no plan of it with root {{}}; those that can be run here are of all_to_all, allgather, "
        "allreduce, broadcast with root 2, reduce with root 1, reduce_scatter"
    )
    assert first.said == [
        f"{start} runs without a plan: {reason}"
        for start, reason in (
            ("allreduce on 4 ranks", "BOR is not supported by plans"),
            ("broadcast on 4 ranks", no_root.format(3)),
            (
                "all_to_all on 4 ranks",
                "its parts may differ, and ring-4 has not several boxes in which GPUs reach each other directly",
            ),
            (
                "allreduce on 2 ranks",
                (
                    "the group of ranks 0, 2 is no run of 2 consecutive ones that starts at a multiple of 2, and the "
                    "network of all ranks is not given; set COLLOPT_TOPOLOGY to it"
                ),
            ),
            # DDP begins with one.
            ("broadcast on 4 ranks", no_root.format(0)),
        )
    ]
    # Rank 1 is the first one of the group of ranks 1 and 3.
    assert second.said == [first.said[3].replace("0, 2", "1, 3")]
    assert [answer.said for answer in others] == [[], []]


def test_several_groups_run_at_once(answers: list[backend_tasks.Answers]) -> None:
    """Each has plans for its own number of ranks; one can be destroyed without the others."""
    for rank, answer in enumerate(answers):
        pair, apart = (1, 2) if rank < 2 else (5, 2), (2 if rank % 2 == 0 else 4, 2)
        for turn in range(3):
            assert answer.groups[f"pair {turn}"] == (pair[0] + pair[1] * turn, 6)
            assert answer.groups[f"apart {turn}"] == (apart[0] + apart[1] * turn, 6)
            assert answer.groups[f"large only {turn}"] == (6 + 4 * turn, 6)
        assert answer.groups["pair"] == {"allreduce": 4}
        assert answer.groups["apart"] == answer.groups["large only"] == {}
        assert answer.groups["large"] == {"allreduce": 1}
        assert answer.groups["after the pair"] == [4, 4, 4]


@pytest.fixture(scope="module")
def refusals(folders: dict[str, str]) -> list[dict[str, str]]:
    """What each rank was told about each wrong setting."""
    task = partial(backend_tasks.wrong_settings, folders=folders)
    return run_ranks(task, backend_tasks.RANKS, timeout_s=200, preload=PRELOAD)


WRONG_SETTINGS = {
    "nothing": "UnsupportedError: the collopt backend has neither plans nor a topology; set COLLOPT_PLANS to",
    "no such folder": "UnsupportedError: plans is '{good}/nowhere'",
    "empty": "FileFormatError: {empty} has no plan files",
    "broken": "FileFormatError: ",
    "two networks": "TopologyError: fast.json is for another network of 4 ranks, ",
    "another topology": "TopologyError: all_to_all.json is for another network of 4 ranks, ",
    "others on one rank": "ProgramError: ranks 0 and 2 have different plans or settings",
    "slices on one rank": "ProgramError: ranks 0 and 2 have different plans or settings",
}


def test_wrong_settings_are_refused_on_every_rank(refusals: list[dict[str, str]], folders: dict[str, str]) -> None:
    """No data is sent; of settings that are wrong on one rank, that rank hears why, and the others which rank it is."""
    for rank, told in enumerate(refusals):
        for name, message in WRONG_SETTINGS.items():
            assert told[name].startswith(message.format(**folders)), name
        own = "FileFormatError: " if rank == 2 else "ProgramError: rank 2 has refused: "
        assert told["broken on one rank"].startswith(own)


def test_plans_for_other_numbers_of_ranks_are_of_no_use(
    refusals: list[dict[str, str]], folders: dict[str, str]
) -> None:
    """The wrapped backend does the work, and rank 0 says so."""
    answers = [told["plans for two"] for told in refusals]
    reason = f"{folders['pairs']} has nothing that can be run on 4 ranks, only for 2"
    ignored = f"plans in {folders['pairs']} are ignored: v.json: calls of all_to_allv are not run by plans"
    said = f"{ignored} allreduce on 4 ranks runs without a plan: {reason}"
    assert answers == [f"[6, 6, 6] {said}", *["[6, 6, 6]"] * 3]


@pytest.mark.slow
def test_a_model_may_outlive_its_group() -> None:
    """With Gloo alone its end may hang, within some ten turns: torch waits for threads that want Python's lock."""
    task = partial(backend_tasks.outlived, turns=30)
    assert run_ranks(task, backend_tasks.RANKS, timeout_s=200, preload=PRELOAD) == [30] * backend_tasks.RANKS


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not tell what a process has open")
def test_groups_that_are_gone_leave_nothing_open() -> None:
    """Python closes the connections of a group when the next one begins."""
    task = partial(backend_tasks.begun_and_destroyed, turns=6)
    for opened in run_ranks(task, backend_tasks.RANKS, timeout_s=200, preload=PRELOAD):
        assert opened[-1] <= opened[1]


def test_importing_the_backend_without_torch_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    import importlib
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "collopt.runtime.backend", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'collopt\[torch\]'"):
        importlib.import_module("collopt.runtime.backend")
