"""Where the ``collopt`` backend of torch.distributed has its plans from, and from what size on it uses them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from ....errors import UnsupportedError
from ....schedules import as_bytes
from ....support.validation import shown
from ....topologies import Topology
from ...programs.checks import check_counts

PLANS_VARIABLE = "COLLOPT_PLANS"
TOPOLOGY_VARIABLE = "COLLOPT_TOPOLOGY"

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class BackendSettings:
    """What one group of ranks is to do; the same as `configure` takes, and checked when the group is made.

    Attributes
    ----------
    plans : path or None
        Folder with plan files.
    topology : Topology, path or None
        Network to plan on where there is no file.
    slices : int
        Pieces of the data that follow each other; see `collopt.runtime.execute`.
    min_bytes : int
        Smaller messages go to the wrapped backend.
    """

    plans: PathLike | None = None
    topology: Topology | PathLike | None = None
    slices: int = 1
    min_bytes: int = 0


_configured: list[BackendSettings] = []


def configure(
    *,
    plans: PathLike | None = None,
    topology: Topology | PathLike | None = None,
    slices: int = 1,
    min_bytes: int | str = 0,
) -> BackendSettings:
    """Say where the ``collopt`` backend has its plans from, for all groups that are made from now on.

    All ranks have to say the same.  Without this call the environment variables ``COLLOPT_PLANS`` and
    ``COLLOPT_TOPOLOGY`` say it; a call counts more than they do.

    Parameters
    ----------
    plans : path, optional
        Folder of files that `Plan.save` wrote, each called ``*.json``, for any collectives and numbers of ranks.  Where
        several suit a call, the one with the least predicted time at its size is taken.
    topology : Topology or path, optional
        Network of a group of as many ranks, and its file.  Plan files for as many ranks have to be for this network;
        a collective without one is planned when it is first called.
    slices : int
        Pieces of the data that follow each other through the network; see `collopt.runtime.execute`.
    min_bytes : int or str
        Bytes of the whole collective, such as ``"64K"``, below which the wrapped backend is used.

    Returns
    -------
    BackendSettings
        Can be given to one group as its ``pg_options`` too, which then counts more than anything else.

    Raises
    ------
    UnsupportedError
        If an argument is none of these.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> configure(topology=ring(4, bandwidth=25), min_bytes="64K").min_bytes
    65536
    """
    settings = _checked(BackendSettings(plans, topology, slices, min_bytes))  # type: ignore[arg-type]  # or text
    _configured[:] = [settings]
    return settings


def _checked(settings: BackendSettings) -> BackendSettings:
    """Return the same settings with a number as `min_bytes`, or raise `UnsupportedError` for what is none."""
    for name, value in (("plans", settings.plans), ("topology", settings.topology)):
        if value is not None and not isinstance(value, (str, os.PathLike)):
            if name == "topology" and isinstance(value, Topology):
                continue
            raise UnsupportedError(f"{name} is {shown(value)}; expected a path{' or a Topology' * (name != 'plans')}")
    check_counts({"slices": settings.slices})
    least = as_bytes(settings.min_bytes) if isinstance(settings.min_bytes, str) else settings.min_bytes
    check_counts({"min_bytes": least}, least=0)
    return replace(settings, min_bytes=least)


def current_settings() -> BackendSettings:
    """Return what `configure` was told last, or else what the environment says."""
    if _configured:
        return _configured[0]
    plans, topology = (os.environ.get(name) or None for name in (PLANS_VARIABLE, TOPOLOGY_VARIABLE))
    return BackendSettings(plans, topology)


def settings_of(options: object) -> BackendSettings:
    """Return the settings of a group that was made with these ``pg_options``."""
    settings = _checked(options) if isinstance(options, BackendSettings) else current_settings()
    if settings.plans is None and settings.topology is None:
        raise UnsupportedError(
            f"the collopt backend has neither plans nor a topology; set {PLANS_VARIABLE} to a folder of plan files, or "
            "call collopt.runtime.backend.configure before init_process_group"
        )
    if settings.plans is not None and not Path(settings.plans).is_dir():
        raise UnsupportedError(f"plans is {shown(str(settings.plans))}; expected a folder with plan files in it")
    return settings
