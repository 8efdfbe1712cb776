"""Progress bars; imports rich at once, so it is itself imported only at a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from ...planners.plans.stages import on_stage

WIDTH = 24
WIDE_TERMINAL = 110  # Columns of a terminal from which on the message stays in front of the name of the stage


class _Bar(ProgressColumn):
    """A progress bar, if the total is known."""

    def render(self, task: Task) -> ProgressBar | Text:
        """Draw the bar of a task."""
        total = task.fields["parts"]
        return ProgressBar(total=total, completed=task.fields["done"], width=WIDTH) if total else Text()


class _Count(ProgressColumn):
    """Count, total if known, and status text."""

    def render(self, task: Task) -> Text:
        """Write the counts and the text of a task."""
        done, total, words = (task.fields[name] for name in ("done", "parts", "text"))
        count = f"{done:,} of {total:,}" if total else ""
        return Text(" · ".join(filter(None, (count, words))))


@contextmanager
def progress_shown(message: str) -> Iterator[None]:
    """Show a message, the current stage, and its progress as a bar with counts, or as text."""
    console = Console(stderr=True, markup=False, emoji=False)
    what, count_column = TextColumn("{task.description}", markup=False), _Count(Column(no_wrap=True))
    columns = (SpinnerColumn(), what, _Bar(), count_column, TimeElapsedColumn())
    # Standard output is for data, which may go elsewhere.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        # Rich hides the cursor and could not bring it back where `computing` lets the process end.
        console.show_cursor(True)
        # The counts are not rich's own, which would take the whole work for finished at the end of the first.
        task = progress.add_task(message, total=None, done=0, parts=0, text="")

        def stage(name: str) -> None:
            progress.update(task, description=f"{message}: {name}" if console.width >= WIDE_TERMINAL else name)

        def count(done: int, total: int) -> None:
            progress.update(task, done=done, parts=total)
            if done >= total:
                # Whatever comes next has no count yet.
                progress.update(task, parts=0)

        def text(words: str) -> None:
            progress.update(task, text=words)

        progress.refresh()
        with on_stage(stage, count, text):
            yield
