"""Work for the tests of runs: right, wrong, deadly and endless."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def squared(given: Mapping[str, Any], tell: Callable[[str], None]) -> int:
    """The square of `n`, except where `given` asks for something else or says how it goes wrong."""
    tell("squaring")
    match given.get("how"):
        case "raise":
            raise KeyError("as asked")
        case "die":
            os.abort()
        case "hang":
            time.sleep(600)
        case "fill":
            return len(bytes(1 << 40))
        case "die late":
            time.sleep(given["pause"])
            os.abort()
        case "die once, then hang":
            mark = Path(given["mark"])
            if mark.exists():
                time.sleep(600)
            mark.touch()
            os.abort()
        case "die once":
            mark = Path(given["mark"])
            if not mark.exists():
                mark.touch()
                os.abort()
        case "slow":
            time.sleep(given["pause"])
        case "environment":
            return len(os.environ.get(given["name"], ""))
    return given["n"] ** 2
