"""``collopt probe``: rounds of pairwise runs that identify slow NICs, links and switches, and what their logs prove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.formatting import count_text, percentage_text
from ..terminal.networks import find_network
from ..terminal.output import Formats, emit, note, plain_rows, plain_table
from ..terminal.parameters import NetworkOptions, UsageError
from ..terminal.progress import computing

if TYPE_CHECKING:
    from ...runtime import Identification


def probe(
    source: str,
    described: NetworkOptions,
    formats: Formats,
    logs: list[Path] | None = None,
    faults: int | None = None,
    size: str | None = None,
    output: Path | None = None,
) -> None:
    """Plan rounds of pairwise runs that find slow NICs, links and switches, or read the results of such runs.

    Of a network, --output has the rounds, with scripts for nccl-tests and torch.distributed.  Of such a folder, the
    logs are read, and --output has the next round, if one is needed.
    """
    from ...runtime import probe as planned
    from ...runtime import read_probe

    result = None
    if not (Path(source) / "probe.json").is_file():
        if logs:
            raise UsageError(f"{logs[0]} is a log, but {source} is no folder of a probe; name one before its logs")
        rounds = planned(find_network(source, described), faults or 1, size=size or "256M")
    else:
        if flags := [*described.flags(), *(["--faults"] if faults else []), *(["--size"] if size else [])]:
            raise UsageError(f"{flags[0]} is about new rounds, and {source} has its own; leave it out")
        rounds = read_probe(source)
        with computing(f"reading {source}"):
            result = rounds.read(logs or sorted((Path(source) / "logs").glob("*")))
    if output and result is None:
        rounds.write(output)
    elif output and result and result.next_round:
        rounds.followed_by(result.next_round).write(output, first=len(rounds.rounds))
    if result is None:
        if not formats.emit(lambda: plain_rows(rounds.to_frame())):
            runs = f"{count_text(len(rounds.runs), 'run')} in {count_text(len(rounds.rounds), 'round')}"
            emit(f"{rounds.topology.name}: {runs} identify {count_text(rounds.faults, 'slow NIC')} or fewer")
    elif not formats.emit(lambda: _rows(result), lambda: _document(result)):
        _print(result)
    if output and result and not result.next_round:
        note(f"collopt: note: no further round tells more; {output} is not written")
    elif output:
        note(f"wrote {output}")


def _rows(result: Identification) -> list[dict[str, Any]]:
    return [state._asdict() | {"runs": list(map(str, state.runs))} for state in result.parts]


def _document(result: Identification) -> dict[str, Any]:
    names = ("verdict", "unique", "faults", "normal", "threshold", "explanations", "notes", "next_round")
    return {name: getattr(result, name) for name in names} | {"parts": _rows(result)}


def _print(result: Identification) -> None:
    emit(result.verdict)
    rows = []
    for state in (state for state in result.parts if state.state != "healthy"):
        share = "" if state.share is None else percentage_text(state.share)
        runs = ", ".join(map(str, state.runs))
        rows.append(
            {"part": state.part, "state": state.state, "GB/s": state.rate, "of normal": share, "proved by": runs}
        )
    if rows:
        emit(plain_table(rows))
    healthy = [state for state in result.parts if state.state == "healthy"]
    emit(f"{count_text(len(healthy), 'part')} cleared by fast runs, of {result.normal:.4g} GB/s; --json has these")
    if result.next_round:
        emit(f"next round: {', '.join('--'.join(pair) for pair in result.next_round)}")
    for text in result.notes:
        note(f"collopt: note: {text}")
