"""The result of `optimize_dynamic`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.base.arguments import instance
from eqsat.base.files import file_path
from eqsat.dynamic.candidate import at
from eqsat.dynamic.family import Family
from eqsat.errors import CheckFailed, InputError
from eqsat.frontends.onnx.dims.join import Model
from eqsat.frontends.onnx.file.copy import copy_model
from eqsat.frontends.onnx.file.types import checked_sizes
from eqsat.pipeline.result import Result
from eqsat.program.ir import Program


@dataclass(slots=True)
class Dynamic:
    """An optimised model with named dims.

    Attributes:
        best: the result at the representative size.
        family: the source at all sizes, and the ranges of its dims.
        model: the model found; None if the source stays as it is.
    """

    best: Result
    family: Family
    model: Model | None = field(repr=False)

    @property
    def report(self) -> dict[str, Any]:
        """The figures at the representative size (schema 1), and under `dynamic` those of the named dims."""
        return self.best.report

    def __str__(self) -> str:
        return str(self.best)

    def _repr_html_(self) -> str:
        return self.best._repr_html_()

    def explain(self) -> str:
        """The steps to the result, at the representative size."""
        return self.best.explain()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ONNX model: one file for all sizes; a copy of the source if that stays as it is.

        Raises:
            InputError: the file cannot be written, or the source came from no file and stays as it is.
        """
        if self.model is not None:
            self.model.save(path)
        elif self.family.path is not None:
            copy_model(self.family.path, file_path(path))
        else:
            raise InputError("the model stays as it is; it came from no file, so there is none to copy")

    def at(self, sizes: Mapping[str, int]) -> Program:
        """The optimised program at these sizes of all dims. Sizes of fixed dims may be given, too.

        Raises:
            InputError: a dim has no size, or there is no program at these sizes.
        """
        instance("at", sizes, Mapping, "a mapping from dimension to size")
        checked = checked_sizes(sizes, "at")
        point = {name: size for name, size in checked.items() if self.family.fixed.get(name) != size}
        if point.keys() != self.family.ranges.keys():
            raise InputError(f"at takes sizes of {', '.join(self.family.ranges)}, got {checked}")
        if self.model is None:
            return self.family.at(point)
        try:
            return at(self.model, point)
        except CheckFailed as error:  # outside of the ranges, where nothing was compared
            raise InputError(str(error)) from None
