"""ONNX nodes that compute forms of dims from the shapes of a model's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count, groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.base.numerics import Array
from eqsat.frontends.onnx.dims.forms import Form
from eqsat.frontends.onnx.file.load import CODE_OF_DTYPE

if TYPE_CHECKING:
    from onnx import NodeProto


class Arithmetic:
    """Nodes and their constants; each value is computed once.

    Attributes:
        nodes: in order.
        constants: name to array.
    """

    def __init__(self, places: Mapping[str, tuple[str, int, Form]], taken: Iterable[str] = ()) -> None:
        """`places` has for each dim an input, an axis, and the size of that axis as a form of this dim alone: a factor
        times the dim, plus a constant. `taken` are names of the model."""
        self._places = places
        self._taken = set(taken)
        self._known: dict[object, str] = {}
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}

    def vector(self, forms: Sequence[Form]) -> str:
        """The name of an int64 vector of the values of these forms."""
        key = ("vector", tuple(forms))
        if key not in self._known:
            pieces: list[str] = []
            for fixed, run in groupby(forms, lambda form: form.fixed):
                if fixed:
                    pieces.append(self.constant([form.constant for form in run]))
                else:
                    pieces += [self._form(form) for form in run]
            self._known[key] = pieces[0] if len(pieces) == 1 else self.node("Concat", pieces, axis=0)
        return self._known[key]

    def array(self, forms: Sequence[Form], shape: Sequence[int], dtype: str) -> str:
        """The name of an array of these forms, flat, of a shape and a dtype."""
        name = self.vector(forms)
        if tuple(shape) != (len(forms),):
            name = self.node("Reshape", [name, self.constant(shape)])
        return name if dtype == "int64" else self.node("Cast", [name], to=CODE_OF_DTYPE[dtype])

    def constant(self, values: Sequence[int] | Array) -> str:
        """The name of a constant; int64 unless it is an array."""
        array = values if isinstance(values, np.ndarray) else np.array(values, np.int64)
        key = ("constant", array.shape, array.dtype, array.tobytes())
        if key not in self._known:
            self._known[key] = self._fresh("number")
            self.constants[self._known[key]] = array
        return self._known[key]

    def node(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """The name of the result of a node."""
        from onnx import helper

        key = (op, tuple(inputs), tuple(attrs.items()))
        if key not in self._known:
            self._known[key] = self._fresh(op.lower())
            self.nodes.append(helper.make_node(op, inputs, [self._known[key]], name=self._known[key], **attrs))
        return self._known[key]

    def _form(self, form: Form) -> str:
        """A vector of one element."""
        total = ""
        for factor, dims in form.terms:
            value = self._dim(dims[0])
            for name in dims[1:]:
                value = self.node("Mul", [value, self._dim(name)])
            if factor != 1:
                value = self.node("Mul", [value, self.constant([factor])])
            total = self.node("Add", [total, value]) if total else value
        return self.node("Add", [total, self.constant([form.constant])]) if form.constant else total

    def _dim(self, name: str) -> str:
        source, axis, form = self._places[name]
        value = self.node("Gather", [self.node("Shape", [source]), self.constant([axis])], axis=0)
        if form.constant:
            value = self.node("Sub", [value, self.constant([form.constant])])
        [(factor, _)] = form.terms
        return value if factor == 1 else self.node("Div", [value, self.constant([factor])])

    def _fresh(self, stem: str) -> str:
        name = next(x for i in count(len(self._known)) if (x := f"sizes/{stem}_{i}") not in self._taken)
        self._taken.add(name)
        return name
