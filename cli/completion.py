"""Completion for a shell that is named, where typer only knows the one that runs it."""

from __future__ import annotations

from collections.abc import Sequence

from ..support.validation import shown
from .arguments.parameters import UsageError
from .terminal.output import emit

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
SHOW, INSTALL = "--show-completion", "--install-completion"
PROGRAM, VARIABLE = "collopt", "_COLLOPT_COMPLETE"


def completes_for(words: Sequence[str]) -> bool:
    """Tell whether somebody asks for completion and names a shell."""
    return len(words) > 1 and words[0] in (SHOW, INSTALL)


def complete_for(words: Sequence[str]) -> int:
    """Print or install completion for the shell that follows the option; return the exit status."""
    # Of typer, which has no public names for them.
    from typer._completion_shared import get_completion_script, install

    option, shell, *more = words
    if shell not in SHELLS or more:
        stray = more[0] if shell in SHELLS else shell
        raise UsageError(f"{option} is followed by {shown(stray)}; expected one of {', '.join(SHELLS)}, or no shell")
    if option == SHOW:
        emit(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell))
    else:
        _, path = install(shell=shell, prog_name=PROGRAM, complete_var=VARIABLE)
        emit(f"{shell} completion installed in {path}; it takes effect in new shells")
    return 0
