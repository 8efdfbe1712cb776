"""The MSCCL++ executor: its limits, its versions and their operations."""

from collections.abc import Mapping

from ...schedules import COLLECTIVES
from ..programs.program import Buffer

MAX_OPERATIONS = 64
"""Operations of one thread block, those inside pipelines included; the only limit that the executor checks itself."""
MAX_CHANNELS = 16  # Channels of one type, and remote buffers of one type, that one thread block uses
MAX_CHANNELS_PER_OPERATION = 8
MAX_SEMAPHORES_PER_OPERATION = 16  # A GPU may have more of them: the executor allocates as many as the plan lists
MAX_BUFFER_BYTES = 2**32 - 1  # Offsets are numbers of 32 bits
ALIGNMENT = 16
"""Bytes; chunks start at multiples of it.  The executor adds 16 bytes at once and the rest of a chunk wrongly."""
MAX_THREADS = 1024

WRITTEN = tuple(collective for collective in COLLECTIVES.values() if not collective.parts_differ)
"""Collectives of plan files; the executor treats allgather differently and ignores the names of the others."""

SWITCH_OPERATIONS = ("glres", "gstore")
"""Load-reduce-store (``execution_kernel.hpp`` of 0.9.0, line 523), and store (in the main branch, line 587)."""
VERSIONS = ("0.8.0", "0.9.0", "0.10.0", "main")
"""Releases of MSCCL++ that load these files, and its main branch of August 2026; 0.7 reads another format."""
VERSION, MAIN, STORING = VERSIONS[1], VERSIONS[3], VERSIONS[2:]
"""The usual version, the newest one, and those that load ``gstore``, since 414f6d1 of July 2026."""
OFFSET_IDS: Mapping[Buffer, int] = {"input": 0, "output": 1}
"""``buffer_id`` of a source of a port channel that gets its offset: the value of its ``BufferType`` in the executor."""
DATA_OPERATIONS = ("put", "pws", "copy", "re", *SWITCH_OPERATIONS)
WAITING = ("wait", "rlxwait")
SIGNALLING = ("signal", "rlxsignal")
SEMAPHORE_OPERATIONS = ("sem_acquire", "sem_release")
