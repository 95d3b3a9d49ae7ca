"""ATen operators that are matrix products."""

from __future__ import annotations

from eqsat.frontends.torch.operators.row import Row
from eqsat.program import composites
from eqsat.program.term import Term


def _added_product(self: Term, first: Term, second: Term, beta: float, alpha: float) -> Term:
    """beta self + alpha first @ second; with beta 0 `self` counts for nothing, whatever it holds."""
    product = composites.matmul(first, second)
    product = product if alpha == 1 else composites.scaled(product, alpha)
    if beta == 0:
        return product
    return composites.add(product, self if beta == 1 else composites.scaled(self, beta))


PRODUCTS: dict[str, Row] = {
    "mm.default": Row(lambda self, mat2: composites.matmul(self, mat2)),
    "bmm.default": Row(lambda self, mat2: composites.matmul(self, mat2)),
    "mv.default": Row(lambda self, vec: composites.matmul(self, vec)),
    "dot.default": Row(lambda self, tensor: composites.matmul(self, tensor)),
    "addmm.default": Row(lambda self, mat1, mat2, beta, alpha: _added_product(self, mat1, mat2, beta, alpha)),
    "baddbmm.default": Row(lambda self, batch1, batch2, beta, alpha: _added_product(self, batch1, batch2, beta, alpha)),
}
