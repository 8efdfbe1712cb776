"""Run collopt's plan files by MSCCL++'s executor: ``python -m benchmarks.mscclpp_executor``.

MSCCL++ is its Python package, installed by its own instructions.

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

from .cases import write_cases
from .rank import ExecutorError, load_packages
from .ranks import BATCH, Outcome, run_batch
from .reference import Case

ENVIRONMENT = {
    "MSCCLPP_FORCE_DISABLE_NVLS": "1",
    "MSCCLPP_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",  # Each buffer is an allocation of its own, as other processes open them
}
OUT = Path("out/mscclpp_executor")
FAILURES = 4
"""Batches in a row without a result after which nothing more is tried."""


def run_cases(cases: Sequence[Case], seconds: float) -> Iterator[Outcome]:
    """Run all cases; one that times out and should not is run once more, by itself, with three times the time."""
    failures = 0
    for _, group in groupby(cases, lambda case: (case.ranks, case.expected)):
        left = list(group)
        while left and failures < FAILURES:
            outcomes = run_batch(left[:BATCH], seconds)
            left = left[len(outcomes) :]
            case, outcome, _ = outcomes[-1]
            if outcome == "timeout" != case.expected:
                outcomes[-1:] = run_batch([case], 3 * seconds)
            failed = len(outcomes) == 1 and outcomes[0].outcome in ("timeout", "error")
            failures = failures + 1 if failed else 0
            yield from outcomes


def _line(found: Outcome) -> str:
    case, outcome, detail = found
    surprise = "" if outcome == case.expected else f" instead of {case.expected}"
    return f"{case.name} | {case.ranks} ranks | {case.dtype} | {outcome}{surprise}" + (f" | {detail}" if detail else "")


def main() -> None:
    """Write the plan files, run them, and print a line for each case and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run only files whose name contains this, such as ring4-allreduce")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds without progress after which a case fails")
    parser.add_argument("--output", type=Path, default=OUT / "results.csv")
    arguments = parser.parse_args()
    try:
        load_packages()
    except ExecutorError as error:
        sys.exit(str(error))
    cases, refused = write_cases(OUT / "plans", arguments.only)
    for text in refused:
        print(f"not written: {text}")
    if not cases:
        sys.exit(f"no file has {arguments.only!r} in its name")
    os.environ.update(ENVIRONMENT)
    rows = []
    for found in run_cases(cases, arguments.timeout):
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
