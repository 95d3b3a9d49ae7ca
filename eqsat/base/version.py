"""The version of eqsat: a tag such as `v0.1.0`, or what has passed since the last one, as it was at installation."""

from functools import cache


@cache
def version() -> str:
    """The version, `0+unknown` for a source tree that is on the path and not installed."""
    # Read when it is asked for: at the import of eqsat, the current folder may still come before Python's own modules.
    from importlib import metadata

    try:
        return metadata.version("eqsat")
    except metadata.PackageNotFoundError:
        return "0+unknown"
