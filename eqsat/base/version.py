"""The version of eqsat: a tag such as `v0.1.0`, or what has passed since the last one, as it was at installation."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("eqsat")
except PackageNotFoundError:  # a source tree that is on the path and not installed
    VERSION = "0+unknown"
