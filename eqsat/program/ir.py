"""Programs: named inputs, and outputs as terms over them.

>>> from eqsat.program import ops
>>> x = ops.input("x", (2, 3), "float32")
>>> print(Program((x,), {"y": ops.matmul(x, ops.transpose(x, (1, 0)))}))
%0: f32[2,3] = input("x")
%1: f32[3,2] = transpose(%0, perm=(1, 0))
%2: f32[2,2] = matmul(%0, %1)
return y=%2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.base.arguments import choice, instance, no_subclass, shown
from eqsat.base.graphs import last_reads, operands_first
from eqsat.base.numerics import Array, Precision, at_precision, dtype_name, is_float, itemsize, np_dtype
from eqsat.errors import DtypeError, InputError, escaped
from eqsat.program.term import ConstArray, Term, flat, row, topological, unflat

_MOST_LISTED = 100
"""Values that a notebook shows of a program."""


@dataclass(frozen=True, slots=True)
class Written:
    """An operator of the file that a program was read from.

    Attributes:
        spec: the operator, as the reader of the format keeps it for the writer.
        args, results: its operands and results; None for an omitted operand, or a result that nothing reads.
    """

    spec: Any
    args: tuple[Term | None, ...]
    results: tuple[Term | None, ...]

    def over(self, made: Mapping[Term, Term]) -> Written:
        """The same operator after terms became others."""
        args, results = (tuple(made.get(t, t) if t else None for t in of) for of in (self.args, self.results))
        return Written(self.spec, args, results)

    def terms(self) -> list[Term]:
        """Its operands and results."""
        return [term for term in (*self.args, *self.results) if term is not None]


@dataclass(frozen=True, slots=True)
class After:
    """The operators of a file that follow its program: what they make has a size that is known only when they run, or
    is no tensor of numbers, or depends on such a value. The program ends with what they read.

    Attributes:
        operators: the name of each, and the name of its first result.
        inputs, outputs: names of the file's inputs without a default value, and of its outputs, in order.
        unheld: those of these inputs that no program can hold.
        constants: by name, constants that the operators read.
        spec: the operators themselves, as the reader of the format keeps them for the writer.
    """

    operators: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unheld: tuple[str, ...]
    constants: Mapping[str, ConstArray]
    spec: Any


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says besides its operators.

    Attributes:
        fixed: names of inputs with a default value, which is a constant of the program.
        dims: by output, the names of its dims; "" for a dim that has none.
        spec: the rest, as the reader of the format keeps it for the writer.
        after: the operators that follow the program, if any.
    """

    fixed: tuple[str, ...] = ()
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spec: Any = None
    after: After | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The values of a program as text.

    Attributes:
        rows: name, type, and the operator with its operands.
        left_out: values that no row shows.
        results: the outputs with the names of their values.
    """

    rows: list[tuple[str, str, str]]
    left_out: int
    results: str


@dataclass(frozen=True)
class Program:
    """Named outputs as terms over named inputs.

    Attributes:
        inputs: terms of operator "input", in calling order.
        outputs: name to term, in the order of the results.
        names: what the model calls some of its values (constants, results of operators); for people alone.
        origin: the file that it was read from, if any; for measuring it as it stands there.
        written: the operators of the model in order, so that unchanged ones are written as they were.
        header: what else the model says.

    Raises:
        InputError: no output, an input that is not one, a name twice, or an input term that is not listed.
    """

    inputs: tuple[Term, ...]
    outputs: dict[str, Term]
    names: Mapping[Term, str] = field(default_factory=dict, compare=False, repr=False)
    written: tuple[Written, ...] = field(default=(), compare=False, repr=False)
    origin: Path | None = field(default=None, compare=False, repr=False)
    header: Header = field(default=Header(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, tuple) or not all(isinstance(term, Term) for term in self.inputs):
            raise InputError(f"a program's inputs are a tuple of terms, got {shown(self.inputs)}")
        named = isinstance(self.outputs, dict) and all(isinstance(name, str) for name in self.outputs)
        if not named or not all(isinstance(term, Term) for term in self.outputs.values()):
            raise InputError(f"a program's outputs are terms by name, got {shown(self.outputs)}")
        if not self.outputs:
            raise InputError("a program needs at least one output")
        instance("a program: names", self.names, Mapping, "a mapping from term to name")
        instance("a program: written", self.written, tuple, "the operators of a model")
        instance("a program: origin", self.origin, (Path, type(None)), "a path or None")
        instance("a program: header", self.header, Header, "a Header")
        names: set[str] = set()
        for term in self.inputs:
            if term.op != "input":
                raise InputError(f"a program's inputs are input terms, got {term!r}")
            name = term.attr("name")
            if name in names:
                raise InputError(f"two inputs are called {name!r}: name them differently")
            names.add(name)
        listed = set(self.inputs)
        for term in self.terms():
            if term.op == "input" and term not in listed:
                raise InputError(f"input {term.attr('name')!r} is used but not listed among the program's inputs")

    @property
    def input_names(self) -> list[str]:
        return [term.attr("name") for term in self.inputs]

    @property
    def file_outputs(self) -> list[str]:
        """Names of the outputs that a file with the program has: also those of operators that follow it."""
        after = self.header.after
        return list(self.outputs if after is None else after.outputs)

    def terms(self) -> list[Term]:
        """Every term once, operands first; inputs that nothing reads are not among them."""
        return topological(self.outputs.values())

    def opaque(self) -> list[str]:
        """Names of the operators that are carried without being understood, one per application."""
        calls = {(t.attr("name"), t.attr("spec"), t.args): None for t in self.terms() if t.op == "opaque"}
        return [name for name, _, _ in calls]

    def run(self, inputs: Mapping[str, Any], precision: Precision = "native") -> dict[str, Array]:
        """The outputs by NumPy, one operator after another.

        Args:
            inputs: input name to array, with exactly the declared names, shapes and dtypes (with precision
                "float64" any float array serves for a float input).
            precision: "native" rounds every operator to its dtype; "float64" computes every float in float64.

        Returns:
            output name to array, each in memory of its own, also where an output is an input.

        Raises:
            InputError: a missing or unknown name, a wrong shape or dtype, a gather index out of range.
        """
        choice("precision", precision, ("native", "float64"))
        bound = self.bind_inputs(inputs, precision)
        found = evaluated(list(self.outputs.values()), bound, precision)
        return dict(zip(self.outputs, apart(found, bound.values()), strict=True))

    def bind_inputs(self, inputs: Mapping[str, Any], precision: Precision = "native") -> dict[Term, Array]:
        """Input terms with their arrays, checked. Raises InputError for a wrong name, shape or dtype."""
        instance("a program", inputs, Mapping, "a mapping from input name to array")
        names = self.input_names
        for name in inputs:
            if name not in names:
                raise InputError(self.no_input(name))
        bound: dict[Term, Array] = {}
        for term in self.inputs:
            name = term.attr("name")
            if name not in inputs:
                raise InputError(f"input {name!r} is missing: the program takes {', '.join(names)}")
            no_subclass(f"input {name!r}", inputs[name])
            try:
                array = np.asarray(inputs[name])
            except ValueError:
                raise InputError(f"input {name!r} is no array: {shown(inputs[name])}") from None
            given = dtype_name(array.dtype)
            converts = precision == "float64" and is_float(given) and is_float(term.dtype)
            if array.shape != term.shape:
                raise InputError(f"input {name!r} takes shape {term.shape}, got {array.shape}")
            if given != term.dtype and not converts:
                raise DtypeError(f"input {name!r} takes {term.dtype}, got {given}")
            bound[term] = array.astype(np_dtype(at_precision(term.dtype, precision)), copy=False)
        return bound

    def no_input(self, name: str) -> str:
        """What is wrong with a value for an input of this name."""
        if name in self.header.fixed:
            return f"input {name!r} has a default value, which is a constant of the program; leave it out"
        return f"no input is called {name!r}: the program takes {', '.join(self.input_names) or 'none'}"

    def constant_bytes(self) -> int:
        """Bytes of the constants."""
        return sum(t.size * itemsize(t.dtype) for t in self.terms() if t.op == "constant")

    def stats(self) -> dict[str, int]:
        """What the program costs as written, one kernel per operator.

        Returns:
            flops: 2mnk per contraction, 1 per element of other arithmetic; constant-only work counts 0.
            matmul_flops: the contractions' share.
            bytes: read and written by those kernels (a view is read through, and costs nothing itself).
            unfused_kernels: operators that are neither views nor constant-only.
        """
        totals = {"flops": 0, "matmul_flops": 0, "bytes": 0, "unfused_kernels": 0}
        order = self.terms()
        constant: dict[Term, bool] = {}
        for term in order:
            op_row = row(term.op)
            constant[term] = not op_row.varies and all(constant[a] for a in term.args)
            if constant[term] or term.op == "input" or op_row.view:
                continue
            flops = op_row.flops(term)
            totals["flops"] += flops
            totals["matmul_flops"] += flops if op_row.contraction else 0
            totals["bytes"] += sum(t.size * itemsize(t.dtype) for t in (term, *dict.fromkeys(term.args)))
            totals["unfused_kernels"] += 1
        return totals

    def __str__(self) -> str:
        listed = self.listing(None)
        lines = [f"{name}: {type_} = {call}" for name, type_, call in listed.rows]
        return "\n".join([*lines, f"return {listed.results}"])

    def listing(self, most: int | None = _MOST_LISTED) -> Listing:
        """The values in order, the first `most` of them (None: all)."""
        order = topological([*self.inputs, *self.outputs.values()])
        names = {term: f"%{i}" for i, term in enumerate(order)}
        rows = [(names[t], t.spec, _call_text(t, [names[a] for a in t.args])) for t in order[:most]]
        results = ", ".join(f"{escaped(name)}={names[term]}" for name, term in self.outputs.items())
        return Listing(rows, len(order) - len(rows), results)

    def _repr_html_(self) -> str:
        from eqsat.html.fragments import fragment

        counts = (
            (len(self.inputs), "input"),
            (self.stats()["unfused_kernels"], "operator"),
            (len(self.outputs), "output"),
        )
        title = ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts)
        return fragment("program", title=title, program=self.listing())

    def __reduce__(self) -> tuple[Callable[..., Program], tuple[Any, ...]]:
        read = [term for each in self.written for term in each.terms()]
        order = topological([*self.inputs, *self.outputs.values(), *read])
        index = {term: i for i, term in enumerate(order)}
        rows = flat(order)
        outputs = {name: index[term] for name, term in self.outputs.items()}
        names = {index[term]: name for term, name in self.names.items() if term in index}
        written = [(w.spec, *([t and index[t] for t in of] for of in (w.args, w.results))) for w in self.written]
        return _unflatten, (rows, [index[t] for t in self.inputs], outputs, names, written, self.header)


def _unflatten(
    rows: list[Any],
    inputs: list[int],
    outputs: dict[str, int],
    names: dict[int, str],
    written: list[Any],
    header: Header,
) -> Program:
    terms = unflat(rows)

    def at(places: list[int | None]) -> tuple[Term | None, ...]:
        return tuple(None if i is None else terms[i] for i in places)

    return Program(
        tuple(terms[i] for i in inputs),
        {name: terms[i] for name, i in outputs.items()},
        {terms[i]: name for i, name in names.items()},
        tuple(Written(spec, at(args), at(results)) for spec, args, results in written),
        header=header,
    )


def evaluated(terms: Sequence[Term], known: Mapping[Term, Array], precision: Precision = "native") -> list[Array]:
    """The values of terms by NumPy, one operator after another, from `known` values of some terms below them: at least
    those of all inputs."""
    values = dict(known)
    calls: dict[Any, Sequence[Array]] = {}
    with np.errstate(all="ignore"):
        for term, done in last_reads(operands_first(terms, known), terms):
            values[term] = _apply(term, [values[a] for a in term.args], precision, calls)
            for arg in done:
                del values[arg]
    return [values[term] for term in terms]


def apart(results: Iterable[Array], given: Iterable[Array]) -> list[Array]:
    """The results, each in writable memory of its own: what shares memory with a given array, with a constant (which is
    read-only) or with a result before it is copied."""
    taken, found = list(given), list[Array]()
    for array in results:
        shared = not array.flags.writeable or any(np.may_share_memory(array, other) for other in taken)
        found.append(array.copy() if shared else array)
        taken.append(found[-1])
    return found


def _apply(term: Term, arrays: list[Array], precision: Precision, calls: dict[Any, Sequence[Array]]) -> Array:
    """One operator; an opaque one with several outputs runs once."""
    dtype = at_precision(term.dtype, precision)
    if term.op != "opaque":
        return row(term.op).run(*arrays, **{**dict(term.attrs), "dtype": dtype})
    key = (term.attr("name"), term.attr("spec"), term.args)
    if key not in calls:
        declared = [array.astype(np_dtype(arg.dtype), copy=False) for array, arg in zip(arrays, term.args, strict=True)]
        calls[key] = term.attr("run")(*declared)
    return opaque_result(term, calls[key]).astype(np_dtype(dtype), copy=False)


def opaque_result(term: Term, results: Sequence[Any]) -> Array:
    """What an opaque operator computed for one of its terms. Raises InputError where it is not what was declared."""
    index = term.attr("index")
    array = np.asarray(results[index])
    if array.shape != term.shape:
        name = term.attr("name")
        raise InputError(f"operator {name} gives shape {array.shape} for output {index}, declared as {term.shape}")
    return array


def _call_text(term: Term, args: list[str]) -> str:
    if term.op == "input":
        return f'input("{escaped(term.attr("name"))}")'
    if term.op == "reduce":
        keep = ", keepdims" if term.attr("keepdims") else ""
        return f"{term.attr('kind')}({args[0]}, axes={term.attr('axes')}{keep})"
    shown = [_attr_text(name, value) for name, value in term.attrs if name not in _UNPRINTED]
    return f"{term.op}({', '.join(args + shown)})"


_UNPRINTED = frozenset({"dtype", "out_shape", "out_dtype", "run", "spec"})
"""Attributes that the result's type shows already, or that have no readable form."""


def _attr_text(name: str, value: Any) -> str:
    return str(value) if isinstance(value, ConstArray) else f"{name}={value!r}"
