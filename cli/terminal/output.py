"""Output of the commands: data to standard output, messages to standard error, and the exit status."""

from __future__ import annotations

import csv
import errno
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType
    from rich.table import Table

CHECK_FAILED = 1  # A check failed: a plan, file or run is not what it claims to be
UNUSABLE = 2  # The request or the input cannot be used
INTERRUPTED = 130  # Interrupted, as shells have it

_FORMULA = re.compile(r"\s*(?:[=@]|[+-](?!\d+(?:[./]\d+)?(?:e[+-]?\d+)?\Z))", re.IGNORECASE)
"""Beginnings of text that spreadsheets take for a formula; exact numbers are none."""

_log = logging.getLogger("collopt.cli")

Rows = Sequence[Mapping[str, Any]]

BROKEN_PIPE = 141
"""What a shell reports for a program that SIGPIPE ended: whoever read the output has gone, which is no error."""

MAX_COLUMNS = 10**4  # Columns of what is not a terminal: programs that read a table want each entry on one line


def emit(renderable: RenderableType) -> None:
    """Print text or a table of rich, colored only on a terminal; text is never wrapped."""
    from rich.console import Console
    from rich.text import Text

    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    # Rich writes to a text and not to standard output, whose errors are for `_write` alone to handle.
    text = io.StringIO()
    console = Console(
        file=text,
        force_terminal=on_terminal,
        width=None if on_terminal else MAX_COLUMNS,
        highlight=False,
        markup=False,  # a name may hold square brackets
        emoji=False,  # or colons
    )
    console.print(renderable, soft_wrap=isinstance(renderable, (str, Text)))
    _write("".join(line.rstrip() + "\n" for line in text.getvalue().splitlines()))


def emit_json(data: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print `data` as JSON, each of its entries on one line."""
    if isinstance(data, Mapping):
        entries = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]
        _write("{\n" + ",\n".join(entries) + "\n}\n")
    else:
        _write("[\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in data) + "\n]\n")


def emit_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as CSV: a header, numbers in full, nothing for what is missing, JSON for lists, no formulas."""
    text = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    _write(text.getvalue())


class Formats(NamedTuple):
    """Options that ask for a result in a form for programs."""

    as_json: bool = False
    as_csv: bool = False

    def emit(self, rows: Callable[[], Rows], document: Callable[[], Mapping[str, Any] | Rows] | None = None) -> bool:
        """Print rows as CSV, or a document, by default these rows, as JSON, if asked for; return whether."""
        if self.as_json:
            emit_json((document or rows)())
        elif self.as_csv:
            emit_csv(rows())
        return any(self)


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table for JSON and CSV: exact numbers as text, None for what is missing."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [
        {str(name): str(value) if isinstance(value, Fraction) else value for name, value in row.items()} for row in rows
    ]


def flat(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings, for a row of a table.

    >>> flat({"algbw": 2.0, "bound": {"algbw": 4.0}})
    {'algbw': 2.0, 'bound_algbw': 4.0}
    """
    row: dict[str, Any] = {}
    for name, value in figures.items():
        inner = flat(value) if isinstance(value, Mapping) else {"": value}
        row |= {f"{name}_{key}" if key else name: entry for key, entry in inner.items()}
    return row


def bare_table(*headers: str) -> Table:
    """Make a table without lines."""
    from rich.table import Table

    return Table(*headers, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def number_table(*headers: str, text: Collection[str] = ()) -> Table:
    """Make a table without lines whose cells do not wrap, right-aligned but for columns of text."""
    table = bare_table()
    for header in headers:
        table.add_column(header, justify="left" if header in text else "right", no_wrap=True)
    return table


def plain_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Format rows below a header: text left-aligned, numbers in six digits right-aligned."""
    text = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    table = number_table(*dict.fromkeys(name for row in rows for name in row), text=text)
    for row in rows:
        cells = (
            "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
            for value in row.values()
        )
        table.add_row(*cells)
    return table


def emit_rows(title: str, rows: Mapping[str, str]) -> None:
    """Print a title and, below it, named values in two columns."""
    width = max(map(len, rows))
    try:
        from rich.text import Text
    except ModuleNotFoundError:
        # It is for `collopt doctor` to say so.
        _write("\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows.items())]) + "\n")
        return
    text = Text(title, style="bold")
    for name, value in rows.items():
        text.append(f"\n  {name:<{width}}  ", style="not bold cyan").append(value, style="not bold")
    emit(text)


def note(message: str) -> None:
    """Print a line on standard error; unprintable characters are escaped."""
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(message.split()))
    # Nothing is lost where standard error is closed: nobody listens.
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def advise(message: str) -> None:
    """Print advice on standard error at a terminal, and elsewhere log it, as ``-v`` shows."""
    if sys.stderr is not None and sys.stderr.isatty():
        note(f"collopt: note: {message}")
    else:
        _log.info("%s", message)


def _cell(value: object) -> object:
    """Format booleans and lists as JSON; an apostrophe keeps spreadsheets from running text as a formula."""
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return json.dumps(value) if isinstance(value, (bool, list, tuple, Mapping)) else value


def _write(text: str) -> None:
    """Write to standard output and flush it."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "is closed", "standard output")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        # The µ of a terminal that knows only ASCII must not end in a stack trace.
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        give_up_output()
        if isinstance(error, BrokenPipeError):
            import typer  # late, since `collopt` says what is missing where typer is

            # As an exit and not an error: typer would make it status 1, which says that a check failed.
            raise typer.Exit(BROKEN_PIPE) from None
        raise OSError(error.errno, f"cannot be written: {error.strerror}", "standard output") from error


def give_up_output() -> None:
    """Discard buffered output, so that Python reports no error for it at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
