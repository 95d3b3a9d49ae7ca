"""The programs of the suite by name: motivating ones, streaming ones, products, and model files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import eqsat
from eqsat.base.numerics import itemsize
from eqsat.frontends.onnx.read.model import named_sizes, open_dimensions
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.suite import motivating, streaming

PRODUCT_EDGES = (512, 1024, 2048, 4096, 8192)
SEQUENCE = 128
"""Length of a model's sequences unless another is given; other open dimensions are 1."""

PRODUCT_DTYPES = ("float32", "float16", "bfloat16")
PRODUCT = re.compile(r"product of (\d+), (\w+)")
"""What `product_name` writes."""


def program(given: Mapping[str, Any]) -> Program:
    """The program that a task names: a `model` file, or a `program` of the tables or products.

    Raises:
        InputError: the file is no model that can be read.
    """
    if "model" in given:
        path = Path(given["model"])
        sizes = named_sizes(path, given["sizes"])
        return eqsat.from_onnx(path, shapes=sizes | {name: _size(name) for name in open_dimensions(path, sizes)})
    name = given["program"]
    if found := PRODUCT.fullmatch(name):
        return product(int(found[1]), found[2])
    if name in motivating.PROGRAMS:
        return motivating.PROGRAMS[name].build()
    return streaming.ROWS[name].program()


def _size(name: str) -> int:
    """The size of an open dimension that was not given one."""
    return SEQUENCE if "seq" in name else 1


def product(edge: int, dtype: str) -> Program:
    """relu(x @ w), as the products of `calibrate`: both [edge, edge] of one type."""
    return eqsat.trace(lambda x, w: eqsat.relu(x @ w), *(eqsat.spec((edge, edge), dtype),) * 2)


def product_name(edge: int, dtype: str) -> str:
    """The name of a product in tables and tasks."""
    return f"product of {edge}, {dtype}"


def compulsory_bytes(made: Program) -> int:
    """Bytes that any plan moves: inputs and constants, read once, and outputs, written once.

    Of an array that is only read by index, the elements taken count.
    """
    terms = made.terms()
    taken: dict[Term, int] = {}
    whole = set(made.outputs.values())
    for term in terms:
        for place, operand in enumerate(term.args):
            if term.op == "gather" and place == 0:
                taken[operand] = taken.get(operand, 0) + _bytes(term)
            else:
                whole.add(operand)
    leaves = [term for term in terms if term.op in ("input", "constant")]
    read = sum(_bytes(t) if t in whole else min(_bytes(t), taken.get(t, 0)) for t in leaves)
    return read + sum(_bytes(t) for t in made.outputs.values())


def _bytes(term: Term) -> int:
    return math.prod(term.shape) * itemsize(term.dtype)
