"""Device rows: complete, sourced, found by name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from eqsat.errors import InputError
from eqsat.extract.device import files as device_files
from eqsat.extract.device.table import DEVICES, Device, Figure, device, devices
from eqsat.gpu.table.targets import TARGETS

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


@ROWS
def test_kernels_use_the_matrix_units_that_prices_count_on(row: Device) -> None:
    """Those for float64 have no kernels yet."""
    if row.fuses:
        assert TARGETS[row.arch].matrix_dtypes == row.matrix.keys() - {"float64"}


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


# Rows in files


def a_row(**figures: object) -> str:
    return json.dumps({"schema": 1, "base": "mi300x", "figures": figures})


MEASURED = {"launch_us": {"value": 4.5, "source": "measured on a machine"}}


def test_a_file_names_a_row_with_measured_figures(tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    device_files.write(file, device_files.RowFile("mi300x", {"launch_us": (4.5, "measured on a machine")}))
    assert json.loads(file.read_text()) == json.loads(a_row(**MEASURED))
    row = device(str(file))
    assert row == DEVICES["mi300x"].with_figures({"launch_us": Figure(4.5, "measured on a machine")})


def test_a_file_in_the_configuration_folder_stands_for_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CONFIG_DIR", str(tmp_path))
    assert device("mi300x") is DEVICES["mi300x"]
    device_files.user_file("mi300x").parent.mkdir()
    device_files.user_file("mi300x").write_text(a_row(**MEASURED))
    assert device("MI300X").launch_us.value == 4.5
    assert [row.launch_us.value for row in devices() if row.name == "mi300x"] == [4.5]
    assert device("h100") is DEVICES["h100"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("{", "not JSON ("),
        ("[]", "no device row: expected schema 1 with base and figures"),
        (a_row().replace("1", "2"), "no device row: expected schema 1"),
        (a_row().replace("mi300x", "mi3"), "no device is called 'mi3'; they are mi250x, "),
        (a_row(launch=MEASURED["launch_us"]), "no figure is called 'launch'; use one of units, launch_us"),
        (a_row(launch_us=4.5), "figure launch_us takes a positive value and a source, got 4.5"),
        (a_row(launch_us={"value": -1, "source": "x"}), "figure launch_us takes a positive value"),
        (a_row(launch_us={"value": float("inf"), "source": "x"}), "figure launch_us takes a positive value"),
        (a_row(bandwidth={"value": 1e-300, "source": "x"}), "figure bandwidth takes a positive value"),
        (a_row(units={"value": 0.5, "source": "x"}), "figure units takes a positive value"),
        (a_row(units={"value": True, "source": "x"}), "figure units takes a positive value"),
    ],
)
def test_files_that_hold_no_row_are_refused(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "row.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        device(str(file))
    assert "\n" not in str(refused.value)
