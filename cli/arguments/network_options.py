"""Options that describe a network, and messages that name them as they are typed."""

import re
from collections.abc import Iterator
from typing import NamedTuple


class NetworkOptions(NamedTuple):
    """Options given besides the network's name, as text; its builder, or the reader of its file, parses them."""

    boxes: str | None = None
    fabric: str | None = None
    nodes: str | None = None
    shape: str | None = None
    ranks: str | None = None
    relay: bool = False
    settings: list[str] | None = None
    scale: list[str] | None = None
    without: list[str] | None = None

    def given(self) -> list[str]:
        """Flags of the options that were given."""
        return list(dict.fromkeys(flag for flag, *_ in self._pairs()))

    def words(self) -> list[str]:
        """Write the options as they are typed."""
        return [word for pair in self._pairs() for word in pair]

    def _pairs(self) -> Iterator[tuple[str, ...]]:
        """Yield the flag of each option that was given, and its value if it takes one."""
        flags = ("--boxes", "--fabric", "--nodes", "--shape", "--ranks", "--relay", "--set", "--scale", "--without")
        for flag, value in zip(flags, self, strict=True):
            if isinstance(value, list):
                yield from ((flag, each) for each in value)
            elif value not in (None, False):
                yield (flag,) if value is True else (flag, str(value))


FLAGS = {"boxes": "--boxes", "n": "--nodes", "shape": "--shape", "fabric": "--fabric"}
"""Options of networks that have an option of their own here."""
EXAMPLES = {
    "gpu": "NAME",
    "figures": "nccl",
    "nic_bandwidth": "50",
    "pcie_bandwidth": "32",
    "nics": "8",
    "oversubscription": "2",
    "boxes_per_leaf": "4",
}
"""Options that ``--set`` takes of files, each with a value that makes sense."""
# ``option 'n' of ring is 'four'``, at the start of a message
BUILDER_OPTION = re.compile(r"option '(\w+)'(?= of \S+ is )")
OPTION_NAMES = "|".join([*EXAMPLES, "fabric", "boxes"])
LEADING_OPTION = re.compile(rf"({'|'.join([*FLAGS, *EXAMPLES])})(?= (?:is|does not) )")
"""``boxes is 0``, at the start of a message."""
GIVE_OPTION = re.compile(rf"(?<=\bgive )({OPTION_NAMES})(?P<unit> in GB/s)?(?=[,;.)]|$)")
"""``give fabric, one of ...`` and ``give nic_bandwidth in GB/s``."""
# ``say which GPU it is (gpu), one of ...``
OPTION_IN_PARENTHESES = re.compile(rf"(?<= \()({OPTION_NAMES})(?=\)(?:[,;. ]|$))")
OPTION_WITH_VALUE = re.compile(rf"(?<![^\s(])({OPTION_NAMES})=(?P<value>\.\.\.|'[^'\s]*'|\"[^\"\s]*\"|[^\s,;)]+)")
"""``(gpu="h100")`` and ``boxes=2``."""


def as_typed(message: str, file: str = "") -> str:
    """Rewrite the option names of a message as command-line flags.

    >>> as_typed("gpu.xml says nothing about it; give fabric, one of full, rail", "gpu.xml")
    'gpu.xml says nothing about it; give --fabric, one of full, rail'
    >>> as_typed('say which GPU it is (gpu="h100")')
    'say which GPU it is (--set gpu=h100)'
    >>> as_typed("its bandwidth is unknown; give nic_bandwidth in GB/s")
    'its bandwidth is unknown; give --set nic_bandwidth=50 for 50 GB/s'
    """
    for pattern in (LEADING_OPTION, BUILDER_OPTION):
        if pattern.match(message):
            message = pattern.sub(lambda match: FLAGS.get(match[1], f"--set {match[1]}"), message, count=1)
    parts = message.split(file) if file else [message]
    for pattern in (OPTION_WITH_VALUE, GIVE_OPTION, OPTION_IN_PARENTHESES):
        parts = [pattern.sub(_value_match, part) for part in parts]
    return file.join(parts)


def _value_match(match: re.Match[str]) -> str:
    option, found = match[1], match.groupdict()
    value = (found.get("value") or "").strip("'\"")
    if option in FLAGS:
        return f"{FLAGS[option]} {value}" if value else FLAGS[option]
    typed = f"--set {option}={EXAMPLES[option] if value in ('', '...') else value}"
    return f"{typed} for {EXAMPLES[option]} GB/s" if found.get("unit") else typed
