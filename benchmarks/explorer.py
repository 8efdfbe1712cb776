"""From a change of a network of 64 GPUs to its new bound and plan, as the page of `collopt explore` gets them.

``python benchmarks/explorer.py`` breaks, derates and widens parts of eight DGX H100, one change after the other, and
prints how long the process that plans took until it had each answer: CPU seconds, which other programs do not lengthen,
and wall seconds.  The first change of each collective is left out: it loads kernels.
"""

import json
import statistics
import time

from collopt.report.pages.answers import Case, Scenario
from collopt.topologies import Scaling, build

COLLECTIVES = (
    ("allgather", None),
    ("allreduce", None),
    ("all_to_all", None),
    ("allgather", "1M"),
    ("allreduce", "64M"),
)
CHANGES = (
    {"without": ("box0/nic0",)},
    {"without": ("box3/gpu5",)},
    {"without": ("box1/gpu2--box1/nic2",)},
    {"scale": (Scaling.read("box0/gpu0--box0/nic0 x 1/2"),)},
    {"scale": (Scaling.read("gpu-nic x 2"), Scaling.read("box7/nic1 x 3/4"))},
)


def main() -> None:
    """Print a row for each collective and answer."""
    network, words = build("dgx-h100", boxes=8), ("dgx-h100", "--boxes", "8")
    print(f"{network.num_ranks} GPUs, {len(CHANGES)} changes; seconds from a change to an answer, median and most")
    print(f"{'collective':<12}{'size':<8}{'answer':<11}{'CPU':>8}{'most':>8}{'wall':>8}{'most':>8}")
    for collective, size in COLLECTIVES:
        list(Case(Scenario(words, collective, size=size), network).answers())
        taken: dict[str, list[tuple[float, float]]] = {}
        for change in CHANGES:
            cpu, wall = time.process_time(), time.perf_counter()
            for answer in Case(Scenario(words, collective, size=size, **change), network).answers():
                json.dumps(answer)
                for name in {"bound", "plan"} & answer.keys():
                    about = "a plan" if answer[name].get("interim") else f"the {name}"
                    taken.setdefault(about, []).append((time.process_time() - cpu, time.perf_counter() - wall))
        for name, times in taken.items():
            figures = (
                f"{choice(column):8.3f}" for column in zip(*times, strict=True) for choice in (statistics.median, max)
            )
            print(f"{collective:<12}{size or 'endless':<8}{name:<11}{''.join(figures)}", flush=True)


if __name__ == "__main__":
    main()
