"""Terms: operators applied to terms, immutable and hash-consed, with a shape and an element type.

The shape and dtype are computed when a term is made, by the operator's row in `OPS`; bad operands raise at once. Two
equal terms are the same object, so `is` is equality, and programs share whatever they can.

>>> from eqsat.program import ops
>>> x = ops.input("x", (2, 3), "float32")
>>> y = ops.matmul(x, ops.transpose(x, (1, 0)))
>>> y.shape, y is ops.matmul(x, ops.transpose(x, (1, 0)))
((2, 2), True)
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.mapped import blocks
from eqsat.base.numerics import SHORT, Array, dtype_name, np_dtype
from eqsat.base.worker import processors
from eqsat.errors import InputError, unknown
from eqsat.program import shapes

Shape = tuple[int, ...]
Attrs = tuple[tuple[str, Any], ...]

_SHOWN_ELEMENTS = 8
"""Constants of up to so many elements print their values, larger ones their digest."""


def spec_of(shape: Shape, dtype: str) -> str:
    """A type as programs print it: `f32[348,768]`."""
    return f"{SHORT[dtype]}[{','.join(map(str, shape))}]"


class ConstArray:
    """An immutable array, compared and hashed by its contents, or by the name that `distinguish` has given it.

    Attributes:
        view: the read-only values, in any order in memory.
        array: the same, C-contiguous.
        digest: hexadecimal digest of dtype and flat values, or of the name; the shape is not part of it.
    """

    def __init__(self, array: Array) -> None:
        own = np.ascontiguousarray(array, np_dtype(dtype_name(array.dtype))).reshape(array.shape)
        if _shared_and_writeable(own):
            own = own.copy()
        own.flags.writeable = False
        self.view: Array = own

    @classmethod
    def moved(cls, view: Array, name: str) -> ConstArray:
        """A large constant with the elements of another one in another order, known by its name as `distinguish` says.
        Nobody writes to the memory of `view`. Its elements are copied when they are first needed in a row: often the
        reader of a constant moves it back."""
        constant = cls.__new__(cls)
        constant.view = view
        if view.flags.c_contiguous:
            distinguish(view, lambda: name)
            constant.digest = _digest(view)
        else:
            constant.digest = named(name)
        return constant

    @cached_property
    def array(self) -> Array:
        if self.view.flags.c_contiguous:
            return self.view
        own = np.ascontiguousarray(self.view)
        own.flags.writeable = False
        _remember(own, self.digest)
        return own

    @cached_property
    def digest(self) -> str:
        return _digest(self.array)

    def __getstate__(self) -> dict[str, Any]:
        held = {name: value for name, value in self.__dict__.items() if name != "array"}
        return {**held, "view": np.ascontiguousarray(self.view).reshape(self.view.shape)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"view": state.get("array"), **state})  # files of failed checks may be older than `view`

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstArray) and self.view.shape == other.view.shape and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.digest, self.view.shape))

    def __repr__(self) -> str:
        if self.view.size <= _SHOWN_ELEMENTS:
            return str(self.array.tolist())
        return f"#{self.digest[:8]}"


_LARGE_BYTES = 1 << 16
_DIGESTS: dict[tuple[int, int, str], tuple[weakref.ref[Array], str]] = {}
"""Digests of large constants by address, bytes and dtype, while the memory there is held: weights are shared by many
constants, shaped in one way or another, and take seconds to read."""


def _digest(array: Array) -> str:
    if not is_large(array):
        return _hashed(array)
    known = _known(array)
    if known is not None:
        return known
    digest = _hashed(array)
    _remember(array, digest)
    return digest


def is_large(array: Array) -> bool:
    """Whether to read an array takes so long that it is better known by a name."""
    return array.nbytes >= _LARGE_BYTES


def distinguish(array: Array, name: Callable[[], str]) -> None:
    """Let a large array be known by its name, which no array of other bits may have: to read it takes time. Where it is
    the memory of one that is known already, it stays known as that. Arrays of equal bits that have two names are two
    constants, in programs and in files."""
    if is_large(array) and _known(array) is None:
        _remember(array, named(name()))


def named(name: str) -> str:
    """The digest of a name."""
    return hashlib.sha256(name.encode(), usedforsecurity=False).hexdigest()[:32]


def _place(array: Array) -> tuple[int, int, str]:
    return array.ctypes.data, array.nbytes, dtype_name(array.dtype)


def _known(array: Array) -> str | None:
    """The digest of the array that is held at this place, if it was asked for before."""
    known = _DIGESTS.get(_place(array))
    return known[1] if known is not None and known[0]() is not None else None


def _remember(array: Array, digest: str) -> None:
    place = _place(array)
    _DIGESTS[place] = (weakref.ref(_holder(array), lambda _: _DIGESTS.pop(place, None)), digest)


def _hashed(array: Array) -> str:
    # Processors have instructions for SHA-256: three times faster than BLAKE2 on weights.
    h = hashlib.sha256(dtype_name(array.dtype).encode(), usedforsecurity=False)
    for block in blocks(array):
        h.update(block)
    return h.hexdigest()[:32]


def digest_all(arrays: Iterable[Array]) -> None:
    """Find the digests of constants to come, on several processors. They are known as long as the arrays live.

    Arrays that a constant would copy are left out.
    """
    ready = (a for a in arrays if a.flags.c_contiguous and not _shared_and_writeable(a))
    large = sorted(filter(is_large, ready), key=lambda a: a.nbytes)
    if sum(a.nbytes for a in large) < _TOGETHER_BYTES:
        return

    def work() -> None:
        with suppress(IndexError):
            while True:
                _digest(large.pop())  # not by a constant: all constants share one lock for what they cache

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_MOST_THREADS, processors()) - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()


_TOGETHER_BYTES = 1 << 24
"""Constants of fewer bytes are hashed in a few hundredths of a second."""

_MOST_THREADS = 4
"""More would wait for memory."""


def _holder(array: Array) -> Array:
    """The array that keeps the memory of a view alive."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _shared_and_writeable(array: Array) -> bool:
    """Whether somebody else could still change the values."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


@dataclass(frozen=True, slots=True)
class Op:
    """One operator.

    Attributes:
        name: as in `Term.op`.
        arity: number of operands; None for any number from `least` up.
        attrs: names of the attributes, in order.
        infer: operands and attributes by name to (shape, dtype); raises ShapeError or DtypeError.
        run: operand arrays and attributes by name to the result; `dtype` is the result's element type at the
            precision of the run.
        flops: arithmetic operations of one application.
        lower: (term, core operands) to a core node; None where `eqsat.program.core.lower` makes a leaf of it.
        view: moves elements without computing or copying.
        contraction: a sum of products, 2 operations each.
        varies: not a constant even without operands that vary.
    """

    name: str
    arity: int | None
    attrs: tuple[str, ...]
    infer: Callable[..., shapes.Type]
    run: Callable[..., Array]
    flops: Callable[[Term], int]
    lower: Callable[..., Any] | None
    least: int = 0
    view: bool = False
    contraction: bool = False
    varies: bool = False

    def check_call(self, n_args: int, attrs: Mapping[str, Any]) -> None:
        """Raises InputError for a wrong number of operands, or attributes that are not exactly the declared ones."""
        if n_args != self.arity if self.arity is not None else n_args < self.least:
            wanted = f"at least {self.least}" if self.arity is None else self.arity
            raise InputError(f"{self.name} takes {wanted} operands, got {n_args}")
        if attrs.keys() != set(self.attrs):
            raise InputError(f"{self.name} takes attributes {', '.join(self.attrs) or 'none'}, got {', '.join(attrs)}")


OPS: dict[str, Op] = {}
"""Every operator by name. `eqsat.program.ops` fills it: its rows evaluate and lower terms, so they know this module."""


def row(op: str) -> Op:
    """The row of an operator. Raises InputError for a name that is none."""
    if op not in OPS:
        raise unknown("operator", op, OPS)
    return OPS[op]


class Term:
    """An operator applied to terms. Immutable and hash-consed: build terms with `eqsat.program.ops`, compare with `is`.

    Attributes:
        op: name of the operator, a key of `eqsat.program.ops.OPS`.
        args: operands.
        attrs: (name, value) pairs in the order of the operator's row.
        shape: dims of the result.
        dtype: element type of the result.
    """

    __slots__ = ("__weakref__", "args", "attrs", "dtype", "op", "shape")

    op: str
    args: tuple[Term, ...]
    attrs: Attrs
    shape: Shape
    dtype: str

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"terms are immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"terms are immutable: {name} cannot be deleted")

    @property
    def size(self) -> int:
        """Elements of the result."""
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def spec(self) -> str:
        """The type as programs print it: `f32[348,768]`."""
        return spec_of(self.shape, self.dtype)

    def attr(self, name: str) -> Any:
        """The value of an attribute. Raises KeyError where the operator has none of that name."""
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(f"{self.op} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{self.op} {self.spec}>"

    def __copy__(self) -> Term:
        return self

    def __deepcopy__(self, memo: object) -> Term:
        return self

    def __reduce__(self) -> tuple[Callable[..., Term], tuple[Any, ...]]:
        return _last_term, (flat(topological([self])),)


_TERMS: weakref.WeakValueDictionary[Any, Term] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child must not begin with a lock that a thread of its parent holds
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def plain(value: Any) -> Any:
    """An attribute value in its one form: Python scalars, and tuples of them, instead of NumPy's and lists."""
    if isinstance(value, list | tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def attr_key(value: Any) -> Any:
    """A key under which 1, 1.0 and True differ, -0.0 differs from 0.0, and NaN equals itself."""
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, bool):
        return ("bool", value)
    return value


def attrs_key(values: Iterable[Any]) -> tuple[Any, ...]:
    """The keys of several attribute values."""
    return tuple([attr_key(value) if isinstance(value, (float, bool)) else value for value in values])


def make(op: str, *args: Term, **attrs: Any) -> Term:
    """The term `op(*args, **attrs)`, checked by the row of `op` in `eqsat.program.ops.OPS`.

    Raises:
        InputError: no such operator, or not its number of operands or its attributes.
        ShapeError, DtypeError: operands that the operator does not take.
    """
    op_row = row(op)
    op_row.check_call(len(args), attrs)
    return _interned(op_row, args, tuple((name, plain(attrs[name])) for name in op_row.attrs))


def _interned(op_row: Op, args: tuple[Term, ...], pairs: Attrs) -> Term:
    """The term with these operands and attributes, the one there is or a new one."""
    key = (op_row.name, args, attrs_key([value for _, value in pairs]))
    found = _TERMS.get(key)
    if found is not None:
        return found
    shape, dtype = op_row.infer(*args, **dict(pairs))
    term, fill = object.__new__(Term), object.__setattr__
    fill(term, "op", op_row.name)
    fill(term, "args", args)
    fill(term, "attrs", pairs)
    fill(term, "shape", shape)
    fill(term, "dtype", dtype)
    with _LOCK:
        return _TERMS.setdefault(key, term)


def rebuilt(term: Term, args: Sequence[Term]) -> Term:
    """The term over as many other operands; itself if they are its own."""
    given = tuple(args)
    return term if given == term.args else _interned(row(term.op), given, term.attrs)


def unviewed(term: Term) -> Term:
    """What a chain of views reads."""
    while row(term.op).view:
        (term,) = term.args
    return term


def topological(roots: Iterable[Term]) -> list[Term]:
    """Every term below the roots once, operands before their readers, in a deterministic order."""
    return operands_first(roots)


def flat(order: Sequence[Term]) -> list[Any]:
    """Terms as a flat list, operands first: pickling them through their operands would recurse as deep as they are."""
    index = {term: i for i, term in enumerate(order)}
    return [(t.op, tuple(index[a] for a in t.args), t.attrs) for t in order]


def unflat(rows: Sequence[Any]) -> list[Term]:
    """The terms of a flat list, interned."""
    terms: list[Term] = []
    for op, args, attrs in rows:
        terms.append(make(op, *(terms[a] for a in args), **dict(attrs)))
    return terms


def _last_term(rows: Sequence[Any]) -> Term:
    return unflat(rows)[-1]
