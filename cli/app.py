"""The `collopt` program: its commands, the options that all share, exit status, and one line per error."""

import errno
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import Annotated, Any, get_type_hints

import typer

from ..errors import CertificateError, ColloptError, ProgramError
from .commands.bound import bound
from .commands.calibrate import calibrate
from .commands.certify import certify
from .commands.compare import compare, compare_networks
from .commands.diagnose import diagnose
from .commands.doctor import doctor
from .commands.expect import expect
from .commands.explore import explore
from .commands.find import find
from .commands.network_files import import_network, topologies
from .commands.plan import plan
from .commands.plan_files import export, report, verify
from .commands.probe import probe
from .commands.run import bench, run
from .commands.runtime_files import family, lint, topology_file
from .commands.score import score
from .commands.show import show
from .commands.what_if import groups, sensitivity, survive
from .terminal.output import CHECK_FAILED, INTERRUPTED, UNUSABLE, Formats, emit, give_up_output, note
from .terminal.output_files import RuntimeFiles
from .terminal.parameters import Command, Field, NetworkOptions, ShardOptions, described, option, with_fields

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
SOLVER_OPTIONS = ("threads", "seed")


def with_common_options(command: Callable[..., None], *, options: Collection[str]) -> Callable[..., None]:
    """Add ``--verbose`` and the named solver options to a command; replace its option groups by their options."""
    own = inspect.signature(command, eval_str=True).parameters
    groups = {name: parameter.annotation for name, parameter in own.items() if parameter.annotation in GROUPS}
    fields: list[Field] = []
    for name, parameter in own.items():
        if group := groups.get(name):
            hints = get_type_hints(group).items()
            fields += [(field, described(group.__name__, field, kind), None) for field, kind in hints]
        else:
            fields.append((name, described(command.__name__, name, parameter.annotation), parameter.default))
    fields += [("context", typer.Context, inspect.Parameter.empty), ("verbose", VerboseOption, 0)]
    fields += [(name, described("shared", name, int | None), None) for name in SOLVER_OPTIONS if name in options]

    def run_command(*, context: typer.Context, verbose: int, **values: Any) -> None:
        with ExitStack() as around:
            # The program's own -v, before the command's name, counts too.
            around.enter_context(_log_to_stderr(verbose + (context.obj or 0)))
            _apply(around, {name: values.pop(name) for name in options})
            for name, group in groups.items():
                values[name] = group(**{field: values.pop(field) for field in group._fields})
            command(**values)

    run_command.__name__ = command.__name__
    return with_fields(run_command, fields)


def _apply(around: ExitStack, values: Mapping[str, int | None]) -> None:
    """Set the threads of the solvers and the random seed."""
    if (threads := values.get("threads")) is not None:
        from ..solvers.lp.options import limited_threads

        around.enter_context(limited_threads(threads))
    if (seed := values.get("seed")) is not None:
        from ..support.seed import seeded

        around.enter_context(seeded(seed))


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
COMPLETION_OPTIONS = ("--show-completion", "--install-completion")
SHELL_IS_NAMED = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"
"""Variable with which typer's options of completion take the name of a shell."""
COMMANDS_WITH_THREADS, COMMANDS_WITH_SEED = (
    (
        bound, plan, groups, family, compare, compare_networks, survive, sensitivity, score, certify, show, bench,
        find, expect,
    ),
    (run, lint),
)  # fmt: skip
FURTHER_OPTIONS = {
    **dict.fromkeys(COMMANDS_WITH_THREADS, ("threads", "seed")),
    **dict.fromkeys(COMMANDS_WITH_SEED, ("seed",)),
}
COMMANDS = (
    import_network, bound, plan, groups, export, family, compare, survive, sensitivity, verify, score, certify, show,
    report, explore, run, lint, topology_file, bench, calibrate, expect, diagnose, probe, find, compare_networks,
    topologies, doctor,
)  # fmt: skip
for command in COMMANDS:
    name = "import" if command is import_network else None  # a keyword of Python
    # Typer unwraps only the first paragraph.
    description = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.getdoc(command) or "")
    extended = with_common_options(command, options=FURTHER_OPTIONS.get(command, ()))
    app.command(name, cls=Command, help=description)(extended)


def _print_version(requested: bool) -> None:
    if requested:
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
        if len(arguments) > 1 and arguments[0] in COMPLETION_OPTIONS:
            os.environ[SHELL_IS_NAMED] = "1"
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
    finally:
        os.environ.pop(SHELL_IS_NAMED, None)
    return status if isinstance(status, int) else 0


def _failed(status: int, message: str) -> int:
    note(f"collopt: error: {message}")
    return status


def _usage(error: typer.TyperException) -> str:
    message = re.sub(r"\. Did you mean (.*\?)$", r" (did you mean \1)", error.format_message().rstrip("."))
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context else message
