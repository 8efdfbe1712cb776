"""Whether somebody else, such as torchrun, has started this process as one of the ranks, and as which."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from ....errors import UnsupportedError

REQUIRED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torch.distributed needs to bring ranks together; torchrun sets all of them."""
LAST_PORT = 65535


class Launch(NamedTuple):
    """What a launcher has told this process.

    `rank`, `size`: Which of how many ranks this process is.
    `local_rank`, `local_size`: The same among the ranks on this machine; taken to be all of them where the launcher
        does not say.
    `meeting_point`: Host and port at which the ranks meet.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    meeting_point: str


def launched_rank() -> int | None:
    """Return which rank this process is, or None if nobody has started it as one.

    It is one if torch.distributed is initialised, or by the environment variables that torchrun sets.  `run_local`
    starts processes where this is None, and runs one rank in this process otherwise.

    Returns
    -------
    int or None

    Raises
    ------
    UnsupportedError
        If some of the variables are missing or make no sense.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank: int = distributed.get_rank()
        return rank
    launch = launch_of_environment()
    return None if launch is None else launch.rank


def launch_of_environment() -> Launch | None:
    """Read the environment variables of torchrun.

    Batch systems set some of these names too, each for itself, so a lonely one means nothing: a launch is a
    ``WORLD_SIZE`` together with a ``RANK`` or a ``MASTER_ADDR``, and then everything has to be there.
    """
    if "WORLD_SIZE" not in os.environ or not {"RANK", "MASTER_ADDR"} & os.environ.keys():
        return None
    if missing := [name for name in REQUIRED if not os.environ.get(name)]:
        raise UnsupportedError(
            f"the environment has WORLD_SIZE but no {missing[0]}; start the ranks with torchrun, which sets "
            f"{', '.join(REQUIRED)}, or unset WORLD_SIZE to run all ranks on this machine"
        )
    size = _number("WORLD_SIZE", 1, sys.maxsize)
    rank = _number("RANK", 0, size - 1)
    port = _number("MASTER_PORT", 1, LAST_PORT)
    local_size = _number("LOCAL_WORLD_SIZE", 1, size) if "LOCAL_WORLD_SIZE" in os.environ else size
    local_rank = _number("LOCAL_RANK", 0, local_size - 1) if "LOCAL_RANK" in os.environ else rank
    return Launch(rank, size, local_rank, local_size, f"{os.environ['MASTER_ADDR']}:{port}")


def _number(name: str, least: int, most: int) -> int:
    text = os.environ[name]
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
    if not least <= value <= most:
        upper = "" if most == sys.maxsize else f" to {most}"
        raise UnsupportedError(
            f"the environment variable {name} is {text!r}; expected a whole number from {least}{upper or ' on'}"
        )
    return value
