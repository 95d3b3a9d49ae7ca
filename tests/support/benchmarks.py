"""Scripts of `benchmarks/` as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name: str) -> Iterator[ModuleType]:
    """A script of the folder as a module, for as long as it is needed: its bare name may be that of a package. Scripts
    import what they share as their neighbours."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, module)
        patch.setattr(sys, "path", [*sys.path, str(BENCHMARKS)])
        spec.loader.exec_module(module)
        yield module
