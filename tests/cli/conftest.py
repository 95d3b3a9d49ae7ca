"""The model that commands run on."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from support.cli import chain


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chain.onnx"
    onnx.save(chain(), path)
    return path
