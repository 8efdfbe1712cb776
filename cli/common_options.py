"""Options that all commands share: verbosity, solver threads and the random seed."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any, get_type_hints

import typer

from .arguments.network_options import NetworkOptions
from .arguments.parameters import ShardOptions, whole_number
from .arguments.runtime_files import RuntimeFiles
from .terminal.output import note

GROUPS = (NetworkOptions, ShardOptions, RuntimeFiles)
"""Options that several commands take together: a command has one parameter for all of a group."""
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
MOST_THREADS = 1024
MAX_SEED = 2**31 - 1
"""As `collopt.solvers.seeded` takes, whose module is read only where it is needed."""

VerboseOption = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        show_default=False,
        help="Log stages and their times to standard error; -vv also logs details and when each stage starts.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        parser=whole_number("--threads", 1, MOST_THREADS),
        help="Threads of the LP solver (default: chosen by HiGHS). All other work is single-threaded.",
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        parser=whole_number("--seed", 0, MAX_SEED),
        help="Random seed (default: 0).",
    ),
]
FURTHER = {"threads": ThreadsOption, "seed": SeedOption}


def with_common_options(command: Callable[..., None], *, takes: Collection[str]) -> Callable[..., None]:
    """Give a command ``--verbose`` and what else it takes of these, and spread out its groups of options."""
    own = inspect.signature(command, eval_str=True)
    groups = {each.name: each.annotation for each in own.parameters.values() if each.annotation in GROUPS}
    further = {"context": typer.Context, "verbose": VerboseOption} | {
        name: FURTHER[name] for name in FURTHER if name in takes
    }
    defaults: dict[str, int | None] = {"verbose": 0, **dict.fromkeys(FURTHER)}

    @functools.wraps(command)
    def called(*, context: typer.Context, verbose: int, **rest: Any) -> None:
        with ExitStack() as around:
            # The program's own -v, before the command's name, counts too.
            around.enter_context(_told(verbose + (context.obj or 0)))
            _limit(around, {name: rest.pop(name) for name in takes})
            for name, group in groups.items():
                rest[name] = group(**{field: rest.pop(field) for field in group._fields})
            command(**rest)

    # Typer looks at the signature, which is to be that of the command and not of this function.
    del called.__wrapped__
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, kind, annotation=annotation, default=defaults.get(name, inspect.Parameter.empty))
        for name, annotation in further.items()
    ]
    taken = [each.replace(kind=kind) for parameter in own.parameters.values() for each in _spread(parameter)]
    called.__signature__ = inspect.Signature([*taken, *added])  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*taken, *added)}
    return called


def _limit(around: ExitStack, given: Mapping[str, int | None]) -> None:
    """Let solvers and heuristics know of their threads and their seed."""
    asked = {name: value for name, value in given.items() if value is not None}
    if "threads" in asked:
        from ..solvers.highs.options import limited_threads

        around.enter_context(limited_threads(asked["threads"]))
    if "seed" in asked:
        from ..support.seed import seeded

        around.enter_context(seeded(asked["seed"]))


def _spread(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options of a group, or the parameter itself where it is none."""
    if parameter.annotation not in GROUPS:
        return [parameter]
    annotations = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(field, parameter.kind, annotation=annotations[field], default=None)
        for field in parameter.annotation._fields
    ]


class _Notes(logging.Handler):
    """Writes records to whatever standard error is at the time, in one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        note(f"collopt: {record.levelname.lower()}: {record.getMessage()}")


@contextmanager
def _told(verbose: int) -> Iterator[None]:
    """Let the package's log reach standard error while a command runs."""
    if not verbose:
        yield
        return
    logger, handler = logging.getLogger("collopt"), _Notes()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(LEVELS[min(verbose, len(LEVELS) - 1)])
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
