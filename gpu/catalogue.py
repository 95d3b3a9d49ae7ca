"""What kernels there are: families, their parameters and legal values, and a sample of every variant.

The samples are what the compile gates compile, and what the table in papers/kernels.md shows:

    python -m eqsat.gpu.catalogue
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from eqsat import functions
from eqsat.core import Node, lower, topological
from eqsat.gpu.families import contraction, pointwise, row
from eqsat.gpu.families.base import Job, Kernel
from eqsat.gpu.families.contraction.tiles import Tile, legal_tiles
from eqsat.gpu.families.row import ELEMENTS_A_THREAD, MOST_THREADS
from eqsat.gpu.gates import gate
from eqsat.gpu.generate import chain
from eqsat.gpu.targets import TARGETS, Target
from eqsat.trace import spec, trace

DTYPES = ("float32", "float16", "bfloat16")

_UNITS = 304
"""Compute units of the device that samples are made for: enough that nothing is split."""

_SIZE = 1024


@dataclass(frozen=True)
class Family:
    """A kernel family.

    Attributes:
        name: as in `Kernel.family`.
        computes: its meaning, in NumPy's terms.
        parameters: name to legal values for operands of a type on a target.
    """

    name: str
    computes: str
    parameters: Callable[[Target, str], dict[str, list[str]]]


def _meaning(module: Any) -> str:
    """The text at the head of a family's module."""
    return (module.__doc__ or "").strip()


FAMILIES: dict[str, Family] = {
    f.name: f
    for f in (
        Family("pointwise", _meaning(pointwise), lambda _, __: {"width": [str(w) for w in pointwise.WIDTHS]}),
        Family(
            "contraction",
            _meaning(contraction),
            lambda target, dtype: {
                "tile": [t.name for t in tiles(target, dtype)],
                "combine": list(contraction.COMBINES),
            },
        ),
        Family(
            "row",
            _meaning(row),
            lambda _, __: {
                "threads a row": [str(2**i) for i in range(MOST_THREADS.bit_length())],
                "elements a thread held": [f"up to {ELEMENTS_A_THREAD}"],
            },
        ),
    )
}
"""Every family by name."""


def tiles(target: Target, dtype: str) -> list[Tile]:
    """The tiles that fit into the LDS of a target."""
    return [t for t in legal_tiles(target, dtype) if t.lds_bytes(dtype) <= target.lds_bytes]


def _roots(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str) -> tuple[Node, ...]:
    return lower(trace(function, *(spec(shape, dtype) for shape in shapes))).roots


def _job(outputs: tuple[Node, ...]) -> Job:
    return Job(outputs, tuple(n for n in topological(outputs) if n.op == "In"), units=_UNITS)


def _chained(outputs: tuple[Node, ...], target: Target) -> tuple[Kernel, ...]:
    job = _job(outputs)
    return chain("", job.outputs, job.inputs, target, _UNITS).kernels


def samples(target: Target, dtype: str) -> Iterator[tuple[str, Kernel]]:
    """(what it is, kernel) for every family and variant with operands of a type."""
    square, line = (_SIZE, _SIZE), (_SIZE,)
    for name, function, shapes in _POINTWISE:
        for kernel in _chained(_roots(function, *shapes, dtype=dtype), target):
            yield name, kernel
    whole = _job(_roots(_dense, square, square, line, dtype=dtype))
    odd = _job(_roots(_dense, (1021, 1021), (1021, 1021), (1021,), dtype=dtype))
    turned = _job(_roots(lambda x, w, b: _dense(x, w, b).T, square, square, line, dtype=dtype))
    fitting = tiles(target, dtype)
    for tile in fitting:
        yield f"product {tile.name}", contraction.generate(whole, target, tile)
    for tile in fitting[:2]:
        yield f"product {tile.name}, odd sizes", contraction.generate(odd, target, tile)
    yield "product, written transposed", contraction.generate(turned, target, fitting[0])
    if dtype in contraction.ATOMIC_DTYPES:
        yield from _reducing(target, dtype)
    for name, function, shapes in _ROWS:
        for kernel in _chained(_roots(function, *shapes, dtype=dtype), target):
            yield name, kernel


def _reducing(target: Target, dtype: str) -> Iterator[tuple[str, Kernel]]:
    square, line = (_SIZE, _SIZE), (_SIZE,)
    for combine in contraction.COMBINES:
        for name, function in (("sum", lambda y: y.sum(axis=1)), ("max", lambda y: y.max(axis=0))):
            job = _job(_roots(lambda x, w, b, f=function: f(_dense(x, w, b)), square, square, line, dtype=dtype))
            yield f"{name} of a product, {combine}", contraction.generate(job, target, combine=combine)


def _dense(x: Any, w: Any, b: Any) -> Any:
    return _traced("relu", x @ w + b)


def _traced(name: str, *args: Any, **options: Any) -> Any:
    """The public function of that name on traced values."""
    return getattr(functions, name)(*args, **options)


def _every_function(x: Any) -> Any:
    for name in ("exp", "log", "erf", "tanh", "sigmoid", "log1p", "sin", "rsqrt", "round", "sign"):
        x = _traced(name, x)
    return x


_SQUARE, _ROW = (_SIZE, _SIZE), (_SIZE,)
_POINTWISE: tuple[tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]], ...] = (
    ("every function", _every_function, (_SQUARE,)),
    ("bias and transpose", lambda x, b: (x + b).T, (_SQUARE, _ROW)),
    ("powers", lambda x: abs(x) ** x, (_SQUARE,)),
    ("concatenation", lambda x, y: _traced("concat", [x, x % y]), (_SQUARE, _SQUARE)),
)
_ROWS: tuple[tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]], ...] = (
    ("softmax of 64", lambda x: _traced("softmax", x, axis=-1), ((_SIZE, 64),)),
    ("softmax of 16384", lambda x: _traced("softmax", x, axis=-1), ((_SIZE, 16384),)),
    ("layernorm of 768", lambda x, g, b: _traced("layernorm", x, g, b), ((_SIZE, 768), (768,), (768,))),
    ("layernorm of 65536", lambda x, g, b: _traced("layernorm", x, g, b), ((_SIZE, 65536), (65536,), (65536,))),
    ("argmax", lambda x: _traced("argmax", x, axis=1), (_SQUARE,)),
    ("sum over the leading axis", lambda x: x.sum(axis=0), (_SQUARE,)),
    ("maximum of everything", lambda x: x.max(), (_SQUARE,)),
)


def resource_table(names: tuple[str, ...] = (), dtypes: tuple[str, ...] = ("float32", "float16")) -> str:
    """Registers, LDS and occupancy of samples on every target, as Markdown; all samples by default.

    Raises:
        InputError: the compiler of a target is not installed.
    """
    lines = [
        "| kernel | type | " + " | ".join(TARGETS) + " |",
        "| --- | --- | " + " | ".join("---" for _ in TARGETS) + " |",
    ]
    for dtype in dtypes:
        cells: dict[str, dict[str, str]] = {}
        for arch, target in TARGETS.items():
            chosen = [(n, k) for n, k in samples(target, dtype) if not names or n in names]
            distinct = {k.entry: k for _, k in chosen}
            judged = gate("\n".join(k.source for k in distinct.values()), distinct.values(), target)
            by_entry = dict(zip(distinct, judged, strict=True))
            for name, kernel in chosen:
                r = by_entry[kernel.entry].resources
                cells.setdefault(name, {})[arch] = f"{r.registers}, {r.lds / 1024:.0f}K, {r.occupancy:.0%}"
        for name, row_ in cells.items():
            lines.append(f"| {name} | {dtype} | " + " | ".join(row_.get(arch, "") for arch in TARGETS) + " |")
    return "\n".join(lines)


SHOWN = (
    "every function",
    "bias and transpose",
    "product matrix_128x128x16",
    "product matrix_128x128x32",
    "product matrix_64x64x32",
    "product vector_128x128x16",
    "product vector_64x64x16",
    "sum of a product, atomic",
    "sum of a product, lds",
    "sum of a product, wave",
    "softmax of 64",
    "softmax of 16384",
    "layernorm of 768",
    "sum over the leading axis",
)
"""The rows of the table in papers/kernels.md."""


if __name__ == "__main__":
    print(resource_table(SHOWN))
