"""What ranks of the ``collopt`` backend do with all-to-alls of unequal parts; the processes import it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from all_to_all_tasks import TRAILING, TYPES, matrices
from runtime_tasks import message_of

from collopt.runtime import backend
from collopt.topologies import Topology, rail


class Uneven(NamedTuple):
    """Whether each exchange agreed with torch's, the calls by plans and others, and what wrong splits raised."""

    agrees: dict[str, bool]
    planned: dict[str, int]
    fallback: dict[str, int]
    refused: str


def network(boxes: int, gpus: int) -> Topology:
    """Boxes of so many GPUs, each with a NIC; of four boxes one has lost one."""
    return rail(boxes, gpus).without_node("box1/nic1") if boxes == 4 else rail(boxes, gpus)


def exchange(rank: int, folder: str, boxes: int, gpus: int) -> Uneven:
    """Many matrices, waited for or not, in one tensor or several, also strided."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    ranks = boxes * gpus
    backend.configure(topology=network(boxes, gpus))
    dist.init_process_group("collopt", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    own = dist.new_group(backend="gloo")
    agrees: dict[str, bool] = {}
    for at, (name, matrix) in enumerate(each for seed in range(2) for each in matrices(seed, ranks).items()):
        takes, sends = matrix[:, rank].tolist(), matrix[rank].tolist()
        shape, dtype = TRAILING[at % 4], TYPES[at % 4]
        mine = (torch.arange(sum(sends) * torch.empty(shape).numel()) + rank).to(dtype).view(-1, *shape)
        wanted = torch.zeros(sum(takes), *shape, dtype=dtype)
        dist.all_to_all_single(wanted, mine, takes, sends, group=own)
        for asynchronous in (False, True):
            output, parts = torch.zeros_like(wanted), list(torch.zeros_like(wanted).split(takes))
            works: list[Any] = [
                dist.all_to_all_single(output, mine, takes, sends, async_op=asynchronous),
                dist.all_to_all(parts, list(mine.split(sends)), async_op=asynchronous),
            ]
            assert all(work.wait() for work in works if asynchronous)
            agrees[f"{at}: {name}, {asynchronous}"] = torch.equal(output, wanted) and torch.equal(
                torch.cat(parts), wanted
            )
    usage = backend.usage()
    output = torch.zeros(ranks)
    wrong = [1] * (ranks - 2) + ([1, 1] if rank != 1 else [0, 2])
    refused = message_of(lambda: dist.all_to_all_single(output, torch.ones(ranks), [1] * ranks, wrong))
    assert not output.any()
    dist.destroy_process_group()
    return Uneven(agrees, usage.planned, usage.fallback, refused)
