"""Collecting what lint finds: notes never end the search for what is worse."""

from __future__ import annotations

import pytest

from collopt.runtime.programs.findings import MAX_FINDINGS, Findings, TooManyFindingsError


def test_no_more_notes_are_kept_but_all_else_is_until_there_is_enough() -> None:
    """A hundred notes leave room for a hundred findings; the next one ends the search."""
    findings = Findings()
    for number in range(MAX_FINDINGS + 1):
        findings.add("note", f"note {number}")
    assert len(list(findings)) == MAX_FINDINGS
    for number in range(MAX_FINDINGS):
        findings.add("hangs", f"wait {number}")
    findings.add("hangs", "wait 0")
    assert len(list(findings)) == 2 * MAX_FINDINGS
    with pytest.raises(TooManyFindingsError):
        findings.add("wrong data", "one more")
