"""The stand-in as the module `cupy`, for worker processes; environment variables say which texts go wrong."""

import os
import sys

from support.fake_cupy import FakeCupy


def _cost(code: str, blocks: int) -> float:
    if os.environ.get("STANDIN_DIES", "no such text") in code:
        os.abort()
    if os.environ.get("STANDIN_LOSES", "no such text") in code or fake.now_us < 0:
        fake.now_us = -1e9
        raise FakeCupy.CUDARuntimeError("an illegal memory access, and whatever comes after it")
    return 300.0


fake = FakeCupy("sm_90")
fake.cost_us = _cost
fake.refuses = lambda code: os.environ.get("STANDIN_REFUSES", "no such text") in code
sys.modules["cupy"] = fake  # type: ignore[assignment]
