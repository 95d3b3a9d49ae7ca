"""A service for the tests of `eqsat.base.worker`."""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path


class Early:
    """Says in a file that it is loaded, with what a worker was given in `LOADED`."""

    def __init__(self) -> None:
        Path(os.environ["LOADED"]).touch()

    def __call__(self, request, send) -> None:
        send("done", request)


class Loading:
    """Takes for ever to load."""

    def __init__(self) -> None:
        time.sleep(600)

    def __call__(self, request, send) -> None:
        send("done", request)


class Ends:
    """Ends its process instead of answering."""

    def __call__(self, request, send) -> None:
        os._exit(7)


class Echo:
    """Sends back what it gets; some requests ask for more."""

    def __call__(self, request, send) -> None:
        match request:
            case "collects":
                send("done", gc.isenabled())
            case "panic":
                raise BaseException("as compiled code does")
            case "fail":
                raise ValueError("as asked")
            case "hang":
                send("pid", os.getpid())
                time.sleep(600)
            case "path":
                send("path", sys.path)
            case "messages":
                send("first", None)
        send("done", request)
