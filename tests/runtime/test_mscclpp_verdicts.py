"""What lint says of broken MSCCL++ plans is what MSCCL++'s own loader said of them.

``mscclpp_verdicts.json`` has a letter for each plan of `mutants`, in the order of ``CHANGES`` or ``TEXTS``: what
``execution_plan.cc`` of 0.9.0, compiled for a CPU with sanitizers, did with the plan, and what came of its operations
by the rules of ``execution_kernel.hpp``.  "R": it threw an error; "U": undefined behavior; else it loaded the plan,
which was right in three runs ("A"), wrong ("w") or hung this call or the next ("h"); "-": there is no such plan, or its
verdict depends on the size of the call.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mscclpp_mutants import BASES, CHANGES, RECORDED, TEXTS, mutants

from collopt.runtime.mscclpp.lint import lint_plan

STRICTER = ("hangs", "wrong data", "not checked")
EXPECTED = {
    "R": ("rejected",),
    "U": ("rejected", *STRICTER),
    "A": ("accepted", *STRICTER),
    "w": STRICTER,
    "h": STRICTER,
}
STRIDE = 8
"""Every so many plans one is tried in a short run of the tests."""


def recorded() -> list[tuple[str, str, str, str]]:
    """Kind of entry, change, text and letter of each plan that has one."""
    found = []
    for kind, change, text in mutants():
        names = list(TEXTS if kind == "the text" else CHANGES)
        letter = RECORDED["verdicts"][kind][names.index(change)]
        if letter != "-":
            found.append((kind, change, text, letter))
    return found


def disagreements(plans: list[tuple[str, str, str, str]], folder: Path, version: str = "0.9.0") -> list[str]:
    """Plans of which lint says something else."""
    found, path = [], folder / "plan.json"
    for kind, change, text, letter in plans:
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
        # By sizes the loader of the main branch divides no more, so it loads what is undefined for the others.
        expected = EXPECTED["A" if version == "main" and kind.endswith(".size") and change == "0" else letter]
        if (verdict := lint_plan(path, version).verdict) not in expected:
            found.append(f"{kind}, {change}: {letter}, {verdict}")
    return found


@pytest.mark.parametrize("base", BASES)
def test_plans_are_right_before_they_are_broken(base: str, tmp_path: Path) -> None:
    """So they were for the loader."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(BASES[base]), encoding="utf-8")
    assert lint_plan(path, "0.9.0").verdict == "accepted"


def test_lint_refuses_what_the_loader_refuses(tmp_path: Path) -> None:
    """And accepts what it accepts, unless it hangs, gives wrong data or is beyond what lint runs."""
    plans = recorded()[::STRIDE]
    assert len(plans) > 150
    assert disagreements(plans, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.8.0", "0.9.0", "main"])
def test_lint_refuses_what_the_loader_refuses_of_all_plans(tmp_path: Path, version: str) -> None:
    """Of those left out above too, and of other versions, whose loaders agreed."""
    assert disagreements(recorded(), tmp_path, version) == []
