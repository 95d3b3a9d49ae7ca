"""Values of very many elements. What repeats in them is computed once, and the rest in pieces.

A call of NumPy over 1.6e9 elements takes ten seconds, in which no clock is looked at and no Ctrl-C is heard. It also
takes 13 GB for operands of another type, even where all elements are one number that is repeated.

What is smaller stays as it is: such values are computed ahead of time (`FOLDED`), and what they are compared with is
added up as a runtime does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce as fold
from math import prod

import numpy as np

from eqsat.base.numerics import ELEMENTWISE, HALVES, Array, converted, np_dtype, reduce
from eqsat.check.wanted import Demand, count_of, length_of, reshape_groups
from eqsat.program.sizes import FOLDED
from eqsat.program.term import Term, row

LARGE = FOLDED
"""Elements of a value from which it is held once where it repeats, and computed in pieces of so many."""

_COMBINED = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
_REPEATED = {"sum": np.multiply, "prod": np.power}
_HALVES = frozenset(np_dtype(name) for name in HALVES)


def once(*arrays: Array) -> list[Array]:
    """The arrays of one shape, with one element along each axis along which all of them repeat."""
    axes = range(arrays[0].ndim)
    cut = tuple(slice(1) if all(a.strides[i] == 0 for a in arrays) else slice(None) for i in axes)
    return [a[cut] for a in arrays]


def mapped(run: Callable[..., Array], *arrays: Array) -> Array:
    """An elementwise function of arrays of one shape."""
    if arrays[0].size <= LARGE:
        return run(*arrays)
    return np.broadcast_to(_in_pieces(run, once(*arrays)), arrays[0].shape)


def typed(array: Array, dtype: np.dtype) -> Array:
    """The array in another element type (`converted`)."""
    return array if array.dtype == dtype else mapped(lambda x: converted(x, dtype), array)


def reduced(kind: str, x: Array, own: np.dtype, axes: tuple[int, ...], keepdims: bool) -> Array:
    """A reduction of an array, computed in the type `own` (`reduce`). Halves are added up in float32."""
    if x.size <= LARGE:
        return reduce(kind, converted(x, own), axes, keepdims)
    (held,) = once(x)
    wide = np.dtype(np.float32) if own in _HALVES else own
    found = _reduced_in_pieces(kind, held, wide, axes)
    if kind in _REPEATED:
        times = prod(x.shape[i] // held.shape[i] for i in axes)
        # Integers wrap: so does the count in their type.
        found = _REPEATED[kind](found, np.asarray(times).astype(wide) if kind == "sum" else times, dtype=wide)
    found = np.broadcast_to(found, [1 if i in axes else n for i, n in enumerate(x.shape)])
    found = found if keepdims else found.reshape([n for i, n in enumerate(x.shape) if i not in axes])
    return found if kind in ("argmax", "argmin") else found.astype(own, copy=False)


def reshaped(x: Array, shape: Sequence[int]) -> Array:
    """The elements in another shape: a view, or else a copy that is made run by run."""
    if x.size <= LARGE:
        return x.reshape(shape)
    try:
        return x.reshape(shape, copy=False)
    except TypeError:  # NumPy 2.0 cannot be asked
        return x.reshape(shape)
    except ValueError:
        out = np.empty(x.size, x.dtype)
    runs = next(i for i in range(x.ndim + 1) if prod(x.shape[i:]) <= LARGE)
    length = prod(x.shape[runs:])
    for i, place in enumerate(np.ndindex(x.shape[:runs])):
        out[i * length : (i + 1) * length] = x[place].reshape(-1)
    return out.reshape(shape)


def _pieces(shape: Sequence[int], among: Collection[int]) -> tuple[int, list[tuple[slice, ...]]]:
    """An axis, the longest of some, and cuts of an array along it."""
    axis = max(among, key=shape.__getitem__, default=0)
    step = max(1, LARGE * shape[axis] // prod(shape)) if among else shape[axis]
    return axis, [(*(slice(None),) * axis, slice(i, i + step)) for i in range(0, shape[axis], step)]


def _in_pieces(run: Callable[..., Array], arrays: Sequence[Array]) -> Array:
    shape = arrays[0].shape
    _, (first, *others) = _pieces(shape, range(len(shape)))
    found = run(*(a[first] for a in arrays))
    if not others:
        return found
    out = np.empty(shape, found.dtype)
    out[first] = found
    for at in others:
        out[at] = run(*(a[at] for a in arrays))
    return out


def _reduced_in_pieces(kind: str, x: Array, dtype: np.dtype, axes: tuple[int, ...]) -> Array:
    """The reduction, with `axes` of one element. An axis along which a place is looked for is read whole."""
    combine = _COMBINED.get(kind)
    among = [i for i in range(x.ndim) if combine is not None or i not in axes]
    axis, pieces = _pieces(x.shape, among)
    found = [reduce(kind, converted(x[at], dtype), axes, True) for at in pieces]
    return fold(combine, found) if combine is not None and axis in axes else np.concatenate(found, axis)


# What is held, by shapes


def repeating(order: Sequence[Term], demands: Mapping[Term, Demand]) -> dict[Term, frozenset[int]]:
    """The axes along which the demanded elements of each term repeat, and are held once."""
    found: dict[Term, frozenset[int]] = {}
    for term in order:
        large = count_of(term, demands[term]) > LARGE
        found[term] = frozenset(_repeating(term, found)) if large or row(term.op).view else frozenset()
    return found


def _repeating(term: Term, below: Mapping[Term, frozenset[int]]) -> Collection[int]:
    axes = range(term.ndim)
    if term.op == "full":
        return axes
    if term.op == "constant":
        return [i for i in axes if term.attr("value").array.strides[i] == 0]
    if not term.args:
        return ()
    x = term.args[0]
    of = below[x]
    if term.op == "broadcast":
        lead = term.ndim - x.ndim
        return [i for i in axes if i < lead or i - lead in of or x.shape[i - lead] < term.shape[i]]
    if term.op == "transpose":
        return [i for i, axis in enumerate(term.attr("perm")) if axis in of]
    if term.op == "slice":
        return of
    if term.op == "reshape":
        return [j for source, result in reshape_groups(term) if of.issuperset(source) for j in result]
    if term.op in ELEMENTWISE or term.op in ("where", "cast"):
        return of.intersection(*(below[a] for a in term.args))
    if term.op == "reduce":
        kept = [i for i in range(x.ndim) if term.attr("keepdims") or i not in term.attr("axes")]
        return [j for j, i in enumerate(kept) if i in of]
    return ()


def held(term: Term, demand: Demand, repeats: Collection[int]) -> int:
    """How many of the wanted elements of a term are held."""
    sizes = (length_of(w, n) for w, n in zip(demand, term.shape, strict=True))
    return prod(1 if i in repeats else n for i, n in enumerate(sizes))
