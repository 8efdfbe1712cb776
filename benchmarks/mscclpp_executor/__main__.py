"""Run collopt's plan files by MSCCL++'s executor: ``python -m benchmarks.mscclpp_executor --mscclpp PATH``.

Ranks are processes; each has its own GPU where there are enough, and all share the first one otherwise.  A case is one
call, and then calls back to back with other data; all outputs have to be right.  The status is 1 if any case did not do
what was expected of it; files that were damaged on purpose have to fail.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import pandas as pd

from .build import BuildError, build
from .cases import write_cases
from .rank import ExecutorError, load_driver
from .ranks import BATCH, Outcome, run_batch
from .reference import Case

ENVIRONMENT = {"MSCCLPP_FORCE_DISABLE_NVLS": "1", "MSCCLPP_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
OUT = Path("out/mscclpp_executor")
FAILURES = 4
"""Batches in a row without a result after which nothing more is tried."""


def run_cases(library: Path, cases: Sequence[Case], seconds: float) -> Iterator[Outcome]:
    """Run all cases; one that times out and should not is run once more, by itself, with three times the time."""
    failures = 0
    for _, group in groupby(cases, lambda case: (case.ranks, case.expected)):
        left = list(group)
        while left and failures < FAILURES:
            outcomes = run_batch(str(library), left[:BATCH], seconds)
            left = left[len(outcomes) :]
            case, outcome, _ = outcomes[-1]
            if outcome == "timeout" != case.expected:
                outcomes[-1:] = run_batch(str(library), [case], 3 * seconds)
            failed = len(outcomes) == 1 and outcomes[0].outcome in ("timeout", "error")
            failures = failures + 1 if failed else 0
            yield from outcomes


def _line(found: Outcome) -> str:
    case, outcome, detail = found
    surprise = "" if outcome == case.expected else f" instead of {case.expected}"
    return f"{case.name} | {case.ranks} ranks | {case.dtype} | {outcome}{surprise}" + (f" | {detail}" if detail else "")


def main() -> None:
    """Build, write the plan files, run them, and print a line for each case and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mscclpp", type=Path, required=True, help="a checkout of microsoft/mscclpp at v0.9.0")
    parser.add_argument("--json", type=Path, help="the folder that has nlohmann/json.hpp")
    parser.add_argument("--only", default="", help="run only files whose name contains this, such as ring4-allreduce")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds without progress after which a case fails")
    parser.add_argument("--output", type=Path, default=OUT / "results.csv")
    arguments = parser.parse_args()
    try:
        load_driver()
        library = build(arguments.mscclpp, arguments.json, OUT)
    except (BuildError, ExecutorError) as error:
        sys.exit(str(error))
    cases, refused = write_cases(OUT / "plans", arguments.only)
    for text in refused:
        print(f"not written: {text}")
    if not cases:
        sys.exit(f"no file has {arguments.only!r} in its name")
    os.environ.update(ENVIRONMENT)
    rows = []
    for found in run_cases(library, cases, arguments.timeout):
        print(_line(found), flush=True)
        rows.append({**asdict(found.case), "outcome": found.outcome, "detail": found.detail})
    results = pd.DataFrame(rows)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    results.to_csv(arguments.output, index=False)
    print(results.value_counts(["collective", "placement", "expected", "outcome"], sort=False).to_string())
    missing = len(cases) - len(results)
    wrong = int((results["outcome"] != results["expected"]).sum())
    print(f"{len(results)} cases, {wrong} not as expected, {missing} not run; wrote {arguments.output}")
    sys.exit(bool(wrong or missing))


if __name__ == "__main__":
    main()
