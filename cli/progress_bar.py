"""What a terminal shows of long work; imports rich at once, so it is itself imported only at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from ..planners.trace import on_stage

__all__ = ["progress_shown"]

WIDTH = 24


class _Bar(ProgressColumn):
    """A bar, where it is known how much there is."""

    def render(self, task: Task) -> ProgressBar | Text:
        """Draw the bar of a task."""
        if task.total is None:
            return Text()
        return ProgressBar(total=task.total, completed=task.completed, width=WIDTH)


class _Count(ProgressColumn):
    """How much is done, of how much, where this is known."""

    def render(self, task: Task) -> Text:
        """Write the counts of a task."""
        return Text() if task.total is None else Text(f"{task.completed:.0f} of {task.total:.0f}")


@contextmanager
def progress_shown(message: str) -> Iterator[None]:
    """Show a message, the stage that work is in, and a bar with counts wherever planners tell them."""
    console = Console(stderr=True, markup=False, emoji=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), _Bar(), _Count(), TimeElapsedColumn())
    # Standard output is for data, which may go elsewhere.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        # Rich hides the cursor and could not bring it back where `computing` lets the process end.
        console.show_cursor(True)
        task = progress.add_task(message, total=None)

        def stage(name: str) -> None:
            progress.update(task, description=f"{message}: {name}")

        def count(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)
            if done >= total:
                # Whatever comes next has no count yet; `update` takes None for no change.
                progress.tasks[0].total = None

        progress.refresh()
        with on_stage(stage, count):
            yield
