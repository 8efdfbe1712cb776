"""Makes the backends that the ``collopt`` backend wraps, as `init_process_group` would make them."""

from __future__ import annotations

from typing import Any

from ....errors import UnsupportedError
from ..calls.arguments import import_torch

NAMES = {"cpu": "gloo", "cuda": "nccl"}
"""Wrapped backends by type of device."""


def available_devices() -> tuple[str, ...]:
    """Return the types of devices that there is a backend for: Gloo for the CPU, and NCCL where there are GPUs."""
    torch, dist = import_torch()
    there = {"cpu": dist.is_gloo_available(), "cuda": dist.is_nccl_available() and torch.cuda.is_available()}
    if not any(there.values()):
        raise UnsupportedError("this build of torch has neither gloo nor nccl, which the collopt backend wraps")
    return tuple(device for device, found in there.items() if found)


def plain_group(options: Any, prefix: str, backends: dict[str, Any]) -> Any:
    """Make a group of torch's own kind."""
    _, dist = import_torch()
    store = dist.PrefixStore(prefix, options.store)
    group = dist.ProcessGroup(store, options.group_rank, options.group_size)
    register(group, backends)
    return group


def register(group: Any, backends: dict[str, Any]) -> None:
    """Let a group use backends by type of device; the last is for calls without tensors."""
    torch, dist = import_torch()
    kinds = {device: getattr(dist.ProcessGroup.BackendType, NAMES[device].upper()) for device in backends}
    group._set_default_backend(kinds[next(reversed(kinds))])
    for device, backend in backends.items():
        group._register_backend(torch.device(device), kinds[device], backend)


def connected(options: Any, prefix: str, device: str, nccl_options: object = None) -> Any:
    """Connect this rank to the others of its group by the backend for one type of device."""
    _, dist = import_torch()
    store = dist.PrefixStore(f"{prefix}{device}/", options.store)
    if device == "cpu":
        made = dist.ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
    else:
        nccl = dist.ProcessGroupNCCL
        chosen = nccl_options if isinstance(nccl_options, nccl.Options) else nccl.Options()
        chosen._timeout = options.timeout
        chosen.global_ranks_in_group = options.global_ranks_in_group
        chosen.group_name = f"{options.group_id}{prefix}"
        made = nccl(store, options.group_rank, options.group_size, chosen)
    made._set_sequence_number_for_group()
    return made


def lane(options: Any, ranks: list[int], device: str) -> Any:
    """Make a second, plain group of the same ranks, for the messages of plans on one type of device.

    `new_group` would not do: only the members come here, and its names for such groups count the groups that each
    member is in, which may differ.  So torch is told no more of the group than sending and receiving asks for;
    `forget_lane` takes that back.
    """
    _, dist = import_torch()
    prefix = "collopt-plans/"
    made = plain_group(options, prefix, {device: connected(options, prefix, device)})
    made._set_group_name(f"{options.group_id}-{prefix}{device}")
    world = dist.distributed_c10d._world
    world.pg_map[made] = (NAMES[device], options.store)
    world.pg_group_ranks[made] = {rank: at for at, rank in enumerate(ranks)}
    return made


def forget_lane(made: Any) -> None:
    """End what `lane` began."""
    _, dist = import_torch()
    made.shutdown()
    world = dist.distributed_c10d._world
    world.pg_map.pop(made, None)
    world.pg_group_ranks.pop(made, None)
