"""Views in named axes against NumPy, and what cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import InputError
from eqsat.language.axes import Axes, along, read_as, reads
from eqsat.language.equation import rule
from eqsat.layout import arithmetic as lt

B, M, K, N = 2, 3, 4, 5
X = np.arange(B * M * K)

# a view of [b, m, k], and the same of NumPy
READ = {
    "b m k -> b k m": X.reshape(B, M, K).transpose(0, 2, 1),
    "b m k -> m (b k)": X.reshape(B, M, K).transpose(1, 0, 2),
    "(b m) k -> k b m": X.reshape(B, M, K).transpose(2, 0, 1),
    "b m k -> b m k": X,
}


@pytest.mark.parametrize("text", READ)
def test_a_view_in_axes_is_numpys(text: str):
    axes = Axes.read(text)
    sizes = [{"b": B, "m": M, "k": K}[letter] for letter in axes.letters]
    (layout,) = read_as(axes, *sizes)
    np.testing.assert_array_equal(X[layout.index()], READ[text].reshape(-1))
    assert reads(axes, layout, *sizes) == ()
    assert (reads(axes, lt.strided(0, [(X.size, 1)]), *sizes) == ()) == (READ[text] is X)


# what is asked of a view of [b, m, k], its shape before it is broadcast, and the shape of the answer (None: no)
ALONG = {
    "scale of the summed axis, for the other operand": ("b m k -> b k n", (B, 1, K), (B, K, 1)),
    "scale of the rows": ("b m k -> b m n", (B, M, 1), (B, M, 1)),
    "one of equal rows": ("b m k -> b 1 k", (B, 1, K), (B, 1, K)),
    "one of equal matrices": ("b m k -> m k", (1, M, K), (M, K)),
    "rows that differ": ("b m k -> b 1 k", (B, M, K), None),
    "matrices that differ": ("b m k -> m k", (B, 1, K), None),
}


@pytest.mark.parametrize("name", ALONG)
def test_what_is_the_same_along_an_axis_is_read_without_it(name: str):
    text, shape, answer = ALONG[name]
    axes, sizes = Axes.read(text), {"b": B, "m": M, "k": K, "n": N}
    found = along(axes, lt.of_broadcast(shape, (B, M, K)), *(sizes[letter] for letter in axes.letters))
    if answer is None:
        assert found is None
        return
    assert found is not None
    z = np.arange(np.prod(shape))
    wanted = np.broadcast_to(z.reshape(answer), [1 if g == ("1",) else sizes[g[0]] for g in axes.target])
    np.testing.assert_array_equal(z[found[0].index()], wanted.reshape(-1))


@pytest.mark.parametrize("text", ["b m k", "b m -> b -> m", "b M -> b", "(b m -> b m", "b m) -> b", "b b -> b"])
def test_what_cannot_be_read_is_said(text: str):
    with pytest.raises(InputError, match="ax"):
        Axes.read(text)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ('a @ b["b n k -> b k n"] == (b @ a["b m k -> b k m"])["b n m -> b m n"]', ""),
        ('a @ b[L] == (b @ a["b m k -> b k m"])["b n m -> b m n"]', 'reads(L, "b n k -> b k n")'),
    ],
)
def test_a_view_of_the_beginning_of_an_array_is_no_view_of_all_of_it(text: str, when: str):
    """Its layout is the same, but what reads the array itself would read more."""
    row = rule("turned", text, when=when)
    assert "size(b) == B*N*K" in row.guard_text

    def function(x: Any, y: Any) -> Any:
        return x @ y[0].T

    source = eqsat.trace(function, eqsat.spec((M, K)), eqsat.spec((B, N, K)))
    x, y = np.ones((M, K), np.float32), np.arange(B * N * K, dtype=np.float32).reshape(B, N, K)
    best = eqsat.optimize(source, rules=[row], time_limit=10, measure=False)
    assert best.report.get("fallback") is None
    np.testing.assert_allclose(best.compile(on="numpy")(x, y), x @ y[0].T)
