"""The entry point of `python -m eqsat` and of the `eqsat` console script."""

from __future__ import annotations

import atexit
import os
import signal
import sys

from eqsat.base.search_path import search_path


def _leave(number: int, frame: object) -> None:
    os.write(2, b"eqsat: interrupted\n")
    os._exit(130)


def main() -> None:
    """Run the command line, which exits with the codes of `eqsat.cli.app`."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)  # until the command is loaded and handles signals itself
    from eqsat.base.files import open_stderr
    from eqsat.base.memory_limit import collector_paused

    open_stderr()
    with collector_paused():
        from eqsat.cli.app import main as run

    try:
        run()
    except SystemExit as ending:
        _end(ending.code)
        raise


def _end(code: object) -> None:
    """End the process as an exit does, without taking apart all that a search has made: that takes a third of a second
    for a large model. Returns where output cannot be written, for Python to say so.
    """
    if code is not None and not isinstance(code, int):
        return
    from eqsat.base.interrupt import await_abandoned

    atexit.unregister(await_abandoned)  # nothing is left of them once the process has ended
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code or 0)


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] in search_path()[1]:
        del sys.path[0]  # `python -m` puts the current folder there; the console script does not
    main()
