"""Options that all commands share: verbosity, solver threads and the random seed."""

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any, get_type_hints

import typer

from .arguments.network_options import NetworkOptions
from .arguments.parameters import count_option, option
from .arguments.runtime_files import RuntimeFiles
from .arguments.shared import ShardOptions
from .terminal.output import note

GROUPS = (NetworkOptions, ShardOptions, RuntimeFiles)  # Groups of options; a command has one parameter for each group
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
MAX_THREADS = 1024
MAX_SEED = 2**31 - 1  # The limit of `collopt.solvers.seeded`

VerboseOption = Annotated[
    int,
    option(
        "--verbose -v",
        "Log stages and their times to standard error; -vv also logs details and when each stage starts.",
        count=True,
        show_default=False,
    ),
]
THREADS = "Threads of the LP solver (default: chosen by HiGHS). All other work is single-threaded."
ThreadsOption = Annotated[int | None, count_option("--threads N", THREADS, 1, MAX_THREADS)]
SeedOption = Annotated[int | None, count_option("--seed N", "Random seed (default: 0).", 0, MAX_SEED)]
SOLVER_OPTIONS = {"threads": ThreadsOption, "seed": SeedOption}


def with_common_options(command: Callable[..., None], *, options: Collection[str]) -> Callable[..., None]:
    """Add ``--verbose`` and the named solver options to a command; expand its option groups."""
    own = inspect.signature(command, eval_str=True)
    groups = {each.name: each.annotation for each in own.parameters.values() if each.annotation in GROUPS}
    common = {name: SOLVER_OPTIONS[name] for name in SOLVER_OPTIONS if name in options}
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
    taken = [each.replace(kind=kind) for parameter in own.parameters.values() for each in _expand(parameter)]
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


def _expand(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options of a group, or the parameter itself."""
    if parameter.annotation not in GROUPS:
        return [parameter]
    annotations = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(field, parameter.kind, annotation=annotations[field], default=None)
        for field in parameter.annotation._fields
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
