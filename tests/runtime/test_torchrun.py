"""Environment variables of a launcher."""

from __future__ import annotations

import pytest
from runtime_forests import exchange

from collopt.errors import UnsupportedError
from collopt.runtime import launched_rank, run_local
from collopt.runtime.execution.rendezvous import Launch, launch_of_environment

COMPLETE = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "host0", "MASTER_PORT": "29500"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Remove the variables that whoever runs the tests may have."""
    for name in (*COMPLETE, "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def set_all(environment: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set environment variables."""
    for name, value in variables.items():
        environment.setenv(name, value)


def test_variables_of_torchrun_are_read(environment: pytest.MonkeyPatch) -> None:
    """Without local figures, all ranks are local."""
    set_all(environment, COMPLETE)
    assert launch_of_environment() == Launch(1, 4, 1, 4, "host0:29500")
    set_all(environment, {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert launch_of_environment() == Launch(1, 4, 1, 2, "host0:29500")
    assert launched_rank() == 1


@pytest.mark.parametrize("names", ["", "RANK", "WORLD_SIZE", "MASTER_ADDR MASTER_PORT", "RANK MASTER_ADDR"])
def test_incomplete_variables_of_batch_systems_mean_nothing(environment: pytest.MonkeyPatch, names: str) -> None:
    """A launch has a WORLD_SIZE together with a RANK or a MASTER_ADDR."""
    set_all(environment, {name: COMPLETE[name] for name in names.split()})
    assert launched_rank() is None


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("name", ["RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_a_launch_with_a_missing_variable_is_refused(
    environment: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    """Otherwise every process would start all ranks."""
    set_all(environment, COMPLETE)
    environment.delenv(name)
    if value is not None:
        environment.setenv(name, value)
    with pytest.raises(UnsupportedError, match=name):
        launched_rank()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("RANK", ["4", "-1", "one", "1.0", "\u0661"]),
        ("WORLD_SIZE", ["0", "9" * 40]),
        ("MASTER_PORT", ["0", "70000"]),
        ("LOCAL_RANK", ["x"]),
        ("LOCAL_WORLD_SIZE", ["5"]),
    ],
)
def test_invalid_values_are_refused(environment: pytest.MonkeyPatch, name: str, values: list[str]) -> None:
    """The message names the variable and its value, before any process is started."""
    for value in values:
        set_all(environment, {**COMPLETE, name: value})
        with pytest.raises(UnsupportedError, match=f"variable {name} is {value!r}; expected a whole number"):
            run_local(exchange())
