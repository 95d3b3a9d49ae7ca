"""Declared types of ONNX values: element types and shapes, with open dimensions fixed by the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eqsat.base.arguments import integer
from eqsat.errors import InputError
from eqsat.frontends.onnx.file.load import DTYPE_OF_CODE, code_name

if TYPE_CHECKING:
    from onnx import ValueInfoProto


@dataclass(frozen=True, slots=True)
class Declared:
    """A value's declared type. An open dimension is its name (dim_param) or None; shape None means unknown rank."""

    name: str
    code: int
    shape: tuple[int | str | None, ...] | None

    @property
    def static(self) -> tuple[int, ...] | None:
        """The shape, if no dimension is open."""
        sizes = tuple(size for size in self.shape or () if isinstance(size, int))
        return None if self.shape is None or len(sizes) < len(self.shape) else sizes


def declared(value: ValueInfoProto) -> Declared | None:
    """The declared tensor type of a graph input, output or value_info; None for sequences, optionals and maps.

    A value without any type counts as a tensor of unknown type (code 0).
    """
    if value.type.WhichOneof("value") not in ("tensor_type", None):
        return None
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return Declared(value.name, tensor.elem_type, None)
    sizes: list[int | str | None] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            sizes.append(dim.dim_value)
        else:
            sizes.append(dim.dim_param or None)
    return Declared(value.name, tensor.elem_type, tuple(sizes))


@dataclass
class OpenDimensions:
    """The user's sizes for open dimensions, and the open dimensions found so far that have no size.

    A key is the dimension's name, `input[axis]`, or an input's name if that input has only one open dimension.
    """

    sizes: Mapping[str, int]
    unfixed: dict[str, str] = field(default_factory=dict)  # key that would fix it -> where it is
    known_keys: dict[str, None] = field(default_factory=dict)  # every key of an open dimension met so far
    used: set[str] = field(default_factory=set)

    def fix(self, value: Declared) -> tuple[int, ...] | None:
        """The value's static shape, or None if some dimension stays open (it is then added to `unfixed`)."""
        assert value.shape is not None
        several = sum(not isinstance(size, int) for size in value.shape) > 1
        fixed = []
        for axis, size in enumerate(value.shape):
            if not isinstance(size, int):
                size = self._size(value.name, axis, size, several)
            fixed.append(size)
        return None if None in fixed else tuple(fixed)

    def known(self, value: Declared) -> tuple[int | None, ...] | None:
        """The value's shape as far as it is known: open dimensions without a size are None."""
        if value.shape is None:
            return None
        return tuple(size if isinstance(size, int) else self.sizes.get(size or "") for size in value.shape)

    def _size(self, name: str, axis: int, parameter: str | None, several: bool) -> int | None:
        self.known_keys[parameter or f"{name}[{axis}]"] = None
        keys = [parameter, f"{name}[{axis}]", None if several else name]
        for key in keys:
            if key is not None and key in self.sizes:
                self.used.add(key)
                return self.sizes[key]
        self.unfixed.setdefault(parameter or f"{name}[{axis}]", f"axis {axis} of input '{name}'")
        return None

    def check(self, label: str) -> None:
        """Raises InputError that names every dimension still open or, if there are none, every unused size."""
        if self.unfixed:
            places = ", ".join(f"{key} ({where})" for key, where in self.unfixed.items())
            flags = " ".join(f"--shape {key}=N" for key in self.unfixed)
            raise InputError(f"{label}: dynamic dimensions {places}; fix them with {flags}")
        unused = [key for key in self.sizes if key not in self.used]
        if unused:
            valid = ", ".join(self.known_keys) or "none"
            raise InputError(f"{label}: --shape {unused[0]} names no dynamic dimension of an input; there are: {valid}")


def checked_sizes(sizes: Mapping[str, int] | None, label: str) -> Mapping[str, int]:
    """The sizes, checked to be whole numbers of at least 1 (not bool or float)."""
    checked: dict[str, int] = {}
    for key, size in (sizes or {}).items():
        number = integer(size)
        if number is None or number < 1:
            raise InputError(f"{label}: size {size!r} for dimension '{key}' is no positive integer; give one")
        checked[key] = number
    return checked


def input_types(
    inputs: Iterable[ValueInfoProto], open_dims: OpenDimensions, label: str, others: Iterable[ValueInfoProto] = ()
) -> list[Declared]:
    """Every input with a static shape and a supported element type. The dims of `others` are fixed, too.

    Raises InputError that names the defect of the first bad input, or all dimensions that stay open.
    """
    found = []
    for type_ in map(declared, others):
        if type_ is not None and type_.shape is not None:
            open_dims.fix(type_)
    for value in inputs:
        type_ = declared(value)
        if type_ is None:
            raise InputError(f"{label}: input '{value.name}' is no tensor; only tensor inputs are supported")
        require_dtype(type_.code, f"{label}: input '{value.name}'")
        if type_.shape is None:
            raise InputError(f"{label}: input '{value.name}' declares no shape; export the model with one")
        shape = open_dims.fix(type_)
        if shape is not None:
            found.append(Declared(type_.name, type_.code, shape))
    open_dims.check(label)
    return found


def require_dtype(code: int, where: str) -> str:
    """The dtype of an ONNX element type; InputError if programs have no such dtype."""
    dtype = DTYPE_OF_CODE.get(code)
    if dtype is None:
        raise no_dtype(code, where)
    return dtype


def no_dtype(code: int, where: str) -> InputError:
    """The error for an element type that programs do not have."""
    return InputError(f"{where} has element type {code_name(code)}; programs hold numbers and booleans, encode it")
