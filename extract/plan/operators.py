"""Programs of few operators, for calibrating devices whose programs run in a runtime, operator by operator.

Their sizes are those of convolutional networks and transformers: what is small fits into the first cache, what is large
into none. Weights are constants, so that the runtime packs them as it does those of models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import unknown
from eqsat.extract.cover import cover
from eqsat.extract.device.table import Device
from eqsat.extract.kernels.composites import Operator
from eqsat.program import composites, ops
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.program.term import Shape, Term

_ENOUGH = 5.0
"""Seconds for the cover of one operator, which takes milliseconds."""


class Executed:
    """A program as a runtime executes it.

    Attributes:
        whole: whether the runtime has one operator for all of it.
    """

    def __init__(self, program: Program, whole: bool) -> None:
        self.program = program
        self._snapshot = snapshot = Snapshot.from_core(lower(program).roots)
        operands = tuple(c for c in range(snapshot.n_classes) if snapshot.is_input(c))
        self._operators: list[Operator] = [(root, operands) for root in snapshot.roots if whole]

    def predicted_us(self, device: Device) -> float:
        """The cost model's time."""
        return cover(self._snapshot, device, _ENOUGH, operators=self._operators).cost * 1e-6


Build = Callable[[], Executed]


def _of(compute: Callable[..., Term], *shapes: Shape, whole: bool = True) -> Build:
    def build() -> Executed:
        inputs = tuple(ops.input(f"x{i}", shape, "float32") for i, shape in enumerate(shapes))
        return Executed(Program(inputs, {"y": compute(*inputs)}), whole)

    return build


def _weights(*shape: int) -> Term:
    drawn = np.random.default_rng(0).standard_normal(shape, np.float32)
    return ops.constant(drawn / np.float32(np.sqrt(drawn[0].size)))


def _add(size: int) -> Build:
    return _of(ops.add, (size,), (size,))


def _product(m: int, k: int, n: int) -> Build:
    return _of(lambda x: ops.matmul(x, _weights(k, n)), (m, k))


def _products(b: int, m: int, k: int, n: int) -> Build:
    return _of(ops.matmul, (b, m, k), (b, k, n))


def _convolution(channels: int, size: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> Build:
    strides, pads = (stride, stride), (kernel // 2, kernel // 2)
    weights = (out, channels // groups, kernel, kernel)
    return _of(lambda x: ops.conv(x, _weights(*weights), strides, pads, pads, groups=groups), (1, channels, size, size))


def _pool(compute: Callable[..., Term], channels: int, size: int) -> Build:
    return _of(lambda x: compute(x, (3, 3), (2, 2), (1, 1), (1, 1)), (1, channels, size, size))


def _look_up(rows: int, width: int, count: int) -> Build:
    index = ops.input("i", (count,), "int64")
    return lambda: Executed(Program((index,), {"y": ops.gather(_weights(rows, width), index)}), True)


def _join(shape: Shape, axis: int) -> Build:
    return _of(lambda *xs: ops.concat(xs, axis), shape, shape)


def _turn(shape: Shape, order: Sequence[int]) -> Build:
    return _of(lambda x: ops.transpose(x, order), shape)


ONE, MANY = "addition of 2^8", "32 additions of 2^8"
"""Their times tell a call of the runtime from a launch of an operator: the call is taken off all times."""

OPERATORS: dict[str, Build] = {
    ONE: _add(2**8),
    MANY: _of(lambda x: reduce(lambda y, _: ops.add(y, x), range(32), x), (2**8,), whole=False),
    "addition of 2^13": _add(2**13),
    "addition of 2^16": _add(2**16),
    "addition of 2^18": _add(2**18),
    "addition of 2^20": _add(2**20),
    "addition of 2^22": _add(2**22),
    "tanh of 2^14": _of(ops.tanh, (2**14,)),
    "tanh of 2^18": _of(ops.tanh, (2**18,)),
    "erf of 2^18": _of(ops.erf, (2**18,)),
    "exp of 2^18": _of(ops.exp, (2**18,)),
    "sqrt of 2^18": _of(ops.sqrt, (2**18,)),
    "Sigmoid of 2^18": _of(ops.sigmoid, (2**18,)),
    "Gelu of 128 x 3072": _of(composites.gelu, (128, 3072)),
    "Softmax of 1536 rows of 128": _of(composites.softmax, (1536, 128)),
    "Softmax of 128 rows of 1024": _of(composites.softmax, (128, 1024)),
    "LayerNormalization of 128 x 768": _of(lambda x: composites.layernorm(x, _weights(768), _weights(768)), (128, 768)),
    "LayerNormalization of 512 x 128": _of(lambda x: composites.layernorm(x, _weights(128), _weights(128)), (512, 128)),
    "sums of 1024 rows of 1024": _of(lambda x: ops.sum_(x, 1), (1024, 1024)),
    "sums of 4096 rows of 64": _of(lambda x: ops.sum_(x, 1), (4096, 64)),
    "heads of 128 x 12 x 64 apart": _turn((128, 12, 64), (1, 0, 2)),
    "transpose of 1024 x 1024": _turn((1024, 1024), (1, 0)),
    "128 rows of 30000 of 768": _look_up(30000, 768, 128),
    "concat of 64 x 56 x 56, twice": _join((1, 64, 56, 56), 1),
    "concat of 128 x 12 x 64, twice": _join((128, 12, 64), 2),
    "MaxPool of 64 x 112 x 112": _pool(composites.max_pool, 64, 112),
    "AveragePool of 64 x 56 x 56": _pool(composites.avg_pool, 64, 56),
    "GlobalAveragePool of 512 x 14 x 14": _of(composites.global_avg_pool, (1, 512, 14, 14)),
    "product of 128 x 64 x 64": _product(128, 64, 64),
    "product of 128 x 768 x 768": _product(128, 768, 768),
    "product of 128 x 768 x 3072": _product(128, 768, 3072),
    "product of 512 x 512 x 512": _product(512, 512, 512),
    "product of 1 x 1024 x 1024": _product(1, 1024, 1024),
    "product of 8 x 1024 x 1024": _product(8, 1024, 1024),
    "12 products of 128 x 64 x 128": _products(12, 128, 64, 128),
    "12 products of 128 x 128 x 64": _products(12, 128, 128, 64),
    "Conv 7x7 by 2 of 3 x 224 x 224 to 64": _convolution(3, 224, 64, 7, 2),
    "Conv 3x3 of 64 x 56 x 56 to 64": _convolution(64, 56, 64, 3),
    "Conv 3x3 of 256 x 14 x 14 to 256": _convolution(256, 14, 256, 3),
    "Conv 3x3 by 2 of 128 x 28 x 28 to 256": _convolution(128, 28, 256, 3, 2),
    "Conv 1x1 of 64 x 56 x 56 to 256": _convolution(64, 56, 256, 1),
    "Conv 1x1 of 1024 x 14 x 14 to 256": _convolution(1024, 14, 256, 1),
    "Conv 1x1 of 32 x 1 x 1 to 8": _convolution(32, 1, 8, 1),
    "depthwise Conv 3x3 of 144 x 56 x 56": _convolution(144, 56, 144, 3, 1, 144),
    "depthwise Conv 3x3 of 576 x 14 x 14": _convolution(576, 14, 576, 3, 1, 576),
    "depthwise Conv 7x7 of 96 x 56 x 56": _convolution(96, 56, 96, 7, 1, 96),
    "Conv 3x3 of 128 x 28 x 28 in 4 groups": _convolution(128, 28, 128, 3, 1, 4),
}
"""The programs by name: what a runtime executes, and its sizes."""


def executed(name: str) -> Executed:
    """The program with this name.

    Raises:
        InputError: there is no such program.
    """
    if name not in OPERATORS:
        raise unknown("operator", name, OPERATORS)
    return OPERATORS[name]()


def without_calls(us: Mapping[str, float]) -> dict[str, float]:
    """Times of operators from times of calls, microseconds: each is at least a launch."""
    launch = (us[MANY] - us[ONE]) / 31
    call = us[ONE] - launch
    return {name: max(each - call, launch) for name, each in us.items()}
