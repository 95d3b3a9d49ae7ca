"""Evidence that rules are sound: random instances of each, both sides evaluated, compared as the numerics class says.

Instances are drawn so that guards hold often: layouts are permutations, broadcasts and slices along the dims of the
operator that they feed. Values are small integers where only sums and products are involved, so that float64 is exact;
for `exact` rules they include NaN, infinities, signed zeros and extremes, and both sides must agree bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from eqsat import layout as lt
from eqsat.layout import Layout
from eqsat.numerics import UNARY, elementwise
from eqsat.numerics import reduce as reduce_array
from eqsat.rule import Arith, Ask, Attr, Compare, Fact, Lit, Pat, Pattern, Rule, Var
from eqsat.snapshot import Snapshot
from eqsat.tables import TABLES
from eqsat.terms import Term

Array = np.ndarray

_DIMS = (1, 1, 2, 2, 3, 4, 5)
_SPECIALS = (0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, -5e-324, 1e-310, 1.7e308, -1.7e308, 1.0, -1.0, 0.5, 3.0)
_FILLS = (0.0, 0.0, 1.0, 2.0, 0.5, -3.0, 4.0)
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Counterexample:
    """An instance on which the two sides differ."""

    bindings: Mapping[str, Any]
    left: Array
    right: Array

    def __str__(self) -> str:
        shown = {k: (v.key() if isinstance(v, Layout) else v) for k, v in self.bindings.items()}
        return f"with {shown}: left {self.left.ravel()[:8]}, right {self.right.ravel()[:8]}"


@dataclass(slots=True)
class Evidence:
    """What sampling a rule showed: instances drawn, instances whose guard held, and what went wrong if anything did."""

    drawn: int = 0
    held: int = 0
    failure: Counterexample | None = None


class _Unfit(Exception):
    """The draw does not fit the pattern; another is drawn."""


def check_rule(rule: Rule, held: int = 20, most: int = 4000, seed: int = 0) -> Evidence:
    """Draw instances until the guard has held on `held` of them, or `most` are drawn; stop at the first that fails."""
    draw = random.Random(f"{rule.name}/{seed}")
    evidence = Evidence()
    while evidence.held < held and evidence.drawn < most:
        evidence.drawn += 1
        try:
            instance = _Instance(rule, draw)
        except _Unfit:
            continue
        if not instance.guards_hold():
            continue
        evidence.held += 1
        left = instance.left_value()
        try:
            right = instance.right_value()
        except ValueError:  # operands whose sizes do not fit: the right side has no value
            right = np.empty(0, left.dtype)
        if not _agree(left, right, rule.numerics == "exact"):
            evidence.failure = Counterexample(instance.bindings, left, right)
            break
    return evidence


def _agree(left: Array, right: Array, bitwise: bool) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.kind != "f":
        return bool(np.array_equal(left, right))
    if bitwise:
        both_nan = np.isnan(left) & np.isnan(right)
        same = (left == right) & (np.signbit(left) == np.signbit(right))
        return bool(np.all(both_nan | same))
    scale = max(1.0, float(np.max(np.abs(left), initial=0.0, where=np.isfinite(left))))
    return bool(np.allclose(left, right, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True))


class _Instance:
    """A random instance of a rule's left side."""

    def __init__(self, rule: Rule, draw: random.Random) -> None:
        self.rule, self.draw = rule, draw
        self.bindings: dict[str, Any] = {}
        self._special = rule.numerics == "exact" and draw.random() < 0.5
        self._arrays: dict[str, Array] = {}
        self._viewed: dict[str, int] = {}
        self.size = self._shape(rule.left, None)
        self.bindings["self"] = self.size

    # --- drawing: sizes from the top down, arrays at the variables

    def _shape(self, pattern: Pattern, size: int | None, hint: Sequence[int] = ()) -> int:
        """Bind everything in a pattern whose result has `size` elements (None: any); its size."""
        if isinstance(pattern, Var):
            known = self.bindings.get(pattern.name)
            if known is not None:
                if size is not None and known != size:
                    raise _Unfit
                return known
            self.bindings[pattern.name] = size if size is not None else self._dim() * self._dim()
            return self.bindings[pattern.name]
        return getattr(self, f"_shape_{pattern.op.lower()}")(pattern, size, hint)

    def _shape_mm(self, pattern: Pat, size: int | None, hint: Sequence[int]) -> int:
        batch, m, k, n = (self._int(a, size if i in (0, 1, 3) else None) for i, a in enumerate(pattern.attrs))
        if size is not None and batch * m * n != size:
            raise _Unfit
        self._shape(pattern.args[0], batch * m * k, (batch, m, k))
        self._shape(pattern.args[1], batch * k * n, (batch, k, n))
        return batch * m * n

    def _shape_red(self, pattern: Pat, size: int | None, hint: Sequence[int]) -> int:
        fn, count = pattern.attrs
        if isinstance(fn, Var):
            self.bindings.setdefault(fn.name, self.draw.choice(("sum", "max", "min", "prod")))
        if isinstance(count, Lit) or (isinstance(count, Var) and count.name in self.bindings):
            c = self._int(count, None)
            rows = size if size is not None else self._dim()
            self._shape(pattern.args[0], rows * c, (rows, c))
            return rows
        if size is not None:
            c = self._int(count, None)
            self._shape(pattern.args[0], size * c, (size, c))
            return size
        whole = self._shape(pattern.args[0], None)
        divisors = [d for d in range(1, whole + 1) if whole % d == 0]
        assert isinstance(count, Var)
        c = self.bindings.setdefault(count.name, self.draw.choice(divisors))
        if c not in divisors:
            raise _Unfit
        return whole // c

    def _shape_un(self, pattern: Pat, size: int | None, hint: Sequence[int]) -> int:
        self._function(pattern.attrs[0], [f for f in UNARY if f != "not"])
        return self._shape(pattern.args[0], size, hint)

    def _shape_bin(self, pattern: Pat, size: int | None, hint: Sequence[int]) -> int:
        self._function(pattern.attrs[0], ["add", "sub", "mul", "div", "min", "max"])
        return self._shape_equal(pattern, size, hint)

    def _shape_where(self, pattern: Pat, size: int | None, hint: Sequence[int]) -> int:
        condition = pattern.args[0]
        if isinstance(condition, Var):
            self.bindings["condition"] = condition.name
        return self._shape_equal(pattern, size, hint)

    def _shape_equal(self, pattern: Pat, size: int | None, hint: Sequence[int]) -> int:
        ordered = sorted(pattern.args, key=lambda a: isinstance(a, Var) or a.op == "Full")
        for arg in ordered:
            size = self._shape(arg, size, hint)
        assert size is not None
        return size

    def _shape_full(self, pattern: Pat, size: int | None, hint: Sequence[int]) -> int:
        value, count, dtype = pattern.attrs
        if size is None:
            size = self._dim() * self._dim()
        for attr, given in ((value, self.draw.choice(_FILLS)), (count, size), (dtype, "float64")):
            if isinstance(attr, Var) and self.bindings.setdefault(attr.name, given) != given and attr is count:
                raise _Unfit
        return size

    def _shape_view(self, pattern: Pat, size: int | None, hint: Sequence[int]) -> int:
        (name,) = pattern.attrs
        assert isinstance(name, Var)
        bound = self.bindings.get(name.name)
        if bound is not None:
            if size is not None and bound.size != size:
                raise _Unfit
            self._shape(pattern.args[0], self._viewed[name.name])
            return bound.size
        if size is None:
            inner = self._shape(pattern.args[0], None)
            shape = self._dims_below(pattern.args[0]) or (inner,)
            layout = self._view_of(shape)
        else:
            layout, inner = self._view_onto(size, hint)
            self._shape(pattern.args[0], inner)
        self.bindings[name.name] = layout
        self._viewed[name.name] = inner
        return layout.size

    _shape_v = _shape_view

    def _dims_below(self, pattern: Pattern) -> tuple[int, ...]:
        """The dims of the product under some elementwise operators, which views of it are drawn along."""
        if isinstance(pattern, Pat) and pattern.op == "MM":
            b, m, _, n = (self._number(a) for a in pattern.attrs)
            return b, m, n
        for arg in pattern.args if isinstance(pattern, Pat) and pattern.op in ("Un", "Bin") else ():
            if found := self._dims_below(arg):
                return found
        return ()

    def _view_of(self, shape: Sequence[int]) -> Layout:
        """A view of an array of this shape: permuted, sliced, broadcast or padded."""
        draw, shape = self.draw, tuple(shape)
        if prod(shape) > 1 and len(shape) == 1 and draw.random() < 0.6:
            split = draw.choice([d for d in range(1, shape[0] + 1) if shape[0] % d == 0])
            shape = (split, shape[0] // split)
        kind = draw.choice(("permute", "permute", "slice", "broadcast", "pad"))
        if kind == "permute":
            return lt.of_transpose(shape, draw.sample(range(len(shape)), len(shape)))
        if kind == "slice":
            starts = [draw.randrange(n) for n in shape]
            stops = [draw.randint(s + 1, n) for s, n in zip(starts, shape, strict=True)]
            return lt.of_slice(shape, starts, stops, [1] * len(shape))
        if kind == "pad":
            return lt.of_pad(shape, [draw.randint(0, 1) for _ in shape], [draw.randint(0, 1) for _ in shape], 0.0)
        return lt.of_broadcast(shape, (self._dim(), *shape))

    def _view_onto(self, size: int, hint: Sequence[int]) -> tuple[Layout, int]:
        """A view with `size` elements whose dims are those of its reader, some repeated; and what it views."""
        dims = tuple(hint) if hint and prod(hint) == size else (size,)
        repeated = [self.draw.random() < 0.5 for _ in dims]
        shape = tuple(1 if r else n for n, r in zip(dims, repeated, strict=True))
        return lt.of_broadcast(shape, dims), prod(shape)

    def _function(self, attr: Attr, choices: Sequence[str]) -> None:
        if isinstance(attr, Var):
            self.bindings.setdefault(attr.name, self.draw.choice(list(choices)))

    def _int(self, attr: Attr, dividing: int | None) -> int:
        if isinstance(attr, Var) and attr.name not in self.bindings:
            if dividing is None:
                self.bindings[attr.name] = self._dim()
            else:
                self.bindings[attr.name] = self.draw.choice([d for d in range(1, dividing + 1) if dividing % d == 0])
        return self._number(attr)

    def _dim(self) -> int:
        return self.draw.choice(_DIMS)

    # --- evaluation

    def _number(self, attr: Attr) -> Any:
        match attr:
            case Var(name):
                return self.bindings[name]
            case Lit(value):
                return value
            case Arith("size", Var(name)):
                return self.bindings[name]
            case Arith(op, left, right) if right is not None:
                a, b = self._number(left), self._number(right)
                return a + b if op == "+" else a - b if op == "-" else a * b
        raise ValueError(f"not a number: {attr}")

    def guards_hold(self) -> bool:
        """Whether everything that the rule asks to be proved holds; what constness asks is taken as given."""
        for guard in self.rule.when:
            match guard:
                case Compare(op, left, right):
                    a, b = self._number(left), self._number(right)
                    verdicts = {"<": a < b, "<=": a <= b, "==": a == b, "!=": a != b, ">": a > b, ">=": a >= b}
                    if not verdicts[op]:
                        return False
                case Ask(table, args, gives):
                    found = TABLES[table].fn(*(self._number(a) for a in args))
                    if found is None:
                        return False
                    self.bindings.update({v.name: value for v, value in zip(gives, found, strict=True)})
                case Fact():
                    pass
        return True

    def left_value(self) -> Array:
        """The left side."""
        return self._value(self.rule.left)

    def right_value(self) -> Array:
        """The right side, with what the guards have bound."""
        return self._value(self.rule.right)

    def _value(self, pattern: Pattern) -> Array:
        with np.errstate(all="ignore"):
            if isinstance(pattern, Var):
                return self._array(pattern.name)
            attrs = tuple(self._number(a) for a in pattern.attrs)
            return apply(pattern.op, attrs, [self._value(a) for a in pattern.args])

    def _array(self, name: str) -> Array:
        if name not in self._arrays:
            size, draw = self.bindings[name], self.draw
            if self.bindings.get("condition") == name:
                values: Array = np.array([draw.random() < 0.5 for _ in range(size)], dtype=bool)
            elif self._special:
                values = np.array([draw.choice(_SPECIALS) for _ in range(size)], dtype=np.float64)
            else:
                values = np.array([draw.randint(-4, 4) for _ in range(size)], dtype=np.float64)
            self._arrays[name] = values
        return self._arrays[name]


def apply(op: str, attrs: tuple[Any, ...], args: Sequence[Array]) -> Array:
    """A core operator on flat arrays, one element at a time in a fixed order: the reference that rules are held to.

    Products sum over k from first to last, so that a rule which keeps that order is bitwise exact here, whatever a
    library's gemm does with its blocks.
    """
    match op:
        case "Full":
            return np.full(attrs[1], attrs[0], dtype=attrs[2])
        case "Un" | "Bin":
            return np.asarray(elementwise(attrs[0], *args))
        case "Where":
            return np.where(*args)
        case "MM":
            batch, m, k, n = attrs
            a, b = args[0].reshape(batch, m, k), args[1].reshape(batch, k, n)
            total = np.zeros((batch, m, n), dtype=a.dtype)
            for i in range(k):
                total = total + a[:, :, i, None] * b[:, i, None, :]
            return total.reshape(-1)
        case "Red":
            return np.asarray(reduce_array(attrs[0], args[0].reshape(-1, attrs[1]), (1,), False)).reshape(-1)
        case "V":
            index = attrs[0].index()
            read = args[0][np.maximum(index, 0)] if args[0].size else np.zeros(index.shape, args[0].dtype)
            return np.where(index >= 0, read, args[0].dtype.type(attrs[0].fill)) if attrs[0].masked else read
        case "Cat":
            return np.concatenate(list(args))
        case "Gather":
            outer, n, inner = attrs
            return args[0].reshape(outer, n, inner)[:, args[1] % n].reshape(-1)
    raise ValueError(f"{op} has no reference here")


def class_values(snapshot: Snapshot, leaves: Mapping[str, Array]) -> list[Array]:
    """The value of every class by its shallowest derivation; `leaves` gives inputs and constants by name."""
    values: list[Array | None] = [None] * snapshot.n_classes
    for cls in sorted(range(snapshot.n_classes), key=lambda c: snapshot.depth[c]):
        node = snapshot.nodes[snapshot.best[cls]]
        values[cls] = _node_value(node.op, node.attrs, node.args, values, leaves)
    return [v for v in values if v is not None]


def _node_value(
    op: str, attrs: tuple[Any, ...], args: Sequence[int], values: Sequence[Array | None], leaves: Mapping[str, Array]
) -> Array:
    if op in ("In", "Const"):
        return leaves[attrs[0]]
    with np.errstate(all="ignore"):
        return apply(op, attrs, [v for a in args if (v := values[a]) is not None])


def term_value(term: Term, values: Sequence[Array], leaves: Mapping[str, Array]) -> Array:
    """The value of a term over classes with these values."""
    if isinstance(term, int):
        return values[term]
    op, attrs, operands = term
    if op in ("In", "Const"):
        return leaves[attrs[0]]
    with np.errstate(all="ignore"):
        return apply(op, attrs, [term_value(t, values, leaves) for t in operands])


def disagreements(snapshot: Snapshot, leaves: Mapping[str, Array]) -> Iterator[tuple[int, Array, Array]]:
    """(e-node index, its value, its class's value) for every e-node that does not evaluate to its class."""
    values = class_values(snapshot, leaves)
    for i, node in enumerate(snapshot.nodes):
        own = _node_value(node.op, node.attrs, node.args, values, leaves)
        if not _agree(own, values[node.cls], bitwise=False):
            yield i, own, values[node.cls]
