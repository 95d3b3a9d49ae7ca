"""ATen operators that are matrix products."""

from __future__ import annotations

from eqsat.frontends.torch.operators.row import Row
from eqsat.program import composites
from eqsat.program.term import Term

# Products


def _product(self: Term, mat2: Term) -> Term:
    return composites.matmul(self, mat2)


def _times(self: Term, vec: Term) -> Term:
    return composites.matmul(self, vec)


def _dot(self: Term, tensor: Term) -> Term:
    return composites.matmul(self, tensor)


def _added_product(self: Term, first: Term, second: Term, beta: float, alpha: float) -> Term:
    """beta self + alpha first @ second; with beta 0 `self` counts for nothing, whatever it holds."""
    product = composites.matmul(first, second)
    product = product if alpha == 1 else composites.scaled(product, alpha)
    if beta == 0:
        return product
    return composites.add(product, self if beta == 1 else composites.scaled(self, beta))


def _addmm(self: Term, mat1: Term, mat2: Term, beta: float, alpha: float) -> Term:
    return _added_product(self, mat1, mat2, beta, alpha)


def _baddbmm(self: Term, batch1: Term, batch2: Term, beta: float, alpha: float) -> Term:
    return _added_product(self, batch1, batch2, beta, alpha)


PRODUCTS: dict[str, Row] = {
    "mm.default": Row(_product),
    "bmm.default": Row(_product),
    "mv.default": Row(_times),
    "dot.default": Row(_dot),
    "addmm.default": Row(_addmm),
    "baddbmm.default": Row(_baddbmm),
}
