"""The programs of `eqsat demo`, as their source documents describe them, at the sizes given there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from eqsat.program.ir import Program


@dataclass(frozen=True)
class Demo:
    """A program to optimise: where it comes from, what it computes, and the function that traces it."""

    source: str
    text: str
    build: Callable[[], Program]


def _weight(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """A float32 constant with variance 1/shape[0], so that activations keep their size from layer to layer."""
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def gemm_chain() -> Program:
    """X(YA + b)C: float32 X [348, 348] and Y [348, 768]; A, C [768, 768] and b [768] constant."""
    import eqsat

    a, b, c = _weight(1, 768, 768), _weight(2, 768), _weight(3, 768, 768)
    return eqsat.trace(lambda x, y: x @ (y @ a + b) @ c, eqsat.spec((348, 348)), eqsat.spec((348, 768)))


def gemm_slice() -> Program:
    """The value path of DistilGPT2's attention: q, k and v come from one gemm, and only the heads of v are read.

    float32 x [348, 768] and attention weights p [1, 12, 348, 348].
    """
    import eqsat

    w_qkv, b_qkv, w_out = _weight(1, 768, 2304), _weight(2, 2304), _weight(3, 768, 768)

    def values(x: Any, p: Any) -> Any:
        heads = (x @ w_qkv + b_qkv).reshape(1, 348, 36, 64).transpose(0, 2, 1, 3)
        return (p @ heads[:, 24:36]).transpose(0, 2, 1, 3).reshape(348, 768) @ w_out

    return eqsat.trace(values, eqsat.spec((348, 768)), eqsat.spec((1, 12, 348, 348)))


def permuted() -> Program:
    """relu((AB)^T + c): a gemm whose elementwise consumer reads it transposed. float32 A [128, 384], c [384, 128]."""
    import eqsat

    b = _weight(1, 384, 384)
    return eqsat.trace(lambda a, c: eqsat.relu((a @ b).T + c), eqsat.spec((128, 384)), eqsat.spec((384, 128)))


def towers() -> Program:
    """Six towers 256-128-64-32-1 of dot, bias and SiLU, fed from slices of one float32 tensor [64, 1536]."""
    import eqsat

    widths = (256, 128, 64, 32, 1)

    def model(x: Any) -> Any:
        outputs = []
        for tower in range(6):
            h = x[:, tower * widths[0] : (tower + 1) * widths[0]]
            for layer, (k, n) in enumerate(pairwise(widths)):
                seed = 100 * tower + 2 * layer
                h = eqsat.silu(h @ _weight(seed, k, n) + _weight(seed + 1, n))
            outputs.append(h)
        return eqsat.concat(outputs, axis=1)

    return eqsat.trace(model, eqsat.spec((64, 6 * widths[0])))


def row_sum() -> Program:
    """Sum over the rows of A @ B: float32 A [512, 768], B [768, 3072], neither constant."""
    import eqsat

    return eqsat.trace(lambda a, b: (a @ b).sum(axis=1), eqsat.spec((512, 768)), eqsat.spec((768, 3072)))


def row_max() -> Program:
    """Maximum over the rows of A @ B, which no algebra removes: the reduction is fused into the gemm."""
    import eqsat

    return eqsat.trace(lambda a, b: (a @ b).max(axis=1), eqsat.spec((512, 768)), eqsat.spec((768, 3072)))


PROGRAMS: dict[str, Demo] = {
    "gemm-chain": Demo("MIGraphX issue 2818", "X(YA + b)C becomes X(YA' + b'): AC and bC are folded", gemm_chain),
    "gemm-slice": Demo("MIGraphX issue 2818", "only a third of a fused q/k/v gemm is read, through views", gemm_slice),
    "permuted": Demo("IREE issue, permuted elementwise fusion", "relu((AB)^T + c) becomes one kernel", permuted),
    "towers": Demo("MIGraphX PR 4723", "24 small gemms become a chain of batched ones", towers),
    "row-sum": Demo("rocMLIR reduction-fusion RFC", "the sum over rows of AB is A(sum of B)", row_sum),
    "row-max": Demo("rocMLIR reduction-fusion RFC", "the maximum is taken inside the gemm kernel", row_max),
}
