"""A backend of torch.distributed that runs collectives by plans: ``init_process_group("collopt")``.

Importing this module registers it.  It wraps Gloo for CPU tensors and NCCL (or RCCL) for CUDA tensors, which also run
calls without a plan; each reason is logged once to ``collopt.runtime.backend``, as a warning on the group's first rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ColloptError, UnsupportedError
from .execution.arguments import import_torch
from .plan_cache import BackendSettings, PlanCache, compare_digests, configure, settings_of

if TYPE_CHECKING:
    import torch.distributed as dist

__all__ = ["NAME", "BackendSettings", "Usage", "configure", "usage"]

NAME = "collopt"
"""Name of the backend for `init_process_group` and `new_group`."""


class Usage(NamedTuple):
    """Calls, by collective, that ran by a plan, `planned`, or by the wrapped backend, `fallback`, and the `failure`."""

    planned: dict[str, int]
    fallback: dict[str, int]
    failure: str = "intact"  # What the plans in use do without


def usage(group: dist.ProcessGroup | None = None) -> Usage:
    """Count the calls of collectives on a group, by default the default group, by what ran them.

    Raises `UnsupportedError` if it has another backend.
    """
    _, dist = import_torch()
    from .process_group import PlannedGroup

    process_group = dist.group.WORLD if group is None else group
    if not isinstance(process_group, PlannedGroup):
        raise UnsupportedError("the group has another backend; expected one of init_process_group('collopt')")
    return Usage(dict(process_group.planned), dict(process_group.fallback), str(process_group._cache.failure))


def _create(options: Any, group_options: Any) -> Any:
    """Create a process group; torch calls this on each of its ranks."""
    from .process_group import PlannedGroup

    settings, cache = None, None
    try:
        settings = settings_of(group_options)
        _, dist = import_torch()
        world_size = dist.get_world_size() if dist.is_initialized() else options.group_size
        cache = PlanCache(settings, options.group_size, list(options.global_ranks_in_group), world_size)
        digest: str | ColloptError = cache.digest
    except ColloptError as error:
        digest = error
    compare_digests(options.store, options.group_rank, options.group_size, digest)
    assert settings  # Or `compare_digests` would have raised the error of this rank.
    assert cache
    return PlannedGroup(options, group_options, settings, cache)


import_torch()[1].Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
