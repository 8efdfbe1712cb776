"""A backend of torch.distributed that runs collectives by plans: ``init_process_group("collopt")``.

Importing this module registers it.  It wraps Gloo for CPU tensors and NCCL (or RCCL) for CUDA tensors, which carry the
messages of the plans, and run every call that has no plan; each reason for that is logged once to
``collopt.runtime.backend``, as a warning on the first rank of the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ColloptError, UnsupportedError
from .execution.arguments import import_torch
from .plan_cache import BackendSettings, compare_digests, configure, settings_of

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
    """Count the calls on a group so far that ran by a plan; raises `UnsupportedError` if it has another backend.

    Operations that plans do not cover, such as barriers and point-to-point messages, are not counted.  Without `group`
    those are the calls on the default group.
    """
    _, dist = import_torch()
    from .torch_backend.process_group import PlannedGroup

    process_group = dist.group.WORLD if group is None else group
    if not isinstance(process_group, PlannedGroup):
        raise UnsupportedError("the group has another backend; expected one of init_process_group('collopt')")
    return Usage(dict(process_group.planned), dict(process_group.fallback), str(process_group._cache.failure))


def _create(options: Any, group_options: Any) -> Any:
    """Create a process group; torch calls this on each of its ranks."""
    from .plan_cache import PlanCache
    from .torch_backend.process_group import PlannedGroup

    digest: str | ColloptError
    settings, cache = None, None
    try:
        settings = settings_of(group_options)
        cache = PlanCache(settings, options.group_size)
        digest = cache.digest
    except ColloptError as error:
        digest = error
    compare_digests(options.store, options.group_rank, options.group_size, digest)
    assert settings is not None  # Or `compare_digests` would have raised the error of this rank.
    assert cache is not None
    return PlannedGroup(options, group_options, settings, cache)


def _register() -> None:
    _, dist = import_torch()
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


_register()
