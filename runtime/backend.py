"""A backend of torch.distributed that runs collectives by plans: ``init_process_group("collopt")``.

Importing this module registers it.  It wraps Gloo for CPU tensors and NCCL (or RCCL) for CUDA tensors, which carry the
messages of the plans, and do everything that there is no plan for; what they do the log ``collopt.runtime.backend``
says once for each reason, on the first rank of the group, as a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ColloptError, UnsupportedError
from .distributed.calls.arguments import import_torch
from .distributed.torch_backend.plan_cache import BackendSettings, compare, configure, settings_of

if TYPE_CHECKING:
    import torch.distributed as dist

__all__ = ["NAME", "BackendSettings", "Usage", "configure", "usage"]

NAME = "collopt"
"""What `init_process_group` and `new_group` call it."""


class Usage(NamedTuple):
    """How many collectives of a group were run by a plan and by the wrapped backend, by their names."""

    planned: dict[str, int]
    passed_on: dict[str, int]


def usage(group: dist.ProcessGroup | None = None) -> Usage:
    """Say what became of the calls on a group so far; raises `UnsupportedError` if it has another backend.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        None is the default group.

    Returns
    -------
    Usage
        Collectives that plans are never for, such as barriers and messages, are not counted.
    """
    _, dist = import_torch()
    from .distributed.torch_backend.process_group import PlannedGroup

    found = dist.group.WORLD if group is None else group
    if not isinstance(found, PlannedGroup):
        raise UnsupportedError("the group has another backend; expected one of init_process_group('collopt')")
    return Usage(dict(found.planned), dict(found.passed_on))


def _create(options: Any, group_options: Any) -> Any:
    """Make a group; torch calls this on each of its ranks."""
    from .distributed.torch_backend.plan_cache import PlanCache
    from .distributed.torch_backend.process_group import PlannedGroup

    digest: str | ColloptError
    settings, cache = None, None
    try:
        settings = settings_of(group_options)
        cache = PlanCache(settings, options.group_size)
        digest = cache.digest
    except ColloptError as error:
        digest = error
    compare(options.store, options.group_rank, options.group_size, digest)
    assert settings is not None  # Or `compare` would have raised the error of this rank.
    assert cache is not None
    return PlannedGroup(options, group_options, settings, cache)


def _register() -> None:
    _, dist = import_torch()
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


_register()
