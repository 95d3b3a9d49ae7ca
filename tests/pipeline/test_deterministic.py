"""The same program gives the same report and the same file, byte for byte, independent of what the process did before
and of string hashing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SEED, COUNT = 5, 8


def lines(hash_seed: str, order: str) -> list[str]:
    """What a fresh process makes of some random programs, one after another."""
    script = Path(__file__).parents[1] / "support" / "seeded.py"
    found = subprocess.run(
        [sys.executable, str(script), str(SEED), str(COUNT), order],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return found.stdout.splitlines()


def test_results_depend_neither_on_hashes_nor_on_what_was_optimised_before() -> None:
    first = lines("0", "forward")
    assert len(first) == COUNT
    assert lines("1", "backward") == first
    assert lines("random", "forward") == first
