"""How the MSCCL runtimes differ in what they load and when they pick it, version by version.

Read from the sources of microsoft/msccl (2.12.12), Azure/msccl-executor-nccl (2.23.4) and ROCm/rccl (ROCm 5.5 to 6.3;
the changelogs after), and from the threads that the comments name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ....errors import UnsupportedError
from ....schedules import Collective
from ....support.validation import shown
from .limits import JOINED, MICROSOFT, RuntimeLimits, runtime_limits

UNLIMITED = 2**63
MSCCL_DEFAULT_MAX_BYTES = 2**27
FUSED = frozenset({"rcs", "rrs", "rrc", "rrcs"})
"""Steps that receive and do something else in the same go."""
PLAIN = frozenset({"s", "r", "cpy", "re", "nop"})

ATTRIBUTES = ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace")
OTHERS = ("send", "recv", "gather", "scatter", "alltoallv")


@dataclass(frozen=True)
class Dialect:
    """What one version of one runtime does with a file.

    `limits`: Those that do not depend on the version.
    `required`: Attributes that an algo element must have.
    `collectives`: What the runtime calls each collective that collopt knows, the other way round: its spelling to ours.
    `other_collectives`: Spellings that it takes besides.
    `max_channels`, `max_thread_blocks`: That the parser takes.
    `step_types`: That the parser takes.
    `launches_fused`: Whether it also runs those that receive and send on or add.
    `absent`: Why this version loads no such files at all; empty if it does.
    """

    limits: RuntimeLimits
    version: str
    required: tuple[str, ...]
    collectives: Mapping[str, Collective]
    other_collectives: tuple[str, ...]
    max_channels: int
    max_thread_blocks: int
    step_types: frozenset[str]
    launches_fused: bool
    absent: str = ""

    @property
    def name(self) -> str:
        """Of the runtime."""
        return self.limits.name

    @property
    def is_microsoft(self) -> bool:
        """Whether it is the first of the three, from which the other two differ alike."""
        return self.name == "msccl"

    def placements(self, inplace: int, outofplace: int) -> tuple[bool, bool]:
        """Whether a file with these attributes is picked for calls in place, and for calls out of place."""
        return bool(inplace), not inplace if self.is_microsoft else bool(outofplace)

    def sizes(self, min_bytes: int | None, max_bytes: int | None) -> tuple[int, int]:
        """First size that selects a file with these attributes, and the first beyond; equal if none does."""
        least = min_bytes or 0
        if self.is_microsoft:
            most = MSCCL_DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
        else:
            most = max_bytes + 1 if max_bytes else UNLIMITED
        return least, max(least, most)


def dialect_of(runtime: str, version: str | None = None) -> Dialect:
    """Look up a runtime.

    >>> dialect_of("rccl", "6.0").launches_fused, dialect_of("rccl", "6.1").launches_fused
    (True, False)
    >>> dialect_of("rccl", "7.13").absent
    'RCCL has no MSCCL from ROCm 7.13 on'
    """
    limits = runtime_limits(runtime)
    if version is not None and not isinstance(version, str):
        raise UnsupportedError(f"version is {shown(version)}; expected text such as '6.4'")
    if limits.name == "rccl":
        return _rccl(limits, version)
    known = {"msccl": "2.12.12", "msccl-executor-nccl": "2.23.4"}[limits.name]
    if version not in (None, known):
        raise UnsupportedError(f"version is {shown(version)}; the one known of {limits.name} is {known}")
    if limits.name == "msccl":
        spelled = {theirs: ours for ours, theirs in MICROSOFT.items()}
        types = PLAIN | FUSED | {"ra"}
        return Dialect(
            limits, known, ("name", *ATTRIBUTES), spelled, ("custom",), 32, limits.hard_thread_blocks, types, True
        )
    return Dialect(
        limits, known, _LATER, _SPELLED, OTHERS, 32, limits.hard_thread_blocks, PLAIN | FUSED, launches_fused=True
    )


_LATER = (*ATTRIBUTES, "outofplace", "minBytes", "maxBytes")
"""What the two later runtimes read, and do without a default for: Azure/msccl#26, #37."""
_SPELLED = {theirs: ours for ours, theirs in JOINED.items()}

LAST_WITH_MSCCL = "7.12"


def _rccl(limits: RuntimeLimits, version: str | None) -> Dialect:
    release = _release(LAST_WITH_MSCCL if version is None else version)
    absent = ""
    if release < (5, 5):
        absent = "RCCL has MSCCL from ROCm 5.5 on"
    if release >= (7, 13):
        # RCCL 2.28.3; the functions stayed as empty ones (ROCm/rocm-systems#4340).
        absent = "RCCL has no MSCCL from ROCm 7.13 on"
    channels = 32 if release < (6, 1) else 64 if release < (6, 2) else 128
    blocks = 1024 if release < (6, 0) else 64
    # ROCm/rccl#1005 took the kernels of the fused steps out.
    return Dialect(
        limits,
        f"of ROCm {version or LAST_WITH_MSCCL}",
        _LATER,
        _SPELLED,
        OTHERS,
        channels,
        blocks,
        PLAIN | FUSED,
        release < (6, 1),
        absent,
    )


def _release(version: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})(\.[0-9]{1,4})?", version)
    # RCCL itself counts 2.15 to 2.28, which no release of ROCm that has a RCCL shares.
    if not found or int(found[1]) < 3:
        raise UnsupportedError(f"version is {shown(version)}; expected a release of ROCm, such as 6.4")
    return int(found[1]), int(found[2])
