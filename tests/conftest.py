"""Settings that every test runs under."""

from __future__ import annotations

import os

# One BLAS thread a process: the suite runs one process a core, and sums come out the same on every machine size.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from hypothesis import settings  # noqa: E402  (NumPy reads the variables above when it is first imported)

# CI draws the same examples on every run; elsewhere each run draws new ones and prints how to repeat a failure.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "explore")
