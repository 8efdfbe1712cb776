"""The program behind ``make gpu``: its table without a device, and how it judges what it runs."""

from __future__ import annotations

import one_gpu
import pytest

from doc_pages import ROOT


def test_without_a_device_every_row_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says so, and the status is 0."""
    monkeypatch.setattr(one_gpu, "device_name", lambda: None)
    with pytest.raises(SystemExit) as caught:
        one_gpu.main()
    first, *table = capsys.readouterr().out.splitlines()
    assert not caught.value.code
    assert first == "no CUDA device that torch can see, so nothing was run"
    rows = len(one_gpu.JOBS) + len(one_gpu.BEYOND)
    assert sum("skipped: no CUDA device" in line for line in table) == rows


def test_failures_timeouts_and_the_end_of_the_time_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the last line of a program; what one device cannot show is skipped with the reason."""
    assert one_gpu.run_command(["-c", "print('3 passed')"], 60) == "3 passed"
    assert one_gpu.run_command(["-c", "print('1 failed'); raise SystemExit(1)"], 60) == "failed: 1 failed"
    assert one_gpu.run_command(["-c", "import time; time.sleep(60)"], 0.1) == "failed: not finished in 0 s"
    assert one_gpu.run_mscclpp(1).startswith("skipped: no package mscclpp")
    monkeypatch.setattr(one_gpu, "JOBS", {"something": lambda _: "right"})
    assert [row.outcome for row in one_gpu.measure("GPU")][:2] == ["right", "skipped: needs as many GPUs as ranks"]
    assert one_gpu.measure("GPU", limit_s=0)[0].outcome == "skipped: 0 s are over"


def test_every_test_on_gpus_has_a_row() -> None:
    """Otherwise a new one would not be part of the table."""
    source = (ROOT / "tests" / "runtime" / "test_gpus.py").read_text(encoding="utf-8")
    names = [
        line.split("(")[0].removeprefix("def test_") for line in source.splitlines() if line.startswith("def test_")
    ]
    assert names
    for name in names:
        assert [part for part in one_gpu.TESTS.values() if part in name], name
    assert len(names) == len(one_gpu.TESTS)
