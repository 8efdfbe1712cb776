"""Options that all commands share: verbosity, solver threads and the random seed."""

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any, get_type_hints

import typer

from .arguments.parameters import described, option
from .arguments.runtime_files import RuntimeFiles
from .arguments.shared import NetworkOptions, ShardOptions
from .terminal.output import Formats, note

GROUPS = (NetworkOptions, ShardOptions, RuntimeFiles, Formats)
"""Groups of options; a command has one parameter for each group."""
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)

VerboseOption = Annotated[
    int,
    option(
        "--verbose -v",
        "Log stages and their times to standard error; -vv also logs details and when each stage starts.",
        count=True,
        show_default=False,
    ),
]
SOLVER_OPTIONS = {"threads": int | None, "seed": int | None}


def with_common_options(command: Callable[..., None], *, options: Collection[str]) -> Callable[..., None]:
    """Add ``--verbose`` and the named solver options to a command; expand its option groups."""
    own = inspect.signature(command, eval_str=True)
    groups = {each.name: each.annotation for each in own.parameters.values() if each.annotation in GROUPS}
    common = {name: described("shared", name, kind) for name, kind in SOLVER_OPTIONS.items() if name in options}
    further = {"context": typer.Context, "verbose": VerboseOption} | common
    defaults: dict[str, int | None] = {"verbose": 0, **dict.fromkeys(SOLVER_OPTIONS)}

    @functools.wraps(command)
    def wrapper(*, context: typer.Context, verbose: int, **rest: Any) -> None:
        with ExitStack() as around:
            # The program's own -v, before the command's name, counts too.
            around.enter_context(_log_to_stderr(verbose + (context.obj or 0)))
            _apply(around, {name: rest.pop(name) for name in options})
            for name, group in groups.items():
                rest[name] = group(**{field: rest.pop(field) for field in group._fields})
            command(**rest)

    # Typer reads the signature, which has to be the command's and not this function's.
    del wrapper.__wrapped__
    kind = inspect.Parameter.KEYWORD_ONLY
    appended = [
        inspect.Parameter(name, kind, annotation=annotation, default=defaults.get(name, inspect.Parameter.empty))
        for name, annotation in further.items()
    ]
    expanded = [_expand(command.__name__, parameter) for parameter in own.parameters.values()]
    taken = [each.replace(kind=kind) for group in expanded for each in group]
    wrapper.__signature__ = inspect.Signature([*taken, *appended])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*taken, *appended)}
    return wrapper


def _apply(around: ExitStack, given: Mapping[str, int | None]) -> None:
    """Set the threads of the solvers and the random seed."""
    if (threads := given.get("threads")) is not None:
        from ..solvers.highs.options import limited_threads

        around.enter_context(limited_threads(threads))
    if (seed := given.get("seed")) is not None:
        from ..support.seed import seeded

        around.enter_context(seeded(seed))


def _expand(command: str, parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options of a group, or the parameter itself, as they are described."""
    group = parameter.annotation
    if group not in GROUPS:
        return [parameter.replace(annotation=described(command, parameter.name, group))]
    return [
        inspect.Parameter(field, parameter.kind, annotation=described(group.__name__, field, annotation), default=None)
        for field, annotation in get_type_hints(group).items()
    ]


class _StderrHandler(logging.Handler):
    """Writes each record to the current standard error, in one line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        note(f"collopt: {record.levelname.lower()}: {record.getMessage()}")


@contextmanager
def _log_to_stderr(verbose: int) -> Iterator[None]:
    """Send the package's log to standard error while a command runs, its warnings at least."""
    logger, handler = logging.getLogger("collopt"), _StderrHandler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(LEVELS[min(verbose, len(LEVELS) - 1)])
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
