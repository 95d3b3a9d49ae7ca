"""The `eqsat` command: its sub-commands, and how errors become exit codes.

Exit codes: 0 done, 1 the answer is no (a check failed), 2 unknown or bad usage, 3 bad input, 70 a fault of eqsat,
130 interrupted.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from eqsat.base.interrupt import raise_lost_again
from eqsat.base.time_budget import process_seconds
from eqsat.cli.commands import kernels, rules
from eqsat.cli.commands.bench import bench
from eqsat.cli.commands.calibrate import calibrate
from eqsat.cli.commands.demo import demo
from eqsat.cli.commands.devices import devices
from eqsat.cli.commands.emit import emit
from eqsat.cli.commands.explain import explain
from eqsat.cli.commands.explore import explore
from eqsat.cli.commands.extract import extract
from eqsat.cli.commands.optimize import optimize
from eqsat.cli.commands.prove import prove, verify
from eqsat.cli.commands.run import run
from eqsat.cli.commands.version import show_version, version
from eqsat.cli.tasks.discover import discover
from eqsat.cli.tasks.fuzz import fuzz
from eqsat.cli.tasks.sweep import sweep
from eqsat.errors import EqsatError, InputError

CHECK_FAILED, BAD_INPUT, INTERRUPTED = 1, 3, 130

FAULT = 70
"""What `sysexits.h` calls an internal software error: Python itself would end with 1, which is an answer here."""

ANSWER_SECONDS = 2.0
"""Seconds of processor time after Ctrl-C to give the best answer so far; then the command exits without one."""


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors that are of stdout where they name no file: `eqsat.base.files`, which writes all others, names them."""


_NO_THREAD = "can't start new thread"
"""What Python says, without an exception of its own, where the system gives it no thread."""


class Commands(TyperGroup):
    """A group of commands that reports every error a user can cause in one line on stderr."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments, which may print a help text."""
        with _reported():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        with _reported():
            return super().invoke(ctx)


@contextmanager
def _reported() -> Iterator[None]:
    """Errors of eqsat, file system errors and Ctrl-C become exit codes."""
    try:
        yield
    except InputError as error:
        _fail(str(error), BAD_INPUT, getattr(error, "__notes__", ()))
    except EqsatError as error:
        _fail(str(error), CHECK_FAILED)
    except SystemExit as left:
        if left.code != 1:
            raise
        # Rich ends the process where the reader of a help text is gone; no command leaves in this way.
        raise typer.Exit(0) from None
    except BrokenPipeError:
        # The reader of our output is gone (`eqsat rules list | head`): print nothing more, not even at shutdown.
        _drop_output()
        raise typer.Exit(0) from None
    except OSError as error:
        if not error.filename and error.errno in _UNWRITABLE:
            _drop_output()
            _fail(f"stdout: cannot be written ({error.strerror})", BAD_INPUT)
        _fail(_file_error(error), BAD_INPUT)
    except MemoryError as error:
        details = f" ({error})" if str(error) else ""
        _fail(f"takes more memory than there is{details}; give a smaller program", BAD_INPUT)
    except RuntimeError as error:
        if str(error) != _NO_THREAD:
            raise
        _fail("takes more memory or threads than there are; raise the limits of this process (ulimit -a)", BAD_INPUT)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)


def _file_error(error: OSError) -> str:
    """What an error of the file system says, and what to do."""
    if error.errno == errno.EMFILE:
        return "more files are open than this process may have; raise that limit (ulimit -n)"
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    if error.errno == errno.ENOENT:  # of the calls without a file, only the one for the current folder
        return "the current folder is gone; change to one that is there"
    return str(error)


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int, notes: Sequence[str] = ()) -> NoReturn:
    """Print `message` as one line on stderr with its notes unchanged below it, and exit with `code`."""
    for line in (f"eqsat: {' '.join(message.split())}", *notes):
        typer.echo(line, err=True)
    raise typer.Exit(code) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    *(optimize, run, emit, prove, verify, demo, bench),
    *(calibrate, devices, explain, explore, extract, sweep, fuzz),
):
    app.command()(command)
rules.app.command()(discover)
app.add_typer(rules.app, name="rules")
app.add_typer(kernels.app, name="kernels")
app.command()(version)


@app.callback()
def eqsat(
    context: typer.Context,
    show: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """Find an equal, cheaper tensor program for a given GPU, and prove it to yourself.

    Start with `eqsat demo`, or with `eqsat optimize model.onnx -o faster.onnx`.
    """
    if context.obj is None:  # called from a running program, not as a command
        context.obj = time.monotonic()


def answer_soon() -> None:
    """From now on, Ctrl-C gives the command `ANSWER_SECONDS` to return what it has; a second Ctrl-C ends it at once.

    SIGTERM, which schedulers send to stop a process, is handled in the same way.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        _every_end(signal.SIG_IGN)
        if _loading(frame):
            os.write(2, b"eqsat: interrupted\n")
            os._exit(INTERRUPTED)
        typer.echo("eqsat: interrupted", err=True)
        raise SystemExit(INTERRUPTED)

    def hurry(number: int, frame: FrameType | None) -> None:
        if _loading(frame):
            leave(number, frame)
        _every_end(leave)
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGPROF, leave)
            signal.setitimer(signal.ITIMER_PROF, ANSWER_SECONDS)
        raise KeyboardInterrupt

    _every_end(hurry)
    raise_lost_again()


def _loading(frame: FrameType | None) -> bool:
    """Whether a module is being imported; an exception there would appear as another error, about half a module."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _every_end(handler: Any) -> None:
    """Set the handler of each termination signal, except ignored ones, as Ctrl-C is for background jobs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


_DIGITS = 5
"""Most digits of a terminal's width."""


class _Dropping(io.FileIO):
    """A file that drops what cannot be written."""

    def write(self, data: Any, /) -> int | None:
        """Write `data`, or drop it."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _settle_streams() -> None:
    """Let every command print: what goes to a closed stream is dropped, and characters that stdout's encoding lacks are
    replaced. So is what stderr does not take: a message that cannot be shown must not change the exit code. A width of
    no columns is one that is not known, as is one that no terminal has: Rich would fill lines of it with blanks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  open until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        raw = _Dropping(sys.stderr.fileno(), "w", closefd=False)
        form = sys.stderr.encoding, sys.stderr.errors
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), *form, line_buffering=True)
    columns = os.environ.get("COLUMNS", "").strip()
    if columns == "0" or (columns.isdecimal() and len(columns) > _DIGITS):
        del os.environ["COLUMNS"]


def main() -> None:
    """Entry point of the console script."""
    answer_soon()
    _settle_streams()
    try:
        app(prog_name="eqsat", obj=time.monotonic() - process_seconds())
    except KeyboardInterrupt:
        # Interrupted before or after the command itself, while modules load or output is flushed.
        typer.echo("eqsat: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except Exception:  # noqa: BLE001  whatever it is, it is no answer
        traceback.print_exc()
        sys.exit(FAULT)
    finally:
        _every_end(signal.SIG_IGN)  # all output is written: only the exit remains
        if hasattr(signal, "setitimer"):
            for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
                signal.setitimer(timer, 0)  # otherwise it could end the process while Python shuts down
        gc.freeze()  # the collection at exit would walk through a whole search, which ends with the process anyway
        exec("")  # clears an interrupt that Python left pending in an exec (as in dataclasses); else SIGINT ends it
