"""Other operators for the same values, which a runtime may execute faster.

A runtime looks for patterns of nodes and executes each as one operator of its own. It does not know all the ways in
which exporters write them, and some of its operators are slower than the nodes that they stand for. Only measuring
tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat.frontends.onnx.file.load import NEWEST_OPSET
from eqsat.frontends.onnx.read.written import FileNode
from eqsat.frontends.onnx.write.form import Form, Param, opset_for
from eqsat.frontends.onnx.write.model import least_opset
from eqsat.frontends.onnx.write.plan import newest_forms
from eqsat.program import ops
from eqsat.program.composites import COMPOSITES
from eqsat.program.ir import Program, Written
from eqsat.program.term import Term

if TYPE_CHECKING:
    from onnx import NodeProto

_ROWS = frozenset(row.onnx for row in COMPOSITES if row.name and row.onnx)
"""Norms, activations and softmax: operators for what exporters may write as several."""

_NORM = "LayerNormalization"

_WINDOWS = frozenset({"AveragePool", "Conv", "MaxPool"})
"""Operators that pad their operand themselves."""


def spelled_otherwise(program: Program) -> Program | None:
    """The same program with other operators for some of its values; None if there are none.

    - Norms, activations and softmax are one node each, at a later opset if need be.
    - A sum that a layer normalisation reads is written as Sum, which adds two arrays as Add does: onnxruntime executes
      Add and LayerNormalization as one SkipLayerNormalization, four times as slow on a CPU (version 1.32, [64, 256]:
      84 us for 20 us).
    - Pools and convolutions pad their operand themselves. onnxruntime leaves a Pad before a pool as it is, and so
      leaves its blocked layout there.
    """
    forms = newest_forms(program)
    made = {result: each for each in program.written for result in each.results if result is not None}
    nodes = [*_composites(forms, made), *_sums(forms), *_windows(forms, made)]
    if not nodes:
        return None
    written = tuple(_written(program, term, form) for term, form in nodes)
    return replace(program, written=(*written, *program.written))


def _composites(forms: dict[Term, Form], made: dict[Term, Written]) -> Iterator[tuple[Term, Form]]:
    """Composites as one operator, unless the model has them so."""
    for term, form in forms.items():
        if form.op in _ROWS and (term not in made or made[term].spec.proto().op_type != form.op):
            yield term, form


def _sums(forms: dict[Term, Form]) -> Iterator[tuple[Term, Form]]:
    """Sums of two computed arrays that layer normalisations read."""
    for x in dict.fromkeys(form.inputs[0] for form in forms.values() if form.op == _NORM):
        if isinstance(x, Term) and x.op == "add" and all(a.op not in ("broadcast", "constant") for a in x.args):
            yield x, Form("Sum", x.args)


def _windows(forms: dict[Term, Form], made: dict[Term, Written]) -> Iterator[tuple[Term, Form]]:
    """Pools and convolutions that take over the padding that the model has before them."""
    for term, form in forms.items():
        if form.op in _WINDOWS and term in made and made[term].args[0] is not form.inputs[0]:
            yield term, form


def _written(program: Program, term: Term, form: Form) -> Written:
    """A form as an operator of the program's file."""
    args = tuple(ops.constant(x.array) if isinstance(x, Param) else x for x in form.inputs)
    opset = opset_for(form, least_opset(program)) or NEWEST_OPSET
    spec = FileNode(_node(form).SerializeToString(deterministic=True), "", opset)
    return Written(spec, tuple(x if isinstance(x, Term) else None for x in args), (term,))


def _node(form: Form) -> NodeProto:
    from onnx import helper

    given = {name: value for name, value in form.attrs.items() if value is not None}
    inputs = [f"x{i}" for i in range(len(form.inputs))]
    return helper.make_node(form.op, inputs, ["y"], **given)
