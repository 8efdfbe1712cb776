"""``collopt report``: one page about a plan, with its certificate in words, that opens in any browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...schedules import as_bytes
from ..arguments.output_files import check_targets, writing
from ..arguments.parameters import sizes_option
from ..terminal.output import note
from ..terminal.progress import working

__all__ = ["report"]

PlansArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="PLAN...", help="Files that `collopt plan -o` wrote; several, of one purpose, are compared."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="The page; beside the first plan and named like it if left out."
    ),
]
SizesOption = Annotated[
    list[str] | None,
    sizes_option("Show time lines for so many bytes in all: 64M, 1G. Repeatable; 1M, 64M and 1G if left out."),
]
TitleOption = Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Of the page.")]


def report(
    plans: PlansArgument, output: OutputOption = None, size: SizesOption = None, title: TitleOption = None
) -> None:
    """Write a page about plans: why nothing is faster, and what each link does when."""
    from ...planners import load_plan
    from ...report import write_report

    target = plans[0].with_suffix(".html") if output is None else output
    # Whatever can be refused is refused before the work.
    for given in size or ():
        as_bytes(given)
    check_targets({"--output": target}, sources=plans)
    names = [path.stem for path in plans]
    # Files of the same name in different folders keep these.
    named = names if len(set(names)) == len(names) else [str(path) for path in plans]
    with working(f"verifying {', '.join(map(str, plans))}"):
        loaded = {name: load_plan(path) for name, path in zip(named, plans, strict=True)}
    with working(f"writing {target}"), writing(target):
        write_report(loaded if len(plans) > 1 else list(loaded.values()), target, sizes=size, title=title)
    note(f"wrote {target}")
