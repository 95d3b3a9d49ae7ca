"""What a report says about prices: the measured times of kernels whose programs can be priced again by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from eqsat.base.files import read_json
from eqsat.errors import InputError
from eqsat.extract.device.table import DEVICES, Device, Figure
from eqsat.extract.plan.calibrate import MICRO, Micro, NotOneKernel, micro
from eqsat.suite import motivating, streaming
from eqsat.suite.programs import PRODUCT, program
from eqsat.suite.report import FILE

_SAME = 1e-3
"""Prices that differ by less are of the same kernel: figures in a report are rounded."""


class Measured(NamedTuple):
    """Microseconds of kernels by name, the device's row and the machine that they were measured on, with the date."""

    device: str
    machine: str
    times: dict[str, float]


def measured(folder: Path) -> Measured:
    """The times of single kernels in the report of a folder.

    A program counts if its plan was one kernel that has the same price when it is priced by the program's name.

    Raises:
        InputError: no report, none of a known device, or one with predicted times.
    """
    file = folder / FILE
    if not file.exists():
        raise InputError(f"{file}: no such file; give the folder of `eqsat bench --suite`")
    try:
        document = read_json(file, "a report of `eqsat bench --suite`")
        device, machine = document["device"], f"{document['card']}, {document['date']}"
        if document["times"] != "measured":
            raise InputError(f"{file}: its times are predicted: run `eqsat bench --suite quick` on a GPU")
        if device not in DEVICES:
            raise InputError(f"{file}: no row of the table is called {device!r}")
        return Measured(device, machine, dict(_times(document, DEVICES[device])))
    except (ValueError, KeyError, TypeError) as failure:
        raise InputError(f"{file}: not a report of `eqsat bench --suite`: {failure!r}") from None


def _times(document: Mapping[str, Any], row: Device) -> Iterator[tuple[str, float]]:
    fitted = (document["calibration"] or {"figures": {}})["figures"]
    row = row.with_figures({name: Figure(each["value"], each["source"]) for name, each in fitted.items()})
    for each in document["results"]:
        name, found = each["name"].removeprefix("calibrate "), each.get("result")
        if found is None:
            continue
        if each["table"] == "calibration":
            yield name, found["measured"]["us"]
        elif name not in MICRO and "times" in found and len(found["kernels"]) == 1:
            (kernel,) = found["kernels"]
            if _known(name) and math.isclose(_price(name, row), kernel["predicted_us"], rel_tol=_SAME):
                yield name, kernel["measured"]["us"]


def _known(name: str) -> bool:
    return bool(PRODUCT.fullmatch(name)) or name in motivating.PROGRAMS or name in streaming.ROWS


def _price(name: str, row: Device) -> float:
    """The price of a program as one kernel; NaN where no kernel computes it as it is written."""
    try:
        return priced(name).predicted_us(row)
    except NotOneKernel:
        return math.nan


@cache
def priced(name: str) -> Micro:
    """The program that a measurement of a report names, as one kernel.

    Raises:
        InputError: there is no such program.
    """
    if name in MICRO or not _known(name):
        return micro(name)
    return Micro(program({"program": name}))
