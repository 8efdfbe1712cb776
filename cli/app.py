"""The `collopt` program: its commands, the options that all share, exit status, and one line per error."""

import errno
import functools
import inspect
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import Annotated, Any, get_type_hints

import typer

from ..errors import CertificateError, ColloptError, ProgramError
from ..support.validation import shown
from .commands.bench import bench
from .commands.bound import bound
from .commands.calibrate import calibrate
from .commands.compare import compare
from .commands.doctor import doctor
from .commands.explore import explore
from .commands.family import family
from .commands.find import find
from .commands.groups import groups
from .commands.lint import lint
from .commands.network_files import import_network, topologies
from .commands.plan import plan
from .commands.plan_files import export, report, verify
from .commands.run import run
from .commands.score import score
from .commands.sensitivity import sensitivity
from .commands.show import show
from .commands.survive import survive
from .terminal.options import NetworkOptions, ShardOptions
from .terminal.output import CHECK_FAILED, INTERRUPTED, UNUSABLE, Formats, emit, give_up_output, note
from .terminal.parameters import Command, UsageError, described, option
from .terminal.runtime_files import RuntimeFiles

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


app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False)
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
SHOW_COMPLETION, INSTALL_COMPLETION = "--show-completion", "--install-completion"
PROGRAM, COMPLETION_VARIABLE = "collopt", "_COLLOPT_COMPLETE"
COMMANDS_WITH_THREADS, COMMANDS_WITH_SEED = (
    (bound, plan, groups, family, compare, survive, sensitivity, score, show, bench, find),
    (run, lint),
)
FURTHER_OPTIONS = {
    **dict.fromkeys(COMMANDS_WITH_THREADS, ("threads", "seed")),
    **dict.fromkeys(COMMANDS_WITH_SEED, ("seed",)),
}
COMMANDS = (
    import_network, bound, plan, groups, export, family, compare, survive, sensitivity, verify, score, show, report,
    explore, run, lint, bench, calibrate, find, topologies, doctor,
)  # fmt: skip
for command in COMMANDS:
    name = "import" if command is import_network else None  # a keyword of Python
    # Typer unwraps only the first paragraph.
    description = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.getdoc(command) or "")
    extended = with_common_options(command, options=FURTHER_OPTIONS.get(command, ()))
    app.command(name, cls=Command, help=description)(extended)


def _print_version(wanted: bool) -> None:
    if wanted:
        emit(f"collopt {version('collopt')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, option("--version", "Print the version and exit.", callback=_print_version, is_eager=True)
]


@app.callback()
def _program(
    context: typer.Context,
    version_wanted: VersionOption = False,  # noqa: ARG001 - its callback has answered
    verbose: VerboseOption = 0,
) -> None:
    """Plan collective communication for GPU clusters, and verify every plan against a proven bound."""
    context.obj = verbose


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if len(arguments) > 1 and arguments[0] in (SHOW_COMPLETION, INSTALL_COMPLETION):
            return _complete_for(arguments)
        status = app(arguments or ["--help"], prog_name="collopt", standalone_mode=False)
    except (CertificateError, ProgramError) as error:
        return _failed(CHECK_FAILED, str(error))
    except ColloptError as error:
        return _failed(UNUSABLE, str(error))
    except OSError as error:
        if error.filename is None:
            # Help that typer could not print.
            give_up_output()
        return _failed(UNUSABLE, " ".join(filter(None, [error.filename, error.strerror or str(error)])))
    except typer.TyperException as error:
        return _failed(UNUSABLE, _usage(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as leaving:
        # How completion of shells ends, and help whose reader has gone, which is no error.
        gone = isinstance(leaving.__context__, OSError) and leaving.__context__.errno == errno.EPIPE
        status = 0 if gone else leaving.code
    return status if isinstance(status, int) else 0


def _failed(status: int, message: str) -> int:
    note(f"collopt: error: {message}")
    return status


def _usage(error: typer.TyperException) -> str:
    message = re.sub(r"\. Did you mean (.*\?)$", r" (did you mean \1)", error.format_message().rstrip("."))
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context else message


def _complete_for(arguments: Sequence[str]) -> int:
    """Print or install completion for the shell that follows the option; return the exit status."""
    # Of typer, which has no public names for them.
    from typer._completion_shared import get_completion_script, install

    flag, shell, *more = arguments
    if shell not in SHELLS or more:
        stray = more[0] if shell in SHELLS else shell
        raise UsageError(f"{flag} is followed by {shown(stray)}; expected one of {', '.join(SHELLS)}, or no shell")
    if flag == SHOW_COMPLETION:
        emit(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE, shell=shell))
    else:
        _, path = install(shell=shell, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)
        emit(f"{shell} completion installed in {path}; it takes effect in new shells")
    return 0
