"""Files with measured figures of a device, which replace figures of a row in the table.

    {"schema": 1, "base": "mi300x", "figures": {"launch_us": {"value": 3.1, "source": "measured on ..."}}}

`eqsat calibrate` writes them. The file `devices/NAME.json` in the user's configuration folder replaces the row NAME;
any other file is used by giving its path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eqsat.base.files import read_json, write_text
from eqsat.errors import InputError

SCHEMA = 1


class RowFile(NamedTuple):
    """The name of a row, and figures that replace its own: name to (value, source)."""

    base: str
    figures: Mapping[str, tuple[float, str]]


def config_dir() -> Path:
    """The folder of the user's settings: $EQSAT_CONFIG_DIR, or else eqsat's folder in the user's configuration."""
    import platformdirs

    return Path(os.environ.get("EQSAT_CONFIG_DIR") or platformdirs.user_config_dir("eqsat"))


def user_file(name: str) -> Path:
    """The path of the user's file for the row `name`; the file may not exist."""
    return config_dir() / "devices" / f"{name}.json"


_LEAST, _MOST = 1e-6, 1e12
"""Of figures, in their units: prices of what is outside would be infinite, or 0."""


def write(path: Path, row: RowFile) -> None:
    """Write a file; its folder is created if it does not exist.

    Raises:
        InputError: the file cannot be written.
    """
    figures = {name: {"value": value, "source": source} for name, (value, source) in row.figures.items()}
    text = json.dumps({"schema": SCHEMA, "base": row.base, "figures": figures}, indent=1) + "\n"
    write_text(path, text, parents=True)


def read(path: Path) -> RowFile:
    """Read a file.

    Raises:
        InputError: no such file, not of this format, or a value that no device has.
    """
    document = read_json(path, "a row of figures as `eqsat calibrate` writes it")
    match document:
        case {"schema": 1, "base": str() as base, "figures": dict() as figures}:
            return RowFile(base, {name: _figure(path, name, entry) for name, entry in figures.items()})
    raise InputError(f"{path}: no device row: expected schema {SCHEMA} with base and figures")


def _figure(path: Path, name: str, entry: Any) -> tuple[float, str]:
    match entry:
        case {"value": bool()}:
            pass
        case {"value": int() | float() as value, "source": str() as source} if _LEAST <= value <= _MOST:
            if name != "units" or (value >= 1 and value == int(value)):
                return float(value), source
    limits = f"values lie between {_LEAST:g} and {_MOST:g}, and units are whole"
    raise InputError(f"{path}: figure {name} takes a positive value and a source, got {entry!r}; {limits}")
