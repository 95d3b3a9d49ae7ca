"""Programs before and after MIGraphX's passes, as its own tests state them.

Each table holds the cases of some test files of ROCm/AMDMIGraphX (`SOURCES`), under their original names. A row:
before, after, inputs (a shape, or a shape and a dtype). Literals are random constants. The barrier at the end of those
tests, cases that a pass does not change, and int8 are left out. Some sizes are reduced to save time. Indices into
tables may be negative, as in ONNX.
"""

from __future__ import annotations

from support.migraphx_pairs import algebra, concats, convolutions, products, reductions, reshapes, slices
from support.migraphx_pairs.common import Row, build

__all__ = ["PAIRS", "SOURCES", "build"]

SOURCES = {
    "algebra": "test/simplify_algebra_test.cpp",
    "slices": "test/simplify_algebra_test.cpp",
    "convolutions": "test/simplify_algebra_test.cpp",
    "products": "test/simplify_algebra_test.cpp, test/rewrite_dot.cpp, test/rewrite_reduce.cpp",
    "reshapes": "test/simplify_reshapes_test.cpp",
    "concats": "test/simplify_algebra_test.cpp, test/simplify_reshapes_test.cpp, test/fuse_horizontal_test.cpp",
    "reductions": "test/fuse_reduce.cpp, test/split_reduce.cpp, test/simplify_algebra_test.cpp",
}

PAIRS: dict[str, Row] = {
    f"{family}: {name}": row
    for family, rows in (
        ("algebra", algebra.ALGEBRA),
        ("slices", slices.SLICES),
        ("convolutions", convolutions.CONVOLUTIONS),
        ("products", products.PRODUCTS),
        ("reshapes", reshapes.RESHAPES),
        ("concats", concats.CONCATS),
        ("reductions", reductions.REDUCTIONS),
    )
    for name, row in rows.items()
}
"""Every pair, by table and name."""
