"""Settings that every test runs under."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator

# One BLAS thread a process: the suite runs one process a core, and sums come out the same on every machine size.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import pytest  # noqa: E402  (NumPy reads the variables above when it is first imported)
from hypothesis import settings  # noqa: E402

# What a shell starts in the background ignores Ctrl-C, and so do its children: tests of it need the usual handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# CI draws the same examples on every run; elsewhere each run draws new ones and prints how to repeat a failure.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "explore")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where EQSAT_REQUIRE_TOOLS is set, as in CI, a test that is skipped for want of a tool has failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("EQSAT_REQUIRE_TOOLS"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped where every tool is to be there: {reason}"
    return report


def pytest_runtest_setup() -> None:
    """Torch draws the same weights and inputs on every run."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
