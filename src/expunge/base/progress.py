"""Progress bars for long work, where rich is installed and someone is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from expunge.base.errors import BadPlan

Show = Callable[[str, int, int | None], None]
"""Shows how far a stage of the work is: its name, how many are done, and of how many, if that is known."""


@contextmanager
def progress_bars(wanted: bool | Show | None) -> Iterator[Show]:
    """Give a function that shows progress, a bar for each stage; with None, if it can and someone is looking.

    A function that shows it already is given back.
    """
    if callable(wanted):
        yield wanted
        return
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda stage, done, total: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    except ImportError as error:
        if wanted is None:
            yield lambda stage, done, total: None
            return
        raise BadPlan("progress=True needs rich; install it with pip install 'expunge[progress]'.") from error
    columns = TextColumn("{task.description:<12}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield show
