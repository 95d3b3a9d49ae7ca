"""`eqsat version`."""

from __future__ import annotations

import typer

from eqsat.base.version import version as own_version
from eqsat.cli.shared.options import JsonFile


def version(json_file: JsonFile = None) -> None:
    """Print the version of eqsat and of the libraries that results depend on.

    Example: `eqsat version --json -`
    """
    import platform
    from importlib import metadata

    from eqsat.cli.shared.output import answer

    parts = {"eqsat": own_version(), "python": platform.python_version()}
    parts |= {name: metadata.version(name) for name in ("numpy", "egglog", "highspy", "onnx")}
    if answer({"schema": 1, **parts}, json_file):
        for name, number in parts.items():
            typer.echo(f"{name} {number}")


def show_version(asked: bool) -> None:
    """Callback of `eqsat --version`."""
    if asked:
        typer.echo(f"eqsat {own_version()}")
        raise typer.Exit
