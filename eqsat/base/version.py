"""The version of eqsat, as pyproject.toml reads it."""

VERSION = "0.1.0"
