"""Topologies from the arguments and options that describe a network."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ...errors import FileFormatError, TopologyError
from ...support.files import NETWORK_KINDS, wrong_kind
from ...support.quantities import as_bandwidth, nic_unit_warning
from ...support.validation import shown
from ...topologies import CatalogueEntry, Failure, Topology, build, scaled_links
from ...topologies.builders import find_entry, names_file
from ...topologies.importing.read import ImportOptions, import_boxes, import_network
from .output import note
from .parameters import NETWORK_FLAGS, NetworkOptions, UsageError, whole_number

FILE_COUNTS = {"boxes", "nics", "boxes_per_leaf"}  # Options of files that are whole numbers


def find_network(name: str, options: NetworkOptions) -> Topology:
    """Build or read the topology of a command."""
    file = network_file(name)
    return _with_failures(_build(name, options) if file is None else _read([file], options), options)


def find_networks(texts: Sequence[str]) -> list[Topology]:
    """Build or read several networks, each a text of a name and its own options, such as ``torus --shape 4x4``."""
    networks = []
    for text in texts:
        try:
            name, *words = shlex.split(text) or [""]
        except ValueError as error:
            raise UsageError(f"{shown(text)} cannot be split into words: {error}") from None
        networks.append(find_network(name, _options_of_words(words, text)))
    return networks


def _options_of_words(words: Sequence[str], text: str) -> NetworkOptions:
    """Read the options of one network, as they are typed."""
    values: dict[str, list[str]] = {}
    waiting = iter(words)
    for flag in waiting:
        if flag not in NETWORK_FLAGS:
            expected = ", ".join(NETWORK_FLAGS)
            raise UsageError(f"{shown(flag)} in {shown(text)} is no option of a network; expected one of {expected}")
        value = "" if flag == "--relay" else next(waiting, None)
        if value is None:
            raise UsageError(f"{flag} in {shown(text)} has no value")
        values.setdefault(NETWORK_FLAGS[flag], []).append(value)
    repeatable = ("settings", "scale", "without")
    for name, entries in values.items():
        if len(entries) > 1 and name not in repeatable:
            raise UsageError(f"--{name} in {shown(text)} is given twice; keep one")
    fields: dict[str, Any] = {name: list(v) if name in repeatable else v[0] for name, v in values.items()}
    return NetworkOptions(**fields)._replace(relay="relay" in values)


def network_if_named(name: str | None, options: NetworkOptions) -> Topology | None:
    """Build or read the network of ``--topology``; None without one, which no option may describe then."""
    if name is None and (flags := options.flags()):
        raise UsageError(f"{flags[0]} describes a network; give --topology too, or leave it out")
    return None if name is None else find_network(name, options)


def join_files(files: Sequence[Path], options: NetworkOptions) -> Topology:
    """Join the boxes that files describe, one each, by the fabric that `options` ask for."""
    return _with_failures(_read(files, options), options)


def _with_failures(topology: Topology, options: NetworkOptions) -> Topology:
    """Apply ``--ranks``, ``--relay``, ``--scale`` and ``--without``."""
    if options.ranks is not None:
        topology = topology.restrict(_ranks(options.ranks), relay=bool(options.relay))
    elif options.relay:
        raise UsageError("--relay is about the compute nodes outside --ranks; give --ranks too")
    topology = scaled_links(topology, options.scale or [])
    failed = options.without or []
    try:
        return Failure.read(topology, failed).applied(topology)
    except TopologyError as error:
        raise UsageError(f"--without {' --without '.join(failed)}: {error}") from None


def network_file(name: str) -> Path | None:
    """Return the path of a network file, standard input for ``-``, or None for a catalogue name."""
    if name == "-":
        return Path("/dev/stdin")
    return Path(name) if names_file(name) else None


def flag_of(option: str) -> str:
    """Return the flag of a builder's option."""
    return FLAGS.get(option, f"--set {option}=...")


def _read(files: Sequence[Path], options: NetworkOptions) -> Topology:
    """Read one file, or several boxes."""
    if stray := [flag for flag in options.flags() if flag in ("--nodes", "--shape")]:
        holds = "which describes its network completely"
        raise UsageError(f"{stray[0]} does not go with {files[0]}, {holds}; leave it out")

    def typed(message: str) -> str:
        return as_typed(message, next((str(file) for file in files if str(file) in message), ""))

    # Bandwidths may stay text.
    settings = _merge_settings(options, {"boxes": options.boxes, "fabric": options.fabric}, f"the file {files[0]}")
    for name in FILE_COUNTS & settings.keys():
        settings[name] = whole_number(FLAGS.get(name, f"--set {name}"))(settings[name])
    if settings.get("oversubscription") == "none":
        settings["oversubscription"] = None
    import_options = cast("ImportOptions", settings)
    try:
        imported = import_boxes(files, import_options) if len(files) > 1 else import_network(files[0], import_options)
    except (TopologyError, FileFormatError) as error:
        if problem := next(filter(None, (wrong_kind(file, "a network", NETWORK_KINDS) for file in files)), None):
            raise FileFormatError(problem) from None
        raise type(error)(typed(str(error))) from None
    for message in imported.notes:
        note(f"collopt: note: {typed(message)}")
    return imported.topology


def _build(name: str, options: NetworkOptions) -> Topology:
    entry = find_entry(name, ", or the path of a file")
    if Path(name).is_file():
        note(f"collopt: note: using {name} from the catalogue; write .{os.sep}{name} for the file of that name")
    values = _values(entry, options)
    # Of an option that there is not, `build` says first which may have been meant.
    understood = values.keys() <= {parameter.name for parameter in entry.parameters}
    missing = [option for option in entry.parameters if option.required and option.name not in values]
    if understood and missing:
        words = " and ".join(f"{flag_of(parameter.name)}: {parameter.expected}" for parameter in missing)
        raise TopologyError(f"{entry.name} needs {words}")
    try:
        topology = build(entry.name, **values)
    except TopologyError as error:
        raise TopologyError(as_typed(str(error))) from None
    if (bandwidth := values.get("nic_bandwidth")) is not None and (
        doubt := nic_unit_warning(bandwidth, as_bandwidth(bandwidth, "every NIC"))
    ):
        note(f"collopt: note: {as_typed(doubt)}")
    return topology


def _values(entry: CatalogueEntry, options: NetworkOptions) -> dict[str, object]:
    """Collect the builder's options from flags and ``--set``."""
    typed = {"boxes": options.boxes, "n": options.nodes, "shape": options.shape, "fabric": options.fabric}
    names = [parameter.name for parameter in entry.parameters]
    for option, value in typed.items():
        if value is not None and option not in names:
            raise UsageError(f"{entry.name} has no option {FLAGS[option]}; expected {', '.join(map(flag_of, names))}")
    return _merge_settings(options, typed, entry.name)


def _merge_settings(options: NetworkOptions, typed: Mapping[str, object], owner: str) -> dict[str, object]:
    """Merge ``--set`` values with options that have a flag."""
    values = {option: value for option, value in typed.items() if value is not None}
    for setting in options.settings or []:
        option, equals, value = setting.partition("=")
        option = option.strip().replace("-", "_")
        if not option or not equals:
            raise UsageError(f"--set {shown(setting)} is not of the form NAME=VALUE, such as bandwidth=25")
        if option in values:
            raise UsageError(f"option {option!r} of {owner} is given twice; keep one")
        values[option] = value
    return values


def _ranks(text: str) -> Iterator[int | str]:
    """Read rank numbers, ranges of them and node names; one at a time, so that a vast range ends at its first error."""
    for part in text.split(","):
        word = part.strip()
        bounds = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", word)
        if not bounds:
            yield word
            continue
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if last < first:
            raise UsageError(f"the range {word} of --ranks is descending; expected {last}-{first}")
        yield from range(first, last + 1)


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
    option, groups = match[1], match.groupdict()
    value = (groups.get("value") or "").strip("'\"")
    if option in FLAGS:
        return f"{FLAGS[option]} {value}" if value else FLAGS[option]
    typed = f"--set {option}={EXAMPLES[option] if value in ('', '...') else value}"
    return f"{typed} for {EXAMPLES[option]} GB/s" if groups.get("unit") else typed
