"""A progress bar, in terminals and in notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from eqsat.errors import escaped


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[str, float], None]]:
    """A progress bar for `eqsat.optimize`, `optimize_dynamic` and `prove`, which pulses until the first report:

        with eqsat.progress_bar("optimising") as bar:
            best = eqsat.optimize(program, progress=bar)

    It shows on stderr if that is a terminal, and in a notebook where ipywidgets is installed; else nowhere.

    Yields:
        `report(stage, fraction)`: names the stage and sets the bar, `fraction` from 0 to 1.
    """
    if not ((sys.stderr and sys.stderr.isatty()) or _in_notebook()):
        yield lambda stage, fraction: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=not _in_notebook(), highlight=False, markup=False, emoji=False)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(escaped(description), total=None)
        yield lambda stage, fraction: bar.update(
            task,
            description=escaped(f"{description}: {stage}" if description else stage),
            total=1.0,
            completed=fraction,
        )


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel that can show Rich's bars, which are widgets there."""
    return "ipykernel.kernelapp" in sys.modules and find_spec("ipywidgets") is not None
