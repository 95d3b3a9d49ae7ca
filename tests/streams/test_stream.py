"""What streams, in how many passes, and with which corrections."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from eqsat.gpu.families.expressions import along_columns, along_rows, array, bin_, full, reduced, times, un, view
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, evaluate, make, topological
from eqsat.program.node import substitute
from eqsat.streams.masks import Band, steps_taken
from eqsat.streams.scales import scaled_last
from eqsat.streams.shifts import in_fewest_passes, inverted, shifted
from eqsat.streams.stream import Accumulator, NotAStream, Stream, walks

B, M, D, K, N = 2, 3, 5, 7, 4
ROWS = B * M


def inputs_of(*outputs: Node) -> list[Node]:
    found: dict[Node, None] = {}
    work = list(outputs)
    while work:
        node = work.pop()
        if node.op == "In":
            found[node] = None
        work += node.args
    return list(found)


def stream(*outputs: Node, corrected: bool = True) -> Stream:
    (walk,) = walks(outputs, inputs_of(*outputs), corrected)
    return walk


def scores(dtype: str = "float32") -> Node:
    return times((B, M, D, K), array("q", ROWS * D, dtype), array("k", B * D * K, dtype))


def weights(s: Node) -> Node:
    e = un("exp", bin_("sub", s, along_columns(reduced("max", s, K), K)))
    return bin_("div", e, along_columns(reduced("sum", e, K), K))


def values(dtype: str = "float32") -> Node:
    return array("v", B * K * N, dtype)


def attend(s: Node) -> Node:
    return times((B, M, K, N), weights(s), values(s.dtype))


def x() -> Node:
    return array("x", ROWS * K)


def mean(a: Node) -> Node:
    return bin_("mul", reduced("sum", a, K), full(1 / K, reduced("sum", a, K)))


def rms(a: Node) -> Node:
    return un("rsqrt", bin_("add", mean(bin_("mul", a, a)), full(1e-5, mean(a))))


def normed() -> Node:
    centred = bin_("sub", x(), along_columns(mean(x()), K))
    return bin_("mul", bin_("mul", centred, along_columns(rms(centred), K)), along_rows(array("gain", K), ROWS))


def masked(s: Node) -> Node:
    allowed = along_rows(array("allowed", K, "bool"), ROWS)
    return make("Where", (), (allowed, bin_("mul", s, full(0.125, s)), full(-np.inf, s)))


def normed_rows(a: Node, length: int) -> Node:
    """Every row of a[.., length] over the root of its mean square, in float32 inside."""
    wide = cast(a, "float32")
    total = reduced("sum", bin_("mul", wide, wide), length)
    mean_square = bin_("add", bin_("mul", total, full(1 / length, total)), full(1e-5, total))
    return cast(bin_("div", wide, along_columns(un("sqrt", mean_square), length)), a.dtype)


def cast(a: Node, dtype: str) -> Node:
    return a if a.dtype == dtype else un(f"cast:{dtype}", a)


def normed_scores(dtype: str = "float32", shared: int = 1) -> Node:
    """Inner products of normed queries and keys; `shared` batches have the same keys."""
    keys = normed_rows(array("keys", B * K * D // shared, dtype), D)
    turned = view(lay.strided(0, ((B // shared, K * D), (shared, 0), (D, 1), (K, D))), keys)
    return times((B, M, D, K), normed_rows(array("q", ROWS * D, dtype), D), turned)


def factors_behind() -> Node:
    """The same with the factors of rows and keys behind the inner product."""
    (moved,) = scaled_last([attend(normed_scores())], inputs_of(normed_scores()))
    return moved


def without_nan(p: Node) -> Node:
    return make("Where", (), (un("not", bin_("equal", p, p)), full(0.0, p), p))


PASSES = {
    "a product": (times((B, M, K, N), x(), values()), 1, 1),
    "attention": (attend(scores()), 1, 3),
    "masked attention": (attend(masked(scores())), 1, 3),
    "attention without NaN": (times((B, M, K, N), without_nan(weights(masked(scores()))), values()), 1, 3),
    "attention with a bias": (attend(bin_("add", scores(), array("bias", ROWS * K))), 1, 3),
    "attention in another base": (attend(bin_("mul", scores(), full(3.0, scores()))), 1, 3),
    "rms norm": (times((B, M, K, N), bin_("mul", x(), along_columns(rms(x()), K)), values()), 1, 2),
    "layer norm": (times((B, M, K, N), normed(), values()), 2, 3),
    "a scale after the product": (
        bin_("mul", times((B, M, K, N), x(), values()), along_columns(rms(x()), N)),
        1,
        1,
    ),
    "gated": (
        bin_("mul", un("sigmoid", times((B, M, K, N), x(), values())), times((B, M, K, N), x(), array("u", B * K * N))),
        1,
        1,
    ),
    "attention of normed queries and keys": (factors_behind(), 1, 3),
    "two layers": (times((B, M, K, N), un("relu", scores()), values()), 1, 1),
    "a sum that nothing corrects": (
        times((B, M, K, N), un("tanh", bin_("sub", x(), along_columns(reduced("max", x(), K), K))), values()),
        2,
        2,
    ),
    "the exponential of another array": (
        times(
            (B, M, K, N),
            un("exp", bin_("sub", array("y", ROWS * K), along_columns(reduced("max", x(), K), K))),
            values(),
        ),
        2,
        2,
    ),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes(name: str) -> None:
    output, corrected, plain = PASSES[name]
    assert stream(output).passes == corrected
    assert stream(output, corrected=False).passes == plain


def test_softmax_is_corrected_by_the_maximum_and_divided_last() -> None:
    found = stream(attend(scores()))
    maximum, total, product = found.accumulators
    assert (maximum.node.attrs[0], maximum.corrections) == ("max", ())
    assert total.corrections == product.corrections == ((maximum.node, 1.0),)
    assert product.scale is not None
    assert product.element.op == "Un"
    assert found.inner == (scores(),)
    assert any("corrected" in line for line in found.why)


def test_a_scaled_exponent_is_corrected_by_its_scale() -> None:
    s = scores()
    e = un("exp", bin_("mul", bin_("sub", s, along_columns(reduced("max", s, K), K)), full(0.5, s)))
    (_, product) = stream(times((B, M, K, N), e, values())).accumulators
    ((_, alpha),) = product.corrections
    assert alpha == 0.5


def test_what_is_written_beside_the_product_needs_its_totals_finished() -> None:
    p = weights(scores())
    product = times((B, M, K, N), p, values())
    found = stream(product, p)
    assert (found.passes, found.beside) == (2, (p,))
    assert found.products[0].turn == 1
    assert found.products[0].corrections == ()
    total = reduced("sum", x(), K)
    assert stream(times((B, M, K, N), x(), values()), total).passes == 1


def test_two_walks() -> None:
    """x w + (x a) b goes along the depth of x, and then along that of b with x a made on the way."""
    a, b = array("a", B * K * D), array("b", B * D * N)
    low = times((B, M, K, D), x(), a)
    output = bin_("add", times((B, M, K, N), x(), values()), times((B, M, D, N), low, b))
    first, second = walks([output], inputs_of(output))
    assert (first.length, first.inner) == (K, ())
    assert (second.length, second.inner) == (D, (low,))


def test_norms_of_queries_and_keys_are_statistics() -> None:
    found = stream(factors_behind())
    assert [(x.of_rows, x.node.size) for x in found.statistics] == [(True, ROWS), (False, B * K)]
    assert len(found.inner) == 1
    assert any("for each element of the axis, tile by tile" in line for line in found.why)


@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_factors_of_rows_and_columns_leave_inner_products(dtype: str, shared: int) -> None:
    output = attend(normed_scores(dtype, shared))
    inputs = inputs_of(output)
    with pytest.raises(NotAStream):
        walks([output], inputs)
    (moved,) = scaled_last([output], inputs)
    (walk,) = walks([moved], inputs)
    assert (walk.passes, len(walk.statistics)) == (1, 2)
    rng = np.random.default_rng(3)
    env = {n.attrs[0]: rng.normal(size=n.size) for n in inputs}
    (wanted,), (got,) = (evaluate([x], env, {}, precision="float64") for x in (output, moved))
    np.testing.assert_allclose(got, wanted, rtol=1e-6 if dtype == "float32" else 1e-2)


def test_other_products_keep_their_operands() -> None:
    """One that no other needs, and one whose rows are shifted, which no factor undoes."""
    linear = times((B, M, K, N), normed_rows(x(), K), values())
    centred = bin_("sub", x(), along_columns(mean(x()), K))
    shifted_rows = times((B, M, N, K), un("relu", times((B, M, K, N), centred, values())), array("w", B * N * K))
    for output in (linear, shifted_rows):
        assert scaled_last([output], inputs_of(output)) == (output,)


REFUSED = {
    "no product": reduced("sum", x(), K),
    "a total of another axis": bin_(
        "mul", times((B, M, K, N), x(), values()), along_columns(reduced("sum", array("q", ROWS * D), D), N)
    ),
    "a total on the right": times((B, M, K, N), x(), along_columns(reduced("sum", array("w", B * K * D), D), N)),
    "turned around inside": times(
        (B, M, K, N),
        view(lay.of_transpose((B, K, M), (0, 2, 1)), times((B, K, D, M), array("q", B * K * D), array("k", B * D * M))),
        values(),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(NotAStream):
        stream(REFUSED[name])


@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("name", PASSES)
def test_walks_compute_the_same(name: str, step: int) -> None:
    """The accumulators, summed tile by tile with their corrections, give what the nodes mean."""
    output, _, _ = PASSES[name]
    rng = np.random.default_rng(7)
    env = {
        n.attrs[0]: rng.normal(size=n.size) > 0 if n.dtype == "bool" else rng.normal(size=n.size) * 4
        for n in inputs_of(output)
    }
    found = stream(output)
    done = walked(found, env, step)
    (wanted,) = evaluate([output], env, {})
    held = {node: array(f"held{i}", node.size, node.dtype) for i, node in enumerate(done)}
    env |= {f"held{i}": value.reshape(-1) for i, value in enumerate(done.values())}
    (got,) = evaluate(substitute([output], held), env, {})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("score", [-np.inf, np.nan])
def test_rows_that_are_masked_altogether(score: float) -> None:
    """They are NaN, or 0 where the program says so."""
    s = bin_("add", scores(), along_rows(array("bias", K), ROWS))
    for p, wanted in ((weights(s), np.nan), (without_nan(weights(s)), 0.0)):
        output = times((B, M, K, N), p, values())
        env = {n.attrs[0]: np.ones(n.size) for n in inputs_of(output)} | {"bias": np.full(K, score)}
        found = stream(output)
        assert found.passes == 1
        assert walked(found, env, 2)[output] == pytest.approx(wanted, nan_ok=True)


def walked(s: Stream, env: dict[str, np.ndarray], step: int) -> dict[Node, np.ndarray]:
    """The finished accumulators of a stream that takes `step` elements of the axis at a time."""
    identities = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
    ufuncs = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    shape = (s.batch * s.rows, s.length)
    done: dict[Node, np.ndarray] = {}

    def value(node: Node, now: dict[Node, np.ndarray]) -> np.ndarray:
        """A node where totals are what they are now: a maximum of nothing yet counts as 0."""
        held = {n: array(f"total{i}", n.size, n.dtype) for i, n in enumerate(now)}
        safe = {f"total{i}": np.where(np.isneginf(v), 0, v) for i, v in enumerate(now.values())}
        return evaluate(substitute([node], held), env | safe, {})[0]

    def started(x: Accumulator) -> np.ndarray:
        if x.is_product:
            return np.zeros((s.batch * s.rows, s.width))
        return np.full(s.batch * s.rows, identities[x.node.attrs[0]])

    for turn in range(s.passes):
        here = [x for x in s.accumulators if x.turn == turn]
        now = {x.node: started(x) for x in here}
        for first in range(0, s.length, step):
            tile = slice(first, first + step)
            before = dict(now)
            for x in here:
                totals = done | {n: v for n, v in now.items() if n.op == "Red"}
                element = value(x.element, totals).reshape(shape)[:, tile]
                factor = np.ones(shape[0])
                for total, alpha in x.corrections:
                    with np.errstate(invalid="ignore"):
                        gone = np.exp(alpha * (before[total] - now[total]))
                    factor = factor * np.where(np.isneginf(before[total]), 0, gone)
                if x.is_product:
                    v = value(x.node.args[1], {}).reshape(s.batch, s.length, s.width)[:, tile]
                    more = element.reshape(s.batch, s.rows, -1) @ v
                    now[x.node] = now[x.node] * factor[:, None] + more.reshape(-1, s.width)
                else:
                    f = ufuncs[x.node.attrs[0]]
                    now[x.node] = f(now[x.node] * factor if x.corrections else now[x.node], f.reduce(element, axis=1))
        for x in here:
            now_totals = done | {n: v for n, v in now.items() if n.op == "Red"}
            scale = np.ones(shape[0]) if x.scale is None else value(x.scale, now_totals)
            scale = scale.reshape(-1, 1) if x.is_product else scale
            with np.errstate(invalid="ignore"):
                result = now[x.node] * scale
            done[x.node] = np.where(scale == 0, 0, result) if x.guarded else result
    return done


def test_a_layer_norm_takes_one_pass_for_its_totals() -> None:
    output = times((B, M, K, N), normed(), values())
    inputs = inputs_of(output)
    moved, (found,) = in_fewest_passes([output], inputs, corrected=True)
    assert found.passes == 2
    assert in_fewest_passes([output], inputs, corrected=False)[0] == (output,)
    env = {n.attrs[0]: np.random.default_rng(3).normal(size=n.size) + 5 for n in inputs}
    np.testing.assert_allclose(evaluate(moved, env, {})[0], evaluate([output], env, {})[0], rtol=1e-9)


@pytest.mark.parametrize("mean", [0.0, 1.0, 1e2, 1e4])
@pytest.mark.parametrize("count", [16, 768])
def test_shifted_deviations_lose_no_digits(mean: float, count: int) -> None:
    """In float32, against float64, within the bound of `shifted_error` for each row."""
    rows = 50
    a = array("a", rows * count)
    total = reduced("sum", a, count)
    means = bin_("mul", total, full(1 / count, total))
    centred = bin_("sub", a, along_columns(means, count))
    written = reduced("sum", bin_("mul", centred, centred), count)
    (moved,) = shifted([written], [a])
    assert moved is not written
    data = (np.random.default_rng(5).normal(size=rows * count) + mean).astype(np.float32)
    (exact,) = evaluate([written], {"a": data.astype(np.float64)}, {})
    found, center = evaluate([moved, means], {"a": data}, {})
    assert (np.abs(found / exact - 1) <= shifted_error(data.reshape(rows, count), center)).all()


def shifted_error(x: np.ndarray[Any, Any], c: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The largest relative error of A + t (2 B + n t), t = s - c, as sum (x - mean)^2, for each row of float32.

    Let u = 2^-24, sigma the deviation, tau = |s - mean| / sigma, and g the additions that an element passes in a sum.
    Then A = n sigma^2 (1 + tau^2) has the relative error (g + 3) u: the difference counts twice, the square once. B has
    (g + 1) u sum |x - s|, which is at most (g + 1) u n sigma sqrt(1 + tau^2), and is multiplied by 2 tau sigma, where
    2 tau sqrt(1 + tau^2) <= 1 + 2 tau^2. The other operations have 4 u of 2 |t B| + n t^2, and the last addition u.
    Together they are at most 2 (g + 6) (1 + 2 tau^2) u n sigma^2. A center that is off the mean adds n (c - mean)^2.
    NumPy adds up to 128 elements in 8 sums, then pairs: 15 + 3 additions, and one for each doubling.
    """
    exact = x.astype(np.float64)
    sigma, off = exact.std(axis=1), (c - exact.mean(axis=1)) / exact.std(axis=1)
    tau = (exact[:, 0] - exact.mean(axis=1)) / sigma
    additions = 18 + max(0.0, np.ceil(np.log2(x.shape[1] / 128)))
    return 2 * (additions + 6) * (1 + 2 * tau**2) * 2.0**-24 + off**2


def test_roots_of_rows_are_inverted_once_a_row() -> None:
    root = un("sqrt", bin_("add", mean(bin_("mul", x(), x())), full(1e-5, mean(x()))))
    once = bin_("div", x(), along_columns(root, K))
    written = times((B, M, K, N), bin_("div", once, along_columns(root, K)), values())
    (moved,) = inverted([written], inputs_of(written))
    assert [n.attrs[0] for n in topological([moved]) if n.op == "Bin" and n.attrs[0] == "div"] == []
    env = {n.attrs[0]: np.random.default_rng(4).normal(size=n.size) for n in inputs_of(written)}
    np.testing.assert_allclose(evaluate([moved], env, {})[0], evaluate([written], env, {})[0], rtol=1e-5)


# Masks


def kept(fill: float | bool, *axes: lay.Axis) -> lay.Layout:
    """One number where masks of (m, k) hold, and another elsewhere, for all b."""
    dims = ((B, 0), (M, 0), (K, 0))
    return lay.masked(0, dims, [lay.Axis(a.bound, 0, a.start, (0, *a.coeffs)) for a in axes], fill)


def chosen(mask: Node, yes: Node, no: Node) -> Node:
    return make("Where", (), (mask, yes, no))


LATER = lay.Axis(bound=K, stride=0, start=0, coeffs=(1, -1))
NEAR = lay.Axis(bound=3, stride=0, start=1, coeffs=(1, -1))
EVERY = lay.Axis(bound=4, stride=0, start=0, coeffs=(2, -1))
FIRST = lay.Axis(bound=3, stride=0, start=0, coeffs=(0, 1))
LINES = lay.Axis(bound=2, stride=0, start=0, coeffs=(1, 0))


def holding(mask: lay.Layout) -> Node:
    return make("V", (mask,), (make("Full", (True, 1, "bool")),))


def later(fill: float) -> lay.Layout:
    """An array at (b, m, k), and a number where k > m."""
    return lay.masked(0, ((B, M * K), (M, K), (K, 1)), [lay.Axis(K, 0, 0, (0, 1, -1))], fill)


def added(mask: lay.Layout, s: Node) -> Node:
    return bin_("add", s, make("V", (mask,), (make("Full", (0.0, 1, s.dtype)),)))


def lowest(s: Node, value: float = -np.inf) -> Node:
    return full(value, s)


LEFT_OUT = {
    "no mask": (attend(scores()), []),
    "a mask of scores": (attend(view(later(-np.inf), scores())), [LATER]),
    "a choice": (attend(chosen(holding(kept(False, LATER)), scores(), lowest(scores()))), [LATER]),
    "a window": (attend(chosen(holding(kept(False, NEAR)), scores(), lowest(scores()))), [NEAR]),
    "a steeper one": (attend(chosen(holding(kept(False, EVERY)), scores(), lowest(scores()))), [EVERY]),
    "two masks": (attend(chosen(holding(kept(False, LATER, FIRST)), scores(), lowest(scores()))), [LATER, FIRST]),
    "a choice of what is hidden": (
        attend(chosen(holding(kept(False, lay.Axis(K, 0, -1, (-1, 1)))), lowest(scores()), scores())),
        [LATER],
    ),
    "an addend": (attend(added(kept(-np.inf, LATER), scores())), [LATER]),
    "scaled scores": (attend(bin_("mul", added(kept(-np.inf, LATER), scores()), full(0.5, scores()))), [LATER]),
    "a product of what is kept": (
        times((B, M, K, N), view(later(0.0), x()), values()),
        [LATER],
    ),
    "rows alone": (attend(chosen(holding(kept(False, LINES)), scores(), lowest(scores()))), [LINES]),
    "a finite number": (attend(chosen(holding(kept(False, LATER)), scores(), lowest(scores(), -1e30))), []),
    "a sum of what is not hidden": (
        bin_(
            "add",
            attend(chosen(holding(kept(False, LATER)), scores(), lowest(scores()))),
            times((B, M, K, N), x(), array("u", B * K * N)),
        ),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_steps_that_masks_hide_are_left_out(name: str) -> None:
    output, masks = LEFT_OUT[name]
    found = stream(output)
    assert stream(output, corrected=False).bands == ()
    m, k = np.ogrid[:M, :K]
    counts = np.ones((M, K), bool)
    for mask in masks:
        at = mask.start + mask.coeffs[0] * m + mask.coeffs[1] * k
        counts &= (at >= 0) & (at < mask.bound)
    for block in (1, 2, 3):
        for step in (1, 2, 4):
            tiles = [counts[i : i + block, j : j + step].any() for i in range(0, M, block) for j in range(0, K, step)]
            by_block = np.reshape(tiles, (-1, -(-K // step))).sum(axis=1)
            taken, most = steps_taken(found.bands, M, K, block, step)
            assert taken >= by_block.sum()
            assert most >= by_block.max()
            if len(masks) < 2:
                assert (taken, most) == (by_block.sum(), by_block.max())


def test_steps_of_very_many_blocks_are_counted_at_once() -> None:
    begun = time.process_time()
    assert steps_taken((), 1 << 30, 64, 16, 16) == (4 << 26, 4)
    assert steps_taken((Band(0, 1, 0, 31),), 1 << 26, 64, 16, 16) == (2 << 22, 2)
    assert time.process_time() - begun < 1.5
