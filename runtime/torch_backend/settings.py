"""Settings of the groups of the ``collopt`` backend, failures named in the environment, and comparison of settings."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import ColloptError, ProgramError, UnsupportedError
from ...schedules import as_bytes
from ...support.validation import shown
from ...topologies import Topology
from ..execution.agreement import first_line
from ..programs.program import check_counts

PLANS_VARIABLE = "COLLOPT_PLANS"
TOPOLOGY_VARIABLE = "COLLOPT_TOPOLOGY"

FAILURE_VARIABLES = ("COLLOPT_FAILURES", "COLLOPT_FAILURES_FILE")
"""What has failed, and a file that says so, which may change while ranks run; `Failure` has the form."""

AGREED = "fine"
REFUSED_PREFIX = "refused: "


def told_failures() -> str:
    """Return the failures that this rank is told of now, one in a line."""
    listed, path = map(os.environ.get, FAILURE_VARIABLES)
    try:
        file_text = Path(path).read_text(encoding="utf-8", errors="replace") if path else ""
    except FileNotFoundError:
        file_text = ""
    except OSError as error:
        file_text = str(error)  # It is refused later, as it is not the name of a failure.
    lines = (line.strip() for line in f"{listed or ''}\n{file_text}".splitlines())
    return "\n".join(filter(None, lines))


PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class BackendSettings:
    """Settings of a group, `plans`, `topology`, `slices` and `min_bytes` as in `configure`; checked when it is made."""

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
    """Set where the ``collopt`` backend gets its plans, for all groups that are made from now on.

    All ranks have to give the same settings.  The defaults are the environment variables ``COLLOPT_PLANS`` and
    ``COLLOPT_TOPOLOGY``.  The result can also be given to one group as its ``pg_options``, which take precedence.

    Raises `UnsupportedError` if an argument is none of those below.

    Parameters
    ----------
    plans : path, optional
        Folder of files that `Plan.save` wrote, each called ``*.json``, for any collectives and numbers of ranks.  Where
        several suit a call, the one with the least predicted time at its size is taken.  Those of collectives that the
        backend does not run, or that are not registered, are ignored with a warning.
    topology : Topology or path, optional
        Network of a group of as many ranks, and its file.  Plan files for as many ranks have to be for this network;
        a collective without one is planned when it is first called.
    slices : int
        Pieces of the data that follow each other through the network; see `collopt.runtime.execute`.
    min_bytes : int or str
        Bytes of the whole collective, such as ``"64K"``, below which the wrapped backend is used.

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
    """Return the settings with `min_bytes` as a number; `UnsupportedError` if a value is invalid."""
    for name, value in (("plans", settings.plans), ("topology", settings.topology)):
        if value is not None and not isinstance(value, (str, os.PathLike)):
            if name == "topology" and isinstance(value, Topology):
                continue
            raise UnsupportedError(f"{name} is {shown(value)}; expected a path{' or a Topology' * (name != 'plans')}")
    check_counts({"slices": settings.slices})
    return replace(settings, min_bytes=as_bytes(settings.min_bytes, "min_bytes", low=0))


def current_settings() -> BackendSettings:
    """Return the settings of the last call of `configure`, or those of the environment."""
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


def compare_digests(store: Any, rank: int, size: int, digest: str | ColloptError) -> None:
    """Compare the ranks' digests through the store; raise on every rank if they differ or one rank has an error."""
    own = f"{REFUSED_PREFIX}{digest}" if isinstance(digest, ColloptError) else digest
    try:
        # A store may have seen a group of the same name, which was destroyed.
        name = f"collopt-{store.add(f'collopt-turn-{rank}', 1)}"
        store.set(f"{name}-{rank}", own)
        if rank == 0:
            digests = [store.get(f"{name}-{peer}").decode() for peer in range(size)]
            store.set(f"{name}-verdict", _verdict(digests))
        verdict = store.get(f"{name}-verdict").decode()
    except RuntimeError as error:
        if isinstance(digest, ColloptError):
            raise digest from None
        raise ProgramError(f"the ranks could not compare their plans: {first_line(error)}") from error
    if isinstance(digest, ColloptError):
        raise digest
    if verdict != AGREED:
        raise ProgramError(verdict)


def _verdict(digests: list[str]) -> str:
    for rank, digest in enumerate(digests):
        if digest.startswith(REFUSED_PREFIX):
            return f"rank {rank} has {digest}"
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            return (
                f"ranks 0 and {rank} have different plans or settings for the collopt backend; give all ranks the same "
                "files and the same arguments of configure"
            )
    return AGREED
