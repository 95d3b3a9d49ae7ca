"""ONNX nodes that are carried as opaque terms, without being understood.

Such a node becomes a separate model in a canonical form: one node, inputs x0, x1, ..., outputs y0, y1, ..., and its
parameters as initializers. That model identifies the opaque term. ONNX's shape inference gives its output shapes,
ONNX's reference evaluator or onnxruntime runs it, and it holds everything needed to write the node back unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.base.numerics import Array, is_float, np_dtype
from eqsat.errors import InputError, refusing
from eqsat.frontends.onnx.file.load import (
    CODE_OF_DTYPE,
    DTYPE_OF_CODE,
    OLDEST_OPSET,
    TENSOR_TYPE,
    attributes,
    domain_of,
    imported,
    make_tensor,
    schema_of,
    subgraphs,
)
from eqsat.frontends.onnx.file.types import Declared, declared
from eqsat.frontends.onnx.operators.layers import window_of
from eqsat.frontends.onnx.operators.node import Constants, Node
from eqsat.frontends.onnx.read.bounded import bounded_operators, counting
from eqsat.frontends.onnx.read.runtime import WRONG, one_line_of, session
from eqsat.program.sizes import ELEMENT_WORK, FOLDED

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_KEPT_EVALUATORS = 64  # prepared evaluators; each holds the parameters of one node

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})

_SLOW = frozenset({"Col2Im", "DeformConv", "GridSample"})
"""Operators whose reference (onnx 1.23) is a loop in Python, of 50 us to 6 ms for each element of the result; it also
samples wrongly at borders, if by cubics. onnxruntime has them for some element types."""

_LEARNED = "ai.onnx.ml"
"""The domain of classical models. ONNX says little of them; converters are tested with onnxruntime, and the reference
(onnx 1.23) gives other probabilities of several classes, other labels, and other sums of trees."""

_QUICK = frozenset({"DequantizeLinear", "QuantizeLinear"})
"""Operators whose reference (onnx 1.23) takes few steps of NumPy: some nanoseconds for each element."""

_QUICK_STEPS, _STEPS = 2, 16
"""Steps of NumPy that a reference takes: others than these sort, copy several times, or compute cosines in float64."""

_ZERO_IF_MISSING: Mapping[str, Sequence[int]] = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
"""Inputs that ONNX takes to be zero where they are missing: the first states of recurrent layers."""


@dataclass(frozen=True, slots=True)
class OneNode:
    """A model of a single node, as bytes; equal models are equal. Calling it runs the node on arrays."""

    model: bytes

    def proto(self) -> ModelProto:
        from onnx import ModelProto

        return ModelProto.FromString(self.model)

    def __call__(self, *arrays: Array) -> list[Array]:
        """The node's named outputs.

        Raises InputError if neither the reference evaluator nor an installed onnxruntime knows the operator.
        """
        return _evaluator(self.model)(arrays)

    def folded(self) -> list[Array]:
        """The named outputs of a node without inputs, for a program that is written.

        Raises InputError, too, if a body has operators whose reference is wrong, and nothing else here knows them.
        """
        return _evaluator(self.model, strict=True)([])

    def __repr__(self) -> str:
        """The operator and a digest of the model, by which the core distinguishes opaque operators."""
        return f"OneNode({title(self.proto().graph.node[0])} {hashlib.sha256(self.model).hexdigest()[:32]})"


def title(node: NodeProto) -> str:
    """The operator's name with its domain: 'Loop', 'com.microsoft.FusedGemm'."""
    domain = domain_of(node)
    return f"{domain}.{node.op_type}" if domain else node.op_type


_CHANGED = frozenset({"Hardmax", "LogSoftmax", "RoiAlign", "Softmax"})
"""Operators with another meaning under the same attributes: all but RoiAlign are along one axis since opset 13,
before along all from it on; boxes of RoiAlign are shifted by half a pixel since opset 16."""


def same_form(node: NodeProto, opset: int, later: int) -> bool:
    """Whether a node and its bodies mean the same at a later opset of the main domain: the definition is the same, or
    only admits more (element types, optional inputs, attributes with a default that keeps the old meaning)."""
    if any(not same_form(inner, opset, later) for body in subgraphs(node) for inner in body.node):
        return False
    if domain_of(node):
        return True
    old, new = schema_of(node.op_type, opset), schema_of(node.op_type, later)
    if old is None or new is None:
        return False
    if old.since_version == new.since_version:
        return True
    if node.op_type in _CHANGED:
        return False
    given = {attribute.name for attribute in node.attribute}
    kept = all(
        name in new.attributes and (name in given or row.default_value == new.attributes[name].default_value)
        for name, row in old.attributes.items()
    )
    required = any(row.required for name, row in new.attributes.items() if name not in old.attributes)
    inputs = [formal.name for formal in old.inputs] == [formal.name for formal in new.inputs][: len(old.inputs)]
    return kept and inputs and not required and not new.deprecated


def since_version(node: NodeProto, opset: int) -> int | None:
    """The version that introduced the operator's definition at that opset of its domain; None if it is not defined."""
    schema = schema_of(node.op_type, opset, domain_of(node))
    return None if schema is None else schema.since_version


def one_node(
    node: NodeProto,
    opsets: Mapping[str, int],
    types: Mapping[str, Declared],
    parameters: Mapping[str, Array],
    same: Mapping[str, str] | None = None,
) -> tuple[OneNode, list[str]]:
    """The node as a separate model, and the names of the values that the model takes, in order.

    Args:
        opsets: domain to version, as in the model that the node comes from.
        types: static type of every value that the node and its bodies read from outside.
        parameters: which of these are constants to be kept inside.
        same: names of equal values, to the one that stands for them: the model takes each value once.
    """
    from onnx import helper

    same = same or {}
    read = dict.fromkeys(same.get(name, name) for name in reads(node))
    own = {name: f"x{i}" for i, name in enumerate(read)}
    names = {**own, **{name: own[first] for name, first in same.items()}}
    alone = deepcopy(node)
    alone.name = alone.doc_string = ""
    alone.domain = domain_of(node)
    _leave_out_defaults(alone, opsets)
    counter = iter(range(1 << 30))
    rename(alone, names, [f"y{i}" if name else "" for i, name in enumerate(node.output)], lambda: f"b{next(counter)}")
    taken = [name for name in own if name not in parameters]
    graph = helper.make_graph(
        [alone],
        node.op_type,
        [helper.make_tensor_value_info(names[name], types[name].code, types[name].shape) for name in taken],
        [helper.make_empty_tensor_value_info(name) for name in alone.output if name],
        [make_tensor(parameters[name], names[name]) for name in own if name in parameters],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in sorted(_versions(alone, opsets).items())]
    ir_version = helper.find_min_ir_version_for(imports, ignore_unknown=True)
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    return OneNode(model.SerializeToString(deterministic=True)), taken


def _leave_out_defaults(node: NodeProto, opsets: Mapping[str, int]) -> None:
    """Leave the attributes by name, without those that the operator's definition gives the same value anyway."""
    schema = schema_of(node.op_type, opsets.get(node.domain, 1), node.domain)
    rows = {} if schema is None else schema.attributes
    told = [each for each in node.attribute if each.name not in rows or each != rows[each.name].default_value]
    del node.attribute[:]
    node.attribute.extend(sorted(told, key=lambda each: each.name))


def without_zeros(node: NodeProto, is_zero: Callable[[str], bool]) -> NodeProto:
    """The node without inputs that are zero and would be so if they were missing: both spellings are one operator."""
    places = _ZERO_IF_MISSING.get(title(node), ())
    inputs = ["" if i in places and name and is_zero(name) else name for i, name in enumerate(node.input)]
    while inputs and not inputs[-1]:
        inputs.pop()
    alone = deepcopy(node)
    alone.input[:] = inputs
    return alone


def inferred(spec: OneNode) -> dict[str, Declared]:
    """The types of the named outputs, by ONNX's shape inference; unknown types are missing. For vendors' operators,
    onnxruntime's inference is used too, if it is installed."""
    from onnx import shape_inference

    try:
        model = shape_inference.infer_shapes(spec.proto(), data_prop=True)
    except (shape_inference.InferenceError, RuntimeError) as error:
        raise InputError(f"onnx finds no shape for it: {one_line_of(error)}") from None
    types = [declared(value) for value in model.graph.output if value.type.WhichOneof("value")]
    found = {type_.name: type_ for type_ in types if type_ is not None} | _states(spec.proto())
    found |= _pooled(spec.proto(), found)
    static = [each for each in found.values() if each.static is not None]
    if len(static) < len(model.graph.output) and domain_of(model.graph.node[0]) and find_spec("onnxruntime"):
        found.update(_told_by_runtime(spec.proto()))
        found.update((each.name, each) for each in static)
    return found


def _given(model: ModelProto) -> dict[str, Declared]:
    """The types of the inputs and of the parameters kept inside."""
    inputs = {value.name: type_ for value in model.graph.input if (type_ := declared(value)) is not None}
    stored = {each.name: Declared(each.name, each.data_type, tuple(each.dims)) for each in model.graph.initializer}
    return inputs | stored


def _states(model: ModelProto) -> dict[str, Declared]:
    """The types of a loop's states whose initial value has the shape that the body declares for operand and result.
    Inference forgets such shapes, as another turn might give another one."""
    (node,) = model.graph.node
    body = next(subgraphs(node), None)
    if title(node) != "Loop" or body is None:
        return {}
    given = _given(model)
    found: dict[str, Declared] = {}
    for name, first, taken, made in zip(node.output, node.input[2:], body.input[2:], body.output[1:], strict=False):
        types = [given.get(first), declared(taken), declared(made)]
        known = [(each.code, each.static) for each in types if each is not None and each.static is not None]
        if len(known) == len(types) and len(set(known)) == 1:
            code, shape = known[0]
            found[name] = Declared(name, code, shape)
    return found


def _pooled(model: ModelProto, types: Mapping[str, Declared]) -> dict[str, Declared]:
    """The types of the outputs of a pool whose sizes are rounded up. Before opset 22, inference (onnx 1.23) also counts
    a window that starts in the upper padding; no runtime does."""
    (node,) = model.graph.node
    told = attributes(node)
    if title(node) not in _POOLS or not told.get("ceil_mode") or "kernel_shape" not in told:
        return {}
    operand = _given(model).get(node.input[0])
    if operand is None or operand.static is None:
        return {}
    shape = operand.static
    window = window_of(Node(node.op_type, 0, told, (), (), Constants()), shape[2:], told["kernel_shape"])
    whole = (*shape[:2], *window.counts(shape[2:]))
    return {name: Declared(name, type_.code, whole) for name, type_ in types.items()}


_CODES = {text: CODE_OF_DTYPE[dtype] for dtype, text in TENSOR_TYPE.items()}


def _told_by_runtime(model: ModelProto) -> dict[str, Declared]:
    """The types of a vendor's outputs by onnxruntime, which tells an unknown shape as it tells the shape ()."""
    try:
        outputs = session(model, title(model.graph.node[0])).get_outputs()
    except InputError:
        return {}
    known = [out for out in outputs if out.type in _CODES]
    return {out.name: Declared(out.name, _CODES[out.type], tuple(out.shape) or None) for out in known}


_CLASSICAL = "ai.onnx.ml"
"""Operators of this domain have no inference, but the sizes of their results never depend on values."""


def seen(spec: OneNode) -> dict[str, Declared]:
    """The types of a vendor's outputs as onnxruntime makes them of inputs of these types; empty if values may decide
    them, or if it is not installed."""
    model = spec.proto()
    types = [declared(value) for value in model.graph.input]
    inputs = [(each.name, each.static, DTYPE_OF_CODE[each.code]) for each in types if each and each.static is not None]
    domain = domain_of(model.graph.node[0])
    small = len(inputs) == len(types) and all(prod(shape) <= FOLDED for _, shape, _ in inputs)
    if not domain or not small or not find_spec("onnxruntime"):
        return {}
    if domain == _CLASSICAL:
        steps = [0]
    elif all(is_float(dtype) for _, _, dtype in inputs):
        steps = [0, 1]  # all equal, and all different; integers may be places or sizes, which such numbers are not
    else:
        return {}
    try:
        running = session(model, title(model.graph.node[0]))
        made = [
            _made(running, {n: (np.arange(prod(s)) * step).reshape(s).astype(np_dtype(d)) for n, s, d in inputs})
            for step in steps
        ]
    except InputError:
        return {}
    return made[0] if made[0] == made[-1] else {}


def _made(session: Any, given: Mapping[str, Array]) -> dict[str, Declared]:
    known = [out for out in session.get_outputs() if out.type in _CODES]
    if not known:  # asked for no output, it gives all
        return {}
    with refusing(lambda: "onnxruntime"):
        arrays = session.run([out.name for out in known], given)
    return {o.name: Declared(o.name, _CODES[o.type], np.shape(a)) for o, a in zip(known, arrays, strict=True)}


def _versions(node: NodeProto, opsets: Mapping[str, int]) -> dict[str, int]:
    """The versions of the domains that a node and its bodies use. Of the main one, the first from `OLDEST_OPSET` on
    with the definitions that are in force: models of several versions then have the same operator."""
    found = {"": min(opsets.get("", OLDEST_OPSET), OLDEST_OPSET)}
    for inner in with_bodies(node):
        domain = domain_of(inner)
        version = opsets.get(domain, 1)
        found[domain] = version if domain else max(found[""], since_version(inner, version) or version)
    return found


def with_bodies(node: NodeProto) -> Iterator[NodeProto]:
    """The node, and the nodes of its bodies."""
    yield node
    for body in subgraphs(node):
        for inner in body.node:
            yield from with_bodies(inner)


# What running takes


def run_work(node: NodeProto) -> int:
    """FLOPs of a product in the time that a node takes for each element of its operands and results."""
    return ELEMENT_WORK * (_QUICK_STEPS if title(node) in _QUICK else _STEPS)


def most_elements(type_: Declared, operands: Iterable[Array]) -> int:
    """Elements of a result; where values decide, at most: the places of all elements of an operand."""
    if type_.static is not None:
        return prod(type_.static)
    return max((array.size * max(1, array.ndim) for array in operands), default=0)


# Names inside bodies


def rename(node: NodeProto, outer: Mapping[str, str], outputs: Sequence[str], fresh: Callable[[], str]) -> None:
    """Renames in place the node's inputs (`outer`), its outputs, and every name inside its bodies (`fresh`)."""
    node.input[:] = [outer.get(name, name) for name in node.input]
    node.output[:] = outputs
    for body in subgraphs(node):
        _rename_body(body, outer, fresh)


def _rename_body(body: GraphProto, outer: Mapping[str, str], fresh: Callable[[], str]) -> None:
    inner: dict[str, str] = {}
    for value in [*body.input, *body.initializer]:
        if value.name not in inner:
            inner[value.name] = fresh()
        value.name = inner[value.name]
    scope = {**outer, **inner}
    for node in body.node:
        node.name = ""
        outputs = [fresh() if name else "" for name in node.output]
        made = dict(zip(node.output, outputs, strict=True))
        rename(node, scope, outputs, fresh)
        scope.update(made)
    for value in body.output:
        value.name = scope.get(value.name, value.name)
    del body.value_info[:]


def reads(node: NodeProto) -> list[str]:
    """Every name that the node and its bodies read from outside, each once.

    Each body gives a name to the one around it once, however often it reads it: else nested bodies take long.
    """
    found = dict.fromkeys(node.input)
    for body in subgraphs(node) if node.attribute else ():
        own = {value.name for value in [*body.input, *body.initializer]}
        for inner in body.node:
            found.update((name, None) for name in reads(inner) if name not in own)
            own.update(inner.output)
        found.update((value.name, None) for value in body.output if value.name not in own)
    found.pop("", None)
    return list(found)


# Evaluation


Evaluator = Callable[[Sequence[Array]], list[Array]]


class _Failed(InputError):
    """An evaluator does not take the values, and another one may."""


@lru_cache(maxsize=_KEPT_EVALUATORS)
def _evaluator(model: bytes, strict: bool = False) -> Evaluator:
    """onnx's reference; onnxruntime, if it is installed, where there is none, or it fails, is slow, or is not what
    models are tested with. Operators with bodies have the reference, which counts the work of loops; onnxruntime
    computes single nodes of these. If it does not, a strict evaluator fails, and others take the reference."""
    spec = OneNode(model)
    node = spec.proto().graph.node[0]
    if any(True for _ in subgraphs(node)):
        return _node_by_node(spec.proto(), strict)
    reference = _reference(spec.proto())
    if reference is None:
        return _runtime(spec.proto())
    if not find_spec("onnxruntime"):
        return reference
    if title(node) in _SLOW or domain_of(node) == _LEARNED:
        with suppress(InputError):  # not for this element type
            return _runtime(spec.proto())
    return _either(reference, spec)


def _node_by_node(proto: ModelProto, strict: bool) -> Evaluator:
    """onnx's reference for an operator with bodies, with onnxruntime for what that gets wrong in them."""
    learned = next((inner for inner in with_bodies(proto.graph.node[0]) if domain_of(inner) == _LEARNED), None)
    if strict and learned is not None:
        raise InputError(f"the reference of operator {title(learned)} is not what models are tested with")
    found = _by_reference(proto, bounded_operators(imported(proto.opset_import).get("", OLDEST_OPSET), strict))
    return _runtime(proto) if found is None else found


def _reference(proto: ModelProto) -> Evaluator | None:
    """onnx's reference; None where there is none, or a wrong one and onnxruntime instead."""
    node = proto.graph.node[0]
    opsets = imported(proto.opset_import)
    version = since_version(node, opsets.get(domain_of(node), 1)) or 1
    if version < WRONG.get(title(node), 0) and find_spec("onnxruntime"):
        return None
    return _by_reference(proto, bounded_operators())


def _by_reference(proto: ModelProto, operators: Sequence[Any]) -> Evaluator | None:
    from onnx.reference import ReferenceEvaluator

    _state_conditions(proto.graph)
    with suppress(Exception):  # an operator without a reference, or one that is malformed, raises anything
        return _running(ReferenceEvaluator(proto, new_ops=list(operators)), proto, "its reference")
    return None


def _runtime(proto: ModelProto) -> Evaluator:
    with refusing(lambda: f"operator {title(proto.graph.node[0])}"):
        return _running(session(proto, title(proto.graph.node[0])), proto, "onnxruntime")


def _either(reference: Evaluator, spec: OneNode) -> Evaluator:
    """The reference, or onnxruntime where that fails or makes another shape than ONNX infers."""
    types: Mapping[str, Declared] = {}
    with suppress(InputError):
        types = inferred(spec)
    wanted = [types.get(value.name) for value in spec.proto().graph.output]
    runtime = cache(lambda: _runtime(spec.proto()))

    def run(arrays: Sequence[Array]) -> list[Array]:
        try:
            outputs = reference(arrays)
        except _Failed:
            with suppress(InputError):
                return runtime()(arrays)
            raise
        known = [(type_.static, out.shape) for type_, out in zip(wanted, outputs, strict=True) if type_]
        if any(static not in (None, shape) for static, shape in known):
            with suppress(InputError):
                return runtime()(arrays)
        return outputs

    return run


def _running(session: Any, proto: ModelProto, what: str) -> Evaluator:
    name = title(proto.graph.node[0])
    inputs = [value.name for value in proto.graph.input]

    def run(arrays: Sequence[Array]) -> list[Array]:
        try:
            with counting(), np.errstate(all="ignore"):
                outputs = session.run(None, dict(zip(inputs, arrays, strict=True)))
        except InputError as error:
            raise InputError(f"operator {name}: {error}") from None
        except Exception as error:  # what they raise on values that they do not take has no common class
            raise _Failed(f"operator {name} failed in {what}: {one_line_of(error)}") from error
        if not all(isinstance(out, np.ndarray | np.generic) for out in outputs):
            raise InputError(f"operator {name} gives a sequence or an optional; only tensors are supported")
        return [np.asarray(out) for out in outputs]

    return run


def _state_conditions(graph: GraphProto) -> None:
    """Gives Loops without a condition the constant true: onnx's reference (1.23) never runs them otherwise."""
    for node in graph.node:
        if node.op_type == "Loop" and not (node.input[1:2] or [""])[0]:
            name = f"{node.output[0]}_condition"
            node.input[1:2] = [name]
            graph.initializer.append(make_tensor(np.array(True), name))
        for inner in subgraphs(node):
            _state_conditions(inner)
