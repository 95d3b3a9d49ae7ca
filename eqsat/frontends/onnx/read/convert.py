"""Converts nodes to terms: by their row, by folding, by their standard body, or as opaque terms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from eqsat.base.numerics import Array
from eqsat.errors import InputError, StoredError, refusing
from eqsat.frontends.onnx.file.checks import check_node
from eqsat.frontends.onnx.file.function import called, function_body
from eqsat.frontends.onnx.file.load import (
    CODE_OF_DTYPE,
    DTYPE_OF_CODE,
    OLDEST_OPSET,
    attributes,
    domain_of,
    function_key,
    imported,
    make_tensor,
    schema_of,
    subgraphs,
    tensor_array,
)
from eqsat.frontends.onnx.file.types import Declared, no_dtype
from eqsat.frontends.onnx.operators.elementwise import ELEMENTWISE, RANDOM, no_random
from eqsat.frontends.onnx.operators.indexing import INDEXING
from eqsat.frontends.onnx.operators.layers import LAYERS
from eqsat.frontends.onnx.operators.microsoft import MICROSOFT, UNVERSIONED
from eqsat.frontends.onnx.operators.movement import MOVEMENT, constant_term
from eqsat.frontends.onnx.operators.node import Constants, Node, Row
from eqsat.frontends.onnx.operators.reductions import REDUCTIONS
from eqsat.frontends.onnx.operators.resample import RESAMPLING
from eqsat.frontends.onnx.operators.signal import SIGNAL
from eqsat.frontends.onnx.read.bounded import spending
from eqsat.frontends.onnx.read.control import unrolled_loop, unrolled_scan
from eqsat.frontends.onnx.read.graph import Reader, describe, in_order, live, readers
from eqsat.frontends.onnx.read.opaque import (
    OneNode,
    inferred,
    most_elements,
    one_node,
    reads,
    run_work,
    same_form,
    seen,
    title,
    with_bodies,
    without_zeros,
)
from eqsat.frontends.onnx.read.recurrent import RECURRENT
from eqsat.frontends.terms.declined import Declined
from eqsat.program import ops
from eqsat.program.sizes import FOLDED, check_size
from eqsat.program.term import Term, digest_all

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto, TensorProto
    from onnx.defs import OpSchema

    from eqsat.frontends.onnx.read.inline import Functions

ROWS: dict[str, Row] = {
    **ELEMENTWISE,
    **MOVEMENT,
    **INDEXING,
    **RESAMPLING,
    **REDUCTIONS,
    **LAYERS,
    **SIGNAL,
    **RECURRENT,
}
"""Every ONNX operator that becomes terms, by name; a new one is one more row in its family's table."""

_OLDEST_UNROLLED = {"Loop": 1, "Scan": 9}  # before, Scan had a batch dim and lengths

VENDOR = "com.microsoft"
"""The domain of onnxruntime's own operators."""

_PARAMETER_ELEMENTS = 64  # a constant of so many elements, at most, is kept inside an opaque operator

STANDARD = frozenset({"", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"})
"""The domains whose operators ONNX defines."""

Value = Term | Array  # an array: a constant of an element type that programs do not have
Env = dict[str, Value]
Results = Sequence[Value | None]

Made = TypeVar("Made")

_NONE: Mapping[str, TensorProto] = MappingProxyType({})


class Follows(InputError):
    """A node makes what no program can hold: a value of unknown size, or no tensor of numbers."""


@dataclass
class Split:
    """A graph in two parts.

    Attributes:
        env: the values that a program can hold.
        after: names of the inputs and results that it cannot.
        before: the nodes that make values of the program, producers before readers.
        following: the other nodes, in such an order.
        first: why the first of them follows, unless it reads an input that no program holds.
    """

    env: Env
    after: dict[str, None]
    before: list[NodeProto] = field(default_factory=list)
    following: list[NodeProto] = field(default_factory=list)
    first: Follows | None = None


@dataclass(frozen=True)
class Converter:
    """Converts the nodes of one scope: a model's graph, a branch, a function body.

    Attributes:
        label: the beginning of error messages.
        base: the folder of external data.
        opsets: domain to version.
        declared: static types that the file declares for values whose types cannot be inferred.
        constants: values of constant terms.
        functions: local functions whose calls are converted at the opsets of the function.
        expanding: whether this is a standard body; if a part of it would be opaque, the whole operator is carried.
        unrolling: whether this is a loop that is being unrolled; loops inside it are not unrolled.
    """

    label: str
    base: Path | None
    opsets: Mapping[str, int]
    declared: Callable[[str], Declared | None]
    constants: Constants
    functions: Functions
    expanding: bool = False
    unrolling: bool = False

    def graph(self, graph: GraphProto, env: Env) -> Env:
        """`env` (inputs and outer values) extended with all values that the graph's outputs need."""
        env = dict(env)
        self._walk(graph.node, [value.name for value in graph.output], env, self._stored(graph))
        return env

    def split(self, graph: GraphProto, env: Env, unheld: Collection[str]) -> Split:
        """The values of a graph, and the nodes that make them; apart, the nodes that follow the program: they read one
        of the inputs `unheld`, which no program holds, or `Follows` is raised of them, or they read what such a node
        makes. Constant outputs that no program holds, such as texts, are written there, too."""
        from onnx import helper

        found = Split(dict(env), dict.fromkeys(unheld))
        outputs = [value.name for value in graph.output]
        needed, used = self._needed(graph.node, outputs, found.env, self._stored(graph), unheld)
        for node, read in needed:
            if found.after.keys().isdisjoint(read):
                try:
                    self._node(node, found.env, used)
                except Follows as why:
                    found.first = found.first or why
                else:
                    found.before.append(node)
                    continue
            self._named(node, lambda node=node: self._check_following(node))
            found.following.append(node)
            found.after.update(dict.fromkeys(filter(None, node.output)))
        stored = {name: array for name in outputs if isinstance(array := found.env.get(name), np.ndarray)}
        for name, array in stored.items():
            found.first = found.first or self._unheld(name, array)
            found.following.insert(0, helper.make_node("Constant", [], [name], value=make_tensor(array, name)))
            found.after[name] = None
        return found

    def _unheld(self, name: str, array: Array) -> Follows:
        """Why a constant output follows the program."""
        return Follows(f"{self.label}: {no_dtype(make_tensor(array, name).data_type, f'output {name!r}')}")

    def _check_following(self, node: NodeProto) -> None:
        """Raises InputError for a node that is malformed or random, or whose operator means nothing elsewhere."""
        schema = self._schema(node)
        if schema is not None:
            check_node(node, schema)
        elif domain_of(node) in STANDARD:
            raise InputError(f"{title(node)} is no operator of opset {self.opsets[domain_of(node)]}; check its name")
        for inner in with_bodies(node):
            if function_key(inner) in self.functions:
                raise InputError(
                    f"{inner.op_type} is a local function that is written for another opset than the model; "
                    "convert the function to that opset"
                )
            if not domain_of(inner) and inner.op_type in RANDOM:
                raise no_random()

    def _stored(self, graph: GraphProto) -> dict[str, TensorProto]:
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise InputError(f"{self.label}: initializer '{name}' is sparse, which is not supported; store it dense")
        return {tensor.name: tensor for tensor in graph.initializer}

    def _walk(
        self, nodes: Sequence[NodeProto], outputs: Sequence[str], env: Env, stored: Mapping[str, TensorProto] = _NONE
    ) -> None:
        """Adds the values that the outputs need to `env`."""
        needed, used = self._needed(nodes, outputs, env, stored)
        for node, _ in needed:
            self._node(node, env, used)

    def _needed(
        self,
        nodes: Sequence[NodeProto],
        outputs: Sequence[str],
        env: Env,
        stored: Mapping[str, TensorProto],
        unheld: Collection[str] = (),
    ) -> tuple[list[Reader], Container[str]]:
        """The nodes that the outputs need, in order, and every name that is used; stored tensors among these are read
        into `env`."""
        needed = live(in_order(readers(nodes), env.keys() | stored.keys() | set(unheld), self.label), outputs)
        used = dict.fromkeys(name for _, read in needed for name in read) | dict.fromkeys(outputs)
        arrays = {name: tensor_array(stored[name], self.base, self.label) for name in used if name in stored}
        self.constants.budget.grant(sum(array.size for array in arrays.values()))
        digest_all(array for array in arrays.values() if array.dtype.name in CODE_OF_DTYPE)
        env.update((name, _value(array)) for name, array in arrays.items())
        return needed, used

    def _named(self, node: NodeProto, run: Callable[[], Made]) -> Made:
        """Whatever `run` makes of a node. Errors name the node."""
        try:
            with refusing(lambda: f"{self.label}: {describe(node)}", let=(Declined,)):
                return run()
        except InputError as error:
            if self.expanding or str(error).startswith(f"{self.label}: "):
                raise
            raise type(error)(f"{self.label}: {describe(node)}: {error}") from None

    def _node(self, node: NodeProto, env: Env, used: Container[str]) -> None:
        """Converts one node and adds its outputs to `env`."""
        results = self._named(node, lambda: self._results(node, env, used))
        for name, value in zip(node.output, results, strict=False):
            if name and value is not None:
                if isinstance(value, Term):
                    check_size(value, f"{self.label}: {describe(node)}: its result '{name}'")
                env[name] = value

    def _results(self, node: NodeProto, env: Env, used: Container[str]) -> Results:
        function = self.functions.get(function_key(node))
        if function is not None:
            return self._by_function(called(function, node), node, env)
        schema = self._schema(node)
        if schema is not None:
            check_node(node, schema)
        for way in (self._by_branch, self._by_steps, self._by_row, self._by_folding, self._by_body):
            results = way(node, env, schema, used)
            if results is not None:
                return results
        return self._opaque(node, env)

    def _schema(self, node: NodeProto) -> OpSchema | None:
        """The operator's definition in force, None for vendors' operators."""
        domain = domain_of(node)
        if domain not in self.opsets:
            raise InputError(f"domain '{domain}' is not among the model's opset imports; import it")
        found = schema_of(node.op_type, self.opsets[domain], domain)
        unversioned = not domain and node.op_type in UNVERSIONED
        if found is None and not unversioned:
            from onnx import defs

            if defs.has(node.op_type, domain):
                raise InputError(f"opset {self.opsets[domain]} has no operator {title(node)}; raise the opset")
        return found

    def _by_function(self, body: FunctionProto, node: NodeProto, env: Env) -> Results:
        """By the body of a local function, at that function's opsets."""
        inner = replace(self, opsets=imported(body.opset_import), declared=lambda name: None)
        scope: Env = {formal: env[name] for formal, name in zip(body.input, node.input, strict=False) if name}
        inner._walk(body.node, body.output, scope)
        made = [scope.get(formal) for formal in body.output]
        for i, name in enumerate(node.output):
            if name and (i >= len(made) or made[i] is None):
                raise InputError(f"the local function makes no value for output '{name}'; correct one of them")
        return made

    # The ways, in order; None where one does not apply

    def _by_branch(self, node: NodeProto, env: Env, schema: OpSchema | None, used: Container[str]) -> Results | None:
        """By the branch of an If whose condition is constant."""
        if schema is None or schema.domain or node.op_type != "If":
            return None
        condition = self._constant(env[node.input[0]])
        if condition is None:
            return None
        taken = attributes(node)["then_branch" if condition.reshape(-1)[0] else "else_branch"]
        inner = self.graph(taken, env)
        return [inner[value.name] for value in taken.output]

    def _by_steps(self, node: NodeProto, env: Env, schema: OpSchema | None, used: Container[str]) -> Results | None:
        """By the steps of a loop of known length, if all their operators become terms."""
        oldest = _OLDEST_UNROLLED.get(node.op_type, inf)
        if schema is None or schema.since_version < oldest or schema.domain or self.unrolling:
            return None
        inner = replace(self, declared=lambda name: None, expanding=True, unrolling=True)
        try:
            if node.op_type == "Scan":
                found = unrolled_scan(node, env, inner.graph)
            else:
                found = unrolled_loop(node, env, inner.graph, self._constant)
        except (Declined, InputError):
            return None
        return found if found is not None and all(isinstance(value, Term) for value in found) else None

    def _by_row(self, node: NodeProto, env: Env, schema: OpSchema | None, used: Container[str]) -> Results | None:
        """By the operator's row, if it covers this version and use."""
        row, version = _row(node, schema)
        inputs = [env[name] if name else None for name in node.input]
        if row is None or version not in row.since:
            return None
        if any(isinstance(value, np.ndarray) for value in inputs):
            return None
        wanted = tuple(name != "" and name in used for name in node.output)
        view = Node(node.op_type, version, attributes(node), tuple(inputs), wanted, self.constants)  # type: ignore[arg-type]
        try:
            results = row.convert(view)
        except (Declined, StoredError):
            return None
        results = [results] if isinstance(results, Term) else list(results)
        missing = any(want and (i >= len(results) or results[i] is None) for i, want in enumerate(wanted))
        return None if missing else results

    def _by_folding(self, node: NodeProto, env: Env, schema: OpSchema | None, used: Container[str]) -> Results | None:
        """By running it now, if all its operands are constant."""
        values = {name: self._constant(env[name]) for name in reads(node)}
        if any(value is None for value in values.values()):
            return None
        operands = {name: value for name, value in values.items() if value is not None}
        if not self._may_run(node, [array.size for array in operands.values()]):
            return None
        spec, _ = one_node(node, self.opsets, {}, operands)
        try:
            if not self._may_run(node, [most_elements(each, operands.values()) for each in inferred(spec).values()]):
                return None
            with spending(self.constants.budget):
                return _spread(node, [_value(array) for array in spec.folded()])
        except InputError:  # nothing here runs it
            return None

    def _may_run(self, node: NodeProto, sizes: Sequence[int]) -> bool:
        """Whether a node with operands or results of these sizes may be run now, after all that was computed before."""
        return max(sizes, default=0) <= FOLDED and self.constants.budget.spend(sum(sizes) * run_work(node))

    def _by_body(self, node: NodeProto, env: Env, schema: OpSchema | None, used: Container[str]) -> Results | None:
        """By its body in the ONNX standard, if everything in that becomes terms."""
        if schema is None:
            return None
        read = {name: env[name] for name in reads(node)}
        if any(isinstance(value, np.ndarray) for value in read.values()):
            return None
        body = function_body(schema, node, self.opsets[schema.domain], _types(read))
        if body is None:
            return None
        opsets = {entry.domain: entry.version for entry in body.opset_import} or self.opsets
        inner = Converter(self.label, self.base, opsets, lambda name: None, self.constants, {}, True, self.unrolling)
        scope: Env = {formal: env[name] for formal, name in zip(body.input, node.input, strict=False) if name}
        try:
            inner._walk(body.node, body.output, scope)
        except (Declined, InputError):
            return None
        return [scope.get(name) for name in body.output]

    def _opaque(self, node: NodeProto, env: Env) -> Results:
        """As an opaque term."""
        if self.expanding:
            raise Declined(f"{title(node)} inside a standard body")
        for inner in with_bodies(node):
            if function_key(inner) in self.functions:
                raise InputError(
                    f"{title(node)} is carried as it is, but its body calls the local function '{inner.op_type}', "
                    "which is written for another opset than the model; convert the function to that opset"
                )
        if self.opsets.get("", OLDEST_OPSET) < OLDEST_OPSET and not same_form(node, self.opsets[""], OLDEST_OPSET):
            return self._converted(node, env)
        opsets = self._export_opsets()
        node = without_zeros(node, lambda name: self._is_zero(env[name]))
        read = {name: env[name] for name in reads(node)}
        parameters = {name: value for name, given in read.items() if (value := self._parameter(given)) is not None}
        first: dict[Value, str] = {}
        same = {name: first.setdefault(value, name) for name, value in read.items() if isinstance(value, Term)}
        spec, taken = one_node(node, opsets, _types(read), parameters, same)
        outputs = self._output_types(node, spec)
        args = [env[name] for name in taken]
        return _spread(node, ops.opaque(title(node), args, outputs, spec, spec))  # type: ignore[arg-type]

    def _is_zero(self, value: Value) -> bool:
        known = self._constant(value)
        return known is not None and not known.any()

    def _converted(self, node: NodeProto, env: Env) -> Results:
        """As onnx's version converter writes it at OLDEST_OPSET. The converter ignores bodies."""
        from onnx import version_converter

        opset = self.opsets[""]
        spec, taken = one_node(node, self.opsets, _types({name: env[name] for name in reads(node)}), {})
        try:
            if any(True for _ in subgraphs(node)):
                raise RuntimeError("a body")
            model = version_converter.convert_version(spec.proto(), OLDEST_OPSET)
        except (RuntimeError, ValueError):  # an operator that it does not know
            hint = f"convert the model to opset {OLDEST_OPSET}"
            raise InputError(f"its form in opset {opset} is not supported; {hint}") from None
        inner = replace(self, opsets={**self.opsets, "": OLDEST_OPSET}, declared=lambda name: None)
        scope = inner.graph(model.graph, {f"x{i}": env[name] for i, name in enumerate(taken)})
        return _spread(node, [scope[value.name] for value in model.graph.output])

    def _export_opsets(self) -> Mapping[str, int]:
        """The opsets at which a node can be written back: the model's, but at least OLDEST_OPSET."""
        return {**self.opsets, "": max(self.opsets.get("", OLDEST_OPSET), OLDEST_OPSET)}

    def _output_types(self, node: NodeProto, spec: OneNode) -> list[tuple[tuple[int, ...], str]]:
        """The static types of opaque outputs: inferred by ONNX, declared in the file, or else seen in a run."""
        found: list[tuple[tuple[int, ...], str]] = []
        types = inferred(spec)
        for i, name in enumerate(node.output):
            if not name:
                continue
            type_ = types.get(f"y{i}")
            if type_ is None or type_.static is None:
                type_ = self.declared(name) or type_
            if type_ is None or type_.static is None:
                type_ = seen(spec).get(f"y{i}")
            if type_ is None or type_.static is None:
                raise self._follows(node)(
                    f"{title(node)} is carried as it is, but the shape of its output '{name}' cannot be inferred; "
                    "declare it in value_info, or make the inputs that decide it constant"
                )
            if type_.code not in DTYPE_OF_CODE:
                raise Follows(str(no_dtype(type_.code, f"its output '{name}'")))
            found.append((type_.static, DTYPE_OF_CODE[type_.code]))
        return found

    def _follows(self, node: NodeProto) -> type[InputError]:
        """What to raise of a node whose results have no known size: only a node that is defined can be run later."""
        known = domain_of(node) not in STANDARD or self._schema(node) is not None
        return Follows if known else InputError

    # Values

    def _constant(self, value: Value) -> Array | None:
        return self.constants.value(value) if isinstance(value, Term) else value

    def _parameter(self, value: Value) -> Array | None:
        """The value of a constant that an opaque operator keeps inside: small, or of a type that programs lack."""
        if isinstance(value, Term) and value.size > _PARAMETER_ELEMENTS:
            return None
        return self._constant(value)


def _types(values: Env) -> dict[str, Declared]:
    """The static types of values that programs hold."""
    return {n: Declared(n, CODE_OF_DTYPE[v.dtype], v.shape) for n, v in values.items() if isinstance(v, Term)}


def _row(node: NodeProto, schema: OpSchema | None) -> tuple[Row | None, int]:
    """The operator's row, and the version of the definition in force."""
    if domain_of(node) == VENDOR:
        return MICROSOFT.get(node.op_type), 1
    if schema is None:
        return (None if domain_of(node) else UNVERSIONED.get(node.op_type)), 1
    return (None if schema.domain else ROWS.get(node.op_type)), schema.since_version


def _value(array: Array) -> Value:
    """A constant as a term, or the array itself if programs do not have its element type."""
    return constant_term(array) if array.dtype.name in CODE_OF_DTYPE else array


def _spread(node: NodeProto, named: Sequence[Value]) -> list[Value | None]:
    """The results of the named outputs, at their positions among all outputs."""
    values = iter(named)
    return [next(values) if name else None for name in node.output]
