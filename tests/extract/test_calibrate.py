"""Calibration recovers the figures of a device from predicted times, also with noise and outliers."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from eqsat.errors import InputError
from eqsat.extract.device.table import DEVICES, Device, Figure
from eqsat.extract.plan.calibrate import MICRO, NotOneKernel, fit, micro, spearman
from eqsat.suite.fitted import priced

GPUS = [row for row in DEVICES.values() if row.name != "cpu"]
SHARES = {"launch_us": 2.5, "achieved": 0.7, "vector.float32": 0.5, "matrix.float16": 0.4}
"""What the figures of a pretended device are of those of the table."""


def pretended(row: Device) -> Device:
    known = dict(row.figures())
    shares = SHARES | ({"matrix.float32": 0.6} if "matrix.float32" in known else {})
    return row.with_figures({n: Figure(known[n].value * share, "pretended") for n, share in shares.items()})


def times_on(row: Device) -> dict[str, float]:
    return {name: micro(name).predicted_us(row) for name in MICRO}


@pytest.mark.parametrize("row", GPUS, ids=lambda row: row.name)
def test_every_micro_kernel_is_one_kernel_on_every_device(row: Device) -> None:
    for name in MICRO:
        (kernel,) = micro(name).plan(row).kernels
        assert kernel.family != "library-gemm"
        assert kernel.predicted_us == pytest.approx(micro(name).predicted_us(row))


@pytest.mark.parametrize("row", [DEVICES["mi300x"], DEVICES["h100"], DEVICES["rx7900xtx"]], ids=lambda row: row.name)
def test_figures_are_found_again_from_the_times_that_they_predict(row: Device) -> None:
    true = pretended(row)
    found = fit(row, times_on(true), "pretended")
    figures = dict(true.figures())
    for name in SHARES:
        assert dict(found.row.figures())[name].value == pytest.approx(figures[name].value, rel=0.02), name
    assert found.rank_correlation[1] == pytest.approx(1.0, abs=0.01)
    assert found.typical_factor[1] < 1.01 < found.typical_factor[0]


@pytest.mark.parametrize(("name", "kinds"), [("mi300x", ["matrix"]), ("h100", ["matrix", "vector"])])
def test_what_blocks_wait_is_fitted_where_it_was_not_known(name: str, kinds: list[str]) -> None:
    row = replace(DEVICES[name], step_us={})
    waits = {f"step_us.{kind}": Figure(0.4, "pretended") for kind in kinds}
    found = fit(row, times_on(pretended(row).with_figures(waits)), "pretended")
    assert {n: f.value for n, f in found.row.figures() if n.startswith("step_us")} == dict.fromkeys(
        waits, pytest.approx(0.4, rel=0.1)
    )
    assert found.typical_factor[1] < 1.02


def test_programs_that_a_row_computes_in_several_kernels_do_not_count() -> None:
    """Attention over long rows is one kernel unless the steps of a stream wait long."""
    quick, slow = (DEVICES["h100"].with_figures({"step_us.stream": Figure(us, "a test")}) for us in (0.05, 5.0))
    assert priced("attention, 1024 keys").predicted_us(quick) > 0
    with pytest.raises(NotOneKernel):
        priced("attention, 1024 keys").predicted_us(slow)
    names = ("launch", "stream of 512 MiB", "attention, 1024 keys")
    times = {name: priced(name).predicted_us(quick) for name in names}
    assert fit(quick, times, "measured here", priced).measured == times
    assert fit(slow, times, "measured here", priced).measured.keys() == times.keys() - {"attention, 1024 keys"}


def test_noise_moves_figures_by_no_more_than_itself() -> None:
    row = DEVICES["h100"]
    true, rng = pretended(row), np.random.default_rng(0)
    found = fit(row, {n: us * math.exp(rng.normal(0, 0.05)) for n, us in times_on(true).items()}, "pretended")
    for name in SHARES:
        value = dict(true.figures())[name].value
        assert dict(found.row.figures())[name].value == pytest.approx(value, rel=0.1), name
    assert found.rank_correlation[1] > 0.98


def test_one_time_that_is_far_off_hardly_moves_the_others() -> None:
    row = DEVICES["h100"]
    times = times_on(pretended(row))
    times["product of 2048, float16"] *= 10
    found = fit(row, times, "pretended")
    for name in SHARES:
        value = dict(pretended(row).figures())[name].value
        assert dict(found.row.figures())[name].value == pytest.approx(value, rel=0.15), name


def test_figures_that_nothing_measured_stay() -> None:
    row = DEVICES["h100"]
    found = fit(row, {"launch": 7.0, "stream of 512 MiB": 300.0}, "measured here")
    assert set(found.fitted) == {"launch_us", "achieved"}
    assert found.row.matrix == row.matrix
    assert found.row.launch_us == (pytest.approx(7.0, rel=0.01), "measured here")
    assert found.row.achieved.value == pytest.approx(2 * 2**28 / (300 - 7) / 1e3 / row.bandwidth.value, rel=0.01)


def test_no_memory_is_faster_than_its_peak() -> None:
    found = fit(DEVICES["h100"], {"stream of 512 MiB": 1.0}, "measured here")
    assert found.row.achieved.value == 1.0


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({}, "a fit takes times of 1e-06 to 1e+12 us, got none"),
        ({"launch": 0.0}, "a fit takes times of 1e-06 to 1e+12 us, got 0.0"),
        ({"launch": 1e300}, "a fit takes times of 1e-06 to 1e+12 us, got 1e+300"),
        ({"launch": math.inf}, "a fit takes times of 1e-06 to 1e+12 us, got inf"),
        ({"lunch": 1.0}, "unknown micro-kernel 'lunch': did you mean launch"),
    ],
)
def test_times_that_are_none_are_refused(times: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        fit(DEVICES["h100"], times, "measured here")


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),
        ([1, 1, 2], [1, 2, 3], math.sqrt(0.75)),
        ([1, 1], [1, 2], math.nan),
    ],
)
def test_spearman(x: list[float], y: list[float], expected: float) -> None:
    np.testing.assert_allclose(spearman(x, y), expected)
