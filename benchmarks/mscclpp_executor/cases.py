"""The cases: plan files that collopt writes, the sizes of their calls, and files made wrong on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import collopt
from collopt import topologies
from collopt.errors import UnsupportedError

from .reference import TYPES, Case

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all")
SYMMETRIC = COLLECTIVES[:3]
PLACEMENTS = ("out-of-place", "in-place")
NETWORKS: Mapping[str, Callable[[], topologies.Topology]] = {
    "ring2": lambda: topologies.ring(2),
    "ring4": lambda: topologies.ring(4),
    "ring8": lambda: topologies.ring(8),
    "cube2": lambda: topologies.hypercube(2),
    "cube3": lambda: topologies.hypercube(3),
    "full4": lambda: topologies.complete(4),
    "a100": lambda: topologies.dgx_a100(1),
    "dgx1": lambda: topologies.dgx1_v100(1),
}
PLANNERS: dict[str, Sequence[str]] = {"ring": SYMMETRIC, "multitree": SYMMETRIC, "blink": SYMMETRIC, "bfb": SYMMETRIC}
PLANNERS |= {"recursive-halving-doubling": SYMMETRIC, "double-binary-tree": ("allreduce",)}
PLANNERS |= {"strength": ("allreduce",), "allreduce-lp": ("allreduce",)}
OPTIONS: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "slice4k": (COLLECTIVES, {"slice_bytes": 4096}),
    "slice1008": (("allgather", "allreduce", "reduce"), {"slice_bytes": 1008}),
    "whole": (COLLECTIVES, {"slice_bytes": None}),
    "merged": (COLLECTIVES, {"max_thread_blocks": 2}),
    "threads96": (("allgather", "allreduce", "all_to_all"), {"threads_per_block": 96}),
    "instances2": (COLLECTIVES, {"instances": 2}),
    "channels2": (("allgather", "allreduce", "all_to_all"), {"channels": 2}),
}
"""Options of the export, by a label, and the collectives that they are tried with."""
MANY_CALLS = 2**20
"""Bytes up to which a case has five calls; larger ones have three."""
UNIT = 16
"""Every chunk is a multiple of so many bytes."""
Document = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """Plans of one network by one planner; a file that is damaged, or judged by another root, is not to be right."""

    network: str
    label: str
    sizes: Sequence[int]  # Of the message, rounded to what the file takes
    collectives: Sequence[str] = COLLECTIVES
    root: int = 1
    planner: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    placements: Sequence[str] = PLACEMENTS
    expected: str = "right"
    judged_root: int | None = None
    damage: Callable[[Document], None] | None = None


def groups() -> Iterator[Group]:
    """List what is planned, the files that are wrong last."""
    for network in NETWORKS:
        sizes = (0, 2**14, 2**16, 2**20) if network in ("ring4", "a100") else (0, 100_000)
        yield Group(network, "auto", sizes, root=1 if network == "ring2" else 2)
    for network in ("ring4", "a100", "cube3"):
        for label, (collectives, options) in OPTIONS.items():
            yield Group(network, label, (3 * 2**16,), collectives, options=options)
        for planner, collectives in PLANNERS.items():
            yield Group(network, planner, (2**17,), collectives, planner=planner)
    yield Group("a100", "large", (2**22,))
    yield Group("a100", "large-slice64k", (2**22,), SYMMETRIC, options={"slice_bytes": 2**16})
    control: dict[str, Any] = {"sizes": (2**16,), "placements": PLACEMENTS[:1], "expected": "wrong"}
    yield Group("ring4", "control-root", collectives=("broadcast",), judged_root=2, **control)
    yield Group("full4", "control-chunk", collectives=("allgather",), damage=put_elsewhere, **control)
    control["expected"] = "timeout"
    yield Group("ring4", "control-silent", collectives=("broadcast",), damage=silence, **control)


def write_cases(folder: Path, only: str = "") -> tuple[list[Case], list[str]]:
    """Write the files with this in their names; list their cases, and what collopt refused to write and why."""
    folder.mkdir(parents=True, exist_ok=True)
    cases: list[Case] = []
    refused = []
    for group in groups():
        for collective in group.collectives:
            for placement in group.placements[: 1 if collective == "all_to_all" else 2]:
                path = folder / f"{group.network}-{collective}-{placement}-{group.label}.json"
                if only not in path.stem:
                    continue
                try:
                    plan = _plan(group.network, collective, group.planner, group.root)
                    plan.to_mscclpp_json(path, placement=placement, **group.options)
                except UnsupportedError as error:
                    refused.append(f"{path.stem}: {error}")
                else:
                    cases += _cases_of(path, group, collective, placement, len(cases))
    return cases, refused


@cache
def _plan(network: str, collective: Any, planner: Any, root: int) -> collopt.Plan:
    rooted: Any = {"root": root} if collective in ("broadcast", "reduce") else {}
    return collopt.plan(NETWORKS[network](), collective, planner=planner, **rooted)


def _cases_of(path: Path, group: Group, collective: str, placement: str, first: int) -> Iterator[Case]:
    document = json.loads(path.read_text(encoding="utf-8"))
    if group.damage:
        group.damage(document)
        document["name"] = path.stem  # by which the executor caches what it set up
        path.write_text(json.dumps(document), encoding="utf-8")
    send, receive = (document["gpus"][0][f"{buffer}_chunks"] for buffer in ("input", "output"))
    step = UNIT * (receive if collective == "allgather" else send)
    least, most = -(-document["min_message_size"] // step), document["max_message_size"] // step
    counts = dict.fromkeys(min(max(1, least, round(size / step)), most) for size in group.sizes)
    for number, count in enumerate(counts, first):
        yield Case(
            name=f"{path.stem}-{step * count}",
            plan=str(path),
            collective=collective,
            ranks=len(document["gpus"]),
            placement=placement,
            root=group.root if group.judged_root is None else group.judged_root,
            send_bytes=UNIT * send * count,
            receive_bytes=UNIT * receive * count,
            dtype=list(TYPES)[number % len(TYPES)],
            calls=5 if step * count <= MANY_CALLS else 3,
            seed=number,
            expected=group.expected,
        )


def put_elsewhere(document: Document) -> None:
    """Give the first put of rank 0 the next chunk as its target."""
    gpu = document["gpus"][0]
    operations = [operation for block in gpu["threadblocks"] for operation in block["ops"]]
    operations += [inner for operation in operations for inner in operation.get("ops", ())]
    target = next(operation for operation in operations if operation["name"] == "put")["dst_buff"][0]
    target["index"] = (target["index"] + 1) % gpu["output_chunks"]


def silence(document: Document) -> None:
    """Take the signals out of the first thread block of rank 0: its peers wait for ever."""
    block = document["gpus"][0]["threadblocks"][0]
    block["ops"] = [operation for operation in block["ops"] if "signal" not in operation["name"]]
