"""`eqsat version`."""

from __future__ import annotations

import typer

from eqsat.cli.options import JsonFile


def installed_version() -> str:
    """The version of the installed distribution, "unknown" when run from a folder that was never installed."""
    from importlib import metadata

    try:
        return metadata.version("eqsat")
    except metadata.PackageNotFoundError:
        return "unknown"


def version(json_file: JsonFile = None) -> None:
    """Print the version of eqsat and of the libraries that results depend on.

    Example: `eqsat version --json -`
    """
    import platform
    from importlib import metadata

    from eqsat.cli.output import write_json

    parts = {"eqsat": installed_version(), "python": platform.python_version()}
    parts |= {name: metadata.version(name) for name in ("numpy", "egglog", "highspy", "onnx")}
    if json_file is not None:
        write_json(parts, json_file)
    if json_file != "-":
        for name, number in parts.items():
            typer.echo(f"{name} {number}")


def show_version(asked: bool) -> None:
    """Callback of `eqsat --version`."""
    if asked:
        typer.echo(f"eqsat {installed_version()}")
        raise typer.Exit
