"""What several benchmarks share: the models of folders, sizes for their open dimensions, and figures in files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from eqsat.frontends.onnx.read.model import open_dimensions

REFERENCES = "*__*"
"""Names of models that are references for others."""


def models(folders: Iterable[Path], match: str = "*", skip: str = "") -> list[Path]:
    """The *.onnx files of some folders whose names match one pattern and not the other, by name."""
    found = {path.stem: path for folder in folders for path in folder.glob("*.onnx")}
    return [found[name] for name in sorted(found) if fnmatch(name, match) and not fnmatch(name, skip)]


def sizes(
    model: Path, given: Mapping[str, int] | None = None, otherwise: Callable[[str], int] = lambda name: 1
) -> dict[str, int]:
    """A size for each open dimension of a model, as given or by its name."""
    return {name: (given or {}).get(name, otherwise(name)) for name in open_dimensions(model)}


def write_figures(file: Path | None, figures: Any) -> None:
    """Write figures as JSON, if a file is given."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
