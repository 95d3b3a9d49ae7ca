"""Device rows: complete, sourced, found by name."""

from __future__ import annotations

import pytest

from eqsat.errors import InputError
from eqsat.extract.devices import DEVICES, Device, Figure, device

ROWS = pytest.mark.parametrize("row", DEVICES.values(), ids=list(DEVICES))


@ROWS
def test_every_figure_is_positive_and_has_a_source(row: Device) -> None:
    figures = dict(row.figures())
    assert {"units", "launch_us", "bandwidth", "achieved", "local_kib", "vector.float32", "vector.float64"} <= set(
        figures
    )
    for name, figure in figures.items():
        assert figure.value > 0, name
        assert len(figure.source) > 10, name
    assert figures["achieved"].value <= 1


@ROWS
def test_matrix_units_are_not_slower_than_vector_units(row: Device) -> None:
    for dtype, figure in row.matrix.items():
        assert figure.value >= row.vector.get(dtype, row.vector["float32"]).value


def test_the_devices_that_the_documentation_names() -> None:
    assert {row.name: row.arch for row in DEVICES.values()} == {
        "mi250x": "gfx90a",
        "mi300x": "gfx942",
        "mi355x": "gfx950",
        "rx7900xtx": "gfx1100",
        "rx9070xt": "gfx1201",
        "h100": "sm_90",
        "h200": "sm_90",
        "cpu": "x86-64",
    }


@pytest.mark.parametrize(("given", "found"), [("mi300x", "mi300x"), ("MI300X", "mi300x"), (DEVICES["cpu"], "cpu")])
def test_devices_are_found_by_name_or_taken_as_they_are(given: str | Device, found: str) -> None:
    assert device(given) is DEVICES[found]


@pytest.mark.parametrize(("given", "near"), [("mi300", "mi300x"), ("rx7900", "rx7900xtx"), ("tpu", "cpu")])
def test_an_unknown_device_is_answered_with_the_nearest(given: str, near: str) -> None:
    with pytest.raises(InputError, match=f"no '{given}'.*{near}"):
        device(given)


def test_measured_figures_replace_those_of_a_row() -> None:
    measured = Figure(4.1, "measured")
    row = DEVICES["mi300x"].with_figures({"launch_us": measured, "matrix.float32": measured})
    assert dict(row.figures())["launch_us"] == dict(row.figures())["matrix.float32"] == measured
    assert row.matrix["float16"] == DEVICES["mi300x"].matrix["float16"]
    assert DEVICES["mi300x"].launch_us != measured


def test_a_figure_that_no_row_has_is_refused() -> None:
    with pytest.raises(InputError, match=r"no figure is called 'matrix\.int4'; use one of units, launch_us"):
        DEVICES["mi300x"].with_figures({"matrix.int4": Figure(1.0, "measured")})
