"""One ONNX model with named dims, from the models of one program at several sizes.

The models must agree node by node. Where they differ, in dims inside constant operands (target shapes, bounds of
slices) or in constants that depend on sizes, nodes compute the difference from the shapes of the inputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eqsat.base.numerics import Array, is_float
from eqsat.frontends.onnx.dims.arithmetic import Arithmetic
from eqsat.frontends.onnx.dims.constants import Varying
from eqsat.frontends.onnx.dims.forms import Form, Point, dim, fit, shown
from eqsat.frontends.onnx.file.load import domain_of
from eqsat.frontends.onnx.write.save import store

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

_NUMBERS = 64
"""Most elements of a constant whose elements are fitted one by one: shapes, bounds, axes."""

_SPREADING = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"})
"""Operators of two operands that repeat either along axes where it has one element."""


class Apart(Exception):
    """Models that do not agree; the message says where and how."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A program at some sizes as a model without initializers, and these by name. The model has only constants of
    element types that programs lack."""

    point: Point
    model: ModelProto
    constants: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Model:
    """An ONNX model with named dims, without its initializers, and these by name.

    Attributes:
        dims: of outputs: the forms that their dims are named by; None for one that has no name of its own.
    """

    proto: ModelProto
    constants: Sequence[tuple[str, Array]]
    dims: Mapping[str, Sequence[Form | None]] = field(default_factory=dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it, with its initializers."""
        store(deepcopy(self.proto), self.constants, path)

    def named_by(self, point: Point, shapes: Mapping[str, Sequence[int]]) -> Model:
        """The same without names of dims of outputs that are not of these sizes at `point`.

        A form was fitted at some sizes. The rows of `x[3:]` are n - 3 at all but the least, where they are none.
        """
        wrong = {
            (name, axis)
            for name, forms in self.dims.items()
            for axis, (form, size) in enumerate(zip(forms, shapes.get(name, ()), strict=False))
            if form is not None and form.at(point) != size
        }
        if not wrong:
            return self
        proto = deepcopy(self.proto)
        for value in proto.graph.output:
            for axis, entry in enumerate(value.type.tensor_type.shape.dim):
                if (value.name, axis) in wrong:
                    entry.ClearField("dim_param")
        dims = {
            name: [None if (name, axis) in wrong else form for axis, form in enumerate(forms)]
            for name, forms in self.dims.items()
        }
        return replace(self, proto=proto, dims=dims)


def join(drafts: Sequence[Draft], whole: bool, names: Mapping[str, Sequence[str]]) -> Model:
    """The model of all drafts, with their dims named: those of outputs, by `names`, as in the source where each name
    there stands for one size.

    `whole` says whether the last draft is at the largest sizes: the others have parts of its constants.

    Raises:
        Apart: they do not agree, or differ in what cannot be expressed by their dims.
    """
    joiner = _Joiner(drafts, whole, names)
    proto = joiner.model()
    return Model(proto, list(joiner.constants.items()), joiner.named)


@dataclass
class _Joiner:
    drafts: Sequence[Draft]
    whole: bool
    names: Mapping[str, Sequence[str]]
    constants: dict[str, Array] = field(default_factory=dict)
    named: dict[str, list[Form | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.points = [draft.point for draft in self.drafts]
        self.shapes = [_shapes(draft.model) for draft in self.drafts]
        self.name: list[dict[str, str]] = [{} for _ in self.drafts]  # of values: a draft's own, to the first draft's
        self.own: list[dict[str, str]] = [{} for _ in self.drafts]  # the other way round
        self.known: dict[tuple[object, ...], str] = {}  # constants

    def model(self) -> ModelProto:
        found = deepcopy(self.drafts[0].model)
        graph = found.graph
        graphs = [draft.model.graph for draft in self.drafts]
        foreign = [[tensor.SerializeToString(deterministic=True) for tensor in each.initializer] for each in graphs]
        self._same("constants of element types that programs lack", foreign)
        self._same("inputs", [[value.name for value in each.input] for each in graphs])
        self._same("outputs", [[value.name for value in each.output] for each in graphs])
        self._same("opsets", [[(e.domain, e.version) for e in draft.model.opset_import] for draft in self.drafts])
        for value in [*graph.input, *graph.initializer]:
            self._meet(value.name, [value.name] * len(self.drafts))
        self.arithmetic = Arithmetic(self._places(graph.input), self._taken())
        if len({len(each.node) for each in graphs}) > 1:
            raise Apart(f"the numbers of its nodes differ: {[len(each.node) for each in graphs]}")
        nodes = [self._node(list(each)) for each in zip(*(each.node for each in graphs), strict=True)]
        del graph.node[:], graph.value_info[:]
        graph.node.extend([*self.arithmetic.nodes, *nodes])
        self.constants |= self.arithmetic.constants
        kept = self._kept_names(graph.output)
        for value in graph.input:
            self._name_dims(value, kept)
        self.named = {value.name: self._name_dims(value, kept) for value in graph.output}
        return found

    def _taken(self) -> set[str]:
        """The names of values and nodes of the first draft, which the model keeps."""
        draft, graph = self.drafts[0], self.drafts[0].model.graph
        values = (name for node in graph.node for name in (node.name, *node.output))
        return {*draft.constants, *(value.name for value in [*graph.input, *graph.initializer]), *values}

    def _same(self, what: str, values: Sequence[object]) -> None:
        for value, point in zip(values, self.points, strict=True):
            if value != values[0]:
                raise Apart(f"{what} differ at {shown(self.points[0])} and {shown(point)}")

    # Dims

    def _dims(self, name: str) -> list[Form | None] | None:
        """The dims of a value of the first draft; None if they are not known."""
        shapes = [shapes.get(own.get(name, name)) for shapes, own in zip(self.shapes, self.own, strict=True)]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes) or len({len(shape) for shape in known}) != 1:
            return None
        return [fit(sizes, self.points) for sizes in zip(*known, strict=True)]

    def _places(self, inputs: Sequence[ValueInfoProto]) -> dict[str, tuple[str, int, Form]]:
        """For each dim an axis of an input whose size tells it."""
        found: dict[str, tuple[str, int, Form]] = {}
        for value in inputs:
            for axis, form in enumerate(self._dims(value.name) or ()):
                if form is None:
                    raise Apart(f"axis {axis} of input '{value.name}' is no form of the dims")
                if len(form.terms) == 1 and len(form.terms[0][1]) == 1:
                    [name] = form.terms[0][1]
                    if name not in found or form == dim(name) != found[name][2]:
                        found[name] = (value.name, axis, form)
        missing = [name for name in self.points[0] if name not in found]
        if missing:
            raise Apart(f"no axis of an input tells the size of '{missing[0]}'")
        return found

    def _kept_names(self, outputs: Sequence[ValueInfoProto]) -> set[str]:
        """The source's names of dims of outputs that stand for one form each."""
        forms: dict[str, set[Form | None]] = {}
        for value in outputs:
            for name, form in zip(self.names.get(value.name, ()), self._dims(value.name) or (), strict=False):
                forms.setdefault(name, set()).add(form)
        return {name for name, found in forms.items() if name and len(found) == 1}

    def _name_dims(self, value: ValueInfoProto, kept: Collection[str]) -> list[Form | None]:
        """Name the dims of a value. Returns the forms that are names, for each dim one or None."""
        named: list[Form | None] = []
        dims = value.type.tensor_type.shape.dim
        forms = self._dims(value.name) or [None] * len(dims)
        names = self.names.get(value.name) or [""] * len(dims)
        for entry, form, name in zip(dims, forms, names, strict=True):
            named.append(None)
            if form is None or not form.fixed:
                entry.ClearField("dim_value")
                if name in kept:
                    entry.dim_param = name
                elif form is not None:
                    entry.dim_param = str(form)
                    named[-1] = form
        return named

    # Nodes

    def _node(self, nodes: list[NodeProto]) -> NodeProto:
        first = nodes[0]
        self._same(f"the nodes '{first.name}'", [_kind(node) for node in nodes])
        made = deepcopy(first)
        for i in range(len(first.input)):
            made.input[i] = self._operand(first, i, [node.input[i] for node in nodes], made)
        for j, name in enumerate(first.output):
            self._meet(name, [node.output[j] for node in nodes])
        return made

    def _meet(self, name: str, own: Sequence[str]) -> None:
        """Note the names that the drafts have for a value."""
        for there, back, each in zip(self.name, self.own, own, strict=True):
            there[each], back[name] = name, each

    def _operand(self, node: NodeProto, i: int, names: list[str], made: NodeProto) -> str:
        if not any(names):
            return ""
        arrays = [draft.constants.get(name) for draft, name in zip(self.drafts, names, strict=True)]
        held = [array for array in arrays if array is not None]
        if len(held) == len(names):
            if _equal(held):
                return self._stored(names[0], held[0])
            return self._varying(node, i, names, held, made)
        values = [known.get(name) for known, name in zip(self.name, names, strict=True)]
        self._same(f"operand {i} of {node.op_type} '{node.name}'", values)
        if values[0] is None:
            raise Apart(f"operand {i} of {node.op_type} '{node.name}' is not always a constant")
        return values[0]

    def _stored(self, name: str, array: Array) -> str:
        self.constants[name] = array
        return name

    def _varying(self, node: NodeProto, i: int, names: list[str], arrays: list[Array], made: NodeProto) -> str:
        key = (*names, node.op_type, i, made.input[0])
        if key not in self.known:
            first = arrays[0]
            numbers = not is_float(first.dtype.name) and first.dtype != bool and first.size <= _NUMBERS
            found: str | None = None
            if numbers and all(array.shape == first.shape for array in arrays):
                found = self._numbers(node, i, arrays, made)
            if found is None:
                result = self._dims(node.output[0]) if node.op_type in _SPREADING else None
                others = [self._dims(made.input[j]) for j in range(len(made.input)) if j != i]
                spread = _spread(first.ndim, result, others[0] if len(others) == 1 else None)
                found = Varying(arrays, self.points, self.whole, spread).written(self.arithmetic)
            if found is None:
                raise Apart(f"constant '{names[0]}', operand {i} of {node.op_type}, is another one at each size")
            self.known[key] = found
        return self.known[key]

    def _numbers(self, node: NodeProto, i: int, arrays: Sequence[Array], made: NodeProto) -> str | None:
        """The name of numbers that are forms of dims each; a reshape copies dims of its operand, and infers one."""
        values = list(zip(*(array.reshape(-1).tolist() for array in arrays), strict=True))
        forms = [fit(each, self.points) for each in values]
        if node.op_type == "Reshape" and i == 1 and not any(0 in each for each in values):
            source = self._dims(made.input[0]) or []
            forms = [
                Form() if form is not None and not form.fixed and j < len(source) and source[j] == form else form
                for j, form in enumerate(forms)
            ]
            computed = [j for j, form in enumerate(forms) if form is None or not form.fixed]
            if len(computed) == 1 and not any(-1 in each for each in values):
                forms[computed[0]] = Form((), -1)
        known = [form for form in forms if form is not None]
        if len(known) < len(forms):
            return None
        return self.arithmetic.array(known, arrays[0].shape, arrays[0].dtype.name)


def _spread(
    rank: int, result: Sequence[Form | None] | None, other: Sequence[Form | None] | None
) -> Callable[[int], bool]:
    """Whether an elementwise node repeats its operand of this rank along an axis: its other operand has the dim that
    the result has there."""

    def spreads(axis: int) -> bool:
        if result is None or other is None or rank - axis > min(len(result), len(other)):
            return False
        wanted, found = result[axis - rank], other[axis - rank]
        return wanted is not None and wanted == found

    return spreads


def _kind(node: NodeProto) -> object:
    """What a node is apart from the names of its values."""
    attributes = sorted(each.SerializeToString(deterministic=True) for each in node.attribute)
    empty = [not name for name in [*node.input, *node.output]]
    return node.op_type, domain_of(node), attributes, len(node.input), empty


def _equal(arrays: Sequence[Array]) -> bool:
    first = arrays[0]
    return all(
        array is first
        or (array.shape == first.shape and array.dtype == first.dtype and array.tobytes() == first.tobytes())
        for array in arrays[1:]
    )


def _shapes(model: ModelProto) -> dict[str, list[int]]:
    """The shapes of values with names."""
    graph = model.graph
    return {
        value.name: [entry.dim_value for entry in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
