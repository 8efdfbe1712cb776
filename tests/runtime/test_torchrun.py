"""Reading the environment variables of a launcher."""

from __future__ import annotations

import pytest
from runtime_forests import exchange

from collopt.errors import UnsupportedError
from collopt.runtime import launched_rank, run_local
from collopt.runtime.execution.rendezvous import Launch, launch_of_environment

GOOD = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "host0", "MASTER_PORT": "29500"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Whoever runs the tests may have such variables."""
    for name in (*GOOD, "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def given(environment: pytest.MonkeyPatch, **variables: str | None) -> None:
    """Set a good environment but for these variables; None leaves one out."""
    for name, value in (GOOD | variables).items():
        if value is not None:
            environment.setenv(name, value)


def test_reads_what_torchrun_sets(environment: pytest.MonkeyPatch) -> None:
    """Local figures too, and where the ranks meet."""
    given(environment, LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
    assert launch_of_environment() == Launch(1, 4, 1, 2, "host0:29500")
    assert launched_rank() == 1


def test_takes_all_ranks_to_be_local_if_nothing_is_said(environment: pytest.MonkeyPatch) -> None:
    """Launchers by hand set only what torch needs."""
    given(environment)
    assert launch_of_environment() == Launch(1, 4, 1, 4, "host0:29500")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"RANK": "3"},
        {"WORLD_SIZE": "4"},
        {"MASTER_ADDR": "a", "MASTER_PORT": "1"},
        {"RANK": "0", "MASTER_ADDR": "a"},
    ],
)
def test_lonely_variables_mean_nothing(environment: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Batch systems set them for themselves."""
    for name, value in variables.items():
        environment.setenv(name, value)
    assert launched_rank() is None


@pytest.mark.parametrize("name", ["RANK", "MASTER_ADDR", "MASTER_PORT"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_launch_that_lacks_something_is_refused(
    environment: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    """Instead of every process starting all ranks."""
    given(environment, **{name: value})
    with pytest.raises(UnsupportedError, match=f"has WORLD_SIZE but no {name}; start the ranks with torchrun"):
        launched_rank()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("RANK", "4", "from 0 to 3"),
        ("RANK", "-1", "from 0 to 3"),
        ("RANK", "one", "from 0 to 3"),
        ("RANK", "1.0", "from 0 to 3"),
        ("RANK", "\u0661", "from 0 to 3"),
        ("WORLD_SIZE", "0", "from 1 on"),
        ("WORLD_SIZE", "9" * 40, "from 1 on"),
        ("MASTER_PORT", "0", "from 1 to 65535"),
        ("MASTER_PORT", "70000", "from 1 to 65535"),
        ("LOCAL_RANK", "x", "from 0 to 3"),
        ("LOCAL_WORLD_SIZE", "5", "from 1 to 4"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    environment: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    """With the variable, its value and what was expected, and before any process is started."""
    given(environment, **{name: value})
    with pytest.raises(UnsupportedError, match=f"variable {name} is {value!r}; expected a whole number {expected}"):
        run_local(exchange())
