"""Lowering of pointwise trees: from core nodes at a symbolic index to C expressions.

Element `i` of a node is an expression over elements of its operands: a view changes the index, a concatenation uses it
to pick an operand, other operators keep it. Leaves are arrays that the kernel reads. float16 and bfloat16 are computed
in float and rounded where they are stored (or cast).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np

from eqsat.base.numerics import COMPARE, HALVES, STORED, STORED_INTS, is_integer, itemsize, np_dtype
from eqsat.gpu.code.c_writer import Region, Value
from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.code.index import Index, Mask, Var, through
from eqsat.program.core import CAST, Node
from eqsat.program.node import is_elementwise

STORAGE = {
    "float64": "double",
    "float32": "float",
    "float16": "eq_half",
    "bfloat16": "eq_bfloat",
    "int32": "int",
    "int64": "long long",
    "bool": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    **{name: "unsigned char" for name in STORED if name not in STORED_INTS},  # a byte each, only moved
}
"""C types of elements in memory."""

COMPUTE = {**STORAGE, "float16": "float", "bfloat16": "float", "bool": "bool"}
"""C types of elements in registers."""

ACCESS_BYTES = 16
"""Most bytes that one load or store moves."""

SCATTERED = 4
"""What an access counts whose lanes lie far apart: 64 accesses of 16 bytes take 64 lines of the L1 instead of 16."""

LONGEST_INDEX = 64
"""Most variables and divisions in an index without a name of its own."""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&&", "or": "||"}
_COMPARISONS = {"equal": "==", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_LARGEST_EXPANDED_POWER = 4


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array in memory: C pointer name and element type there, which may be wider than the node's."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """The innermost loop over elements that one thread takes together, so that memory is accessed in vectors."""

    var: Var

    @property
    def width(self) -> int:
        return self.var.extent


Special = Callable[[Index], Value | None]
"""What an element of a node is inside a kernel, where that is neither loaded nor computed pointwise: a product's sum, a
row's total. None where it is after all."""


def at_place(place: Index, value: Callable[[], Value]) -> Special:
    """What is known of one element of a node alone, which the kernel computes there.

    Its calls raise NotLowerable for any other element.
    """

    def known(index: Index) -> Value:
        if index != place:
            raise NotLowerable("a kernel reads a value elsewhere than where it computes it")
        return value()

    return known


def held(place: Index, value: Callable[[], Value]) -> Special:
    """One element of a node that a thread holds in a register; it loads or computes any other."""
    return lambda index: value() if index == place else None


@dataclass(slots=True)
class Traffic:
    """The reads of a lowering.

    Attributes:
        loads: load instructions of one thread; those that are scattered over memory count `SCATTERED` times.
        neighbour: what grows by 1 from thread to thread, if that is known.
    """

    loads: int = 0
    neighbour: Var | None = None

    def weight(self, index: Index, lanes: Lanes | None) -> int:
        """What an access at this index counts, for each of a thread's instructions."""
        if self.neighbour is None:
            return 1
        width = lanes.width if lanes and lanes.var in index.variables else 1
        return SCATTERED if abs(index.step(self.neighbour)) > width else 1


def literal(value: Any, dtype: str) -> str:
    """A C literal of an element."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in STORED and dtype not in STORED_INTS:
        return str(int(np.asarray(value).astype(np_dtype(dtype)).view(np.uint8)))  # its bits
    if is_integer(dtype):
        least = np.iinfo(dtype).min
        suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype, "")
        return f"({least + 1}{suffix} - 1)" if value == least < 0 else f"{int(value)}{suffix}"
    wide = dtype == "float64"
    x = float(value)
    if math.isnan(x) or math.isinf(x):
        name = "EQ_NAN" if math.isnan(x) else "EQ_INF" if x > 0 else "(-EQ_INF)"
        return f"(double){name}" if wide else name
    text = repr(x) if wide else np.format_float_scientific(np.float32(x), trim="0", unique=True)
    return text if wide else f"{text}f"


@dataclass
class Lowering:
    """Lowers nodes into a region.

    Attributes:
        region: where statements go.
        leaves: nodes that are read from memory.
        lanes: the vector loop, open in the region, if there is one.
        special: nodes with a meaning of their own here.
        place: the one element of each node that is computed here, for nodes above the kernel's core (`spine.places`).
        traffic: counts the load instructions that were written.
    """

    region: Region
    leaves: Mapping[Node, Leaf]
    lanes: Lanes | None = None
    special: Mapping[Node, Special] = field(default_factory=dict)
    place: Mapping[Node, Index] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)

    def value(self, node: Node, index: Index) -> Value:
        """The C value of element `index` of a node.

        Raises:
            NotLowerable: the node is not computed element by element.
        """
        special = self.special[node](index) if node in self.special else None
        if special is not None:
            return special
        if node.op == "Full":
            return Value(literal(node.attrs[0], node.dtype))
        if node in self.leaves:
            return self.load(self.leaves[node], index)
        key = (node, index)
        found = self.region.known(key)
        return found or self.region.remember(key, self._lowered(node, index))

    def _lowered(self, node: Node, index: Index) -> Value:
        if is_elementwise(node.op):
            operands = [self.value(a, index) for a in node.args]
            return self._define(node, self._expression(node, [v.text for v in operands]), operands)
        match node.op:
            case "V":
                return self._view(node, index)
            case "Cat":
                return self._concatenation(node, index)
            case "Gather":
                return self._gather(node, index)
        raise NotLowerable(f"a kernel cannot compute {node!r} element by element")

    def _define(self, node: Node, text: str, operands: Sequence[Value]) -> Value:
        return self.region.define(COMPUTE[node.dtype], text, operands)

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def _expression(self, node: Node, x: list[str]) -> str:
        if node.op == "Where":
            return f"{x[0]} ? {x[1]} : {x[2]}"
        f = node.attrs[0]
        if f.startswith(CAST):
            return _cast(x[0], node.dtype)
        if f in COMPARE:
            return f"{x[0]} {_COMPARISONS[f]} {x[1]}"
        if f in _INFIX and not is_integer(node.dtype):  # those of integers wrap around (scalar_math.h)
            return f"{x[0]} {_INFIX[f]} {x[1]}"
        if f == "pow" and node.args[1].op == "Full":
            expanded = _constant_power(x[0], node.args[1].attrs[0], node.dtype)
            if expanded:
                return expanded
        return f"eq_{f}({', '.join(x)})"

    # --- indices ------------------------------------------------------------------------------------------------

    def _view(self, node: Node, index: Index) -> Value:
        layout, (arg,) = node.attrs[0], node.args
        if arg in self.place and self.place.get(node) == index:
            return self.value(arg, self.place[arg])
        address, masks = through(layout, index)
        if not masks:
            return self.value(arg, self._named(address, arg.size))
        masks = [self._common(mask) for mask in masks]
        fill = literal(layout.fill, node.dtype)
        condition = self.region.condition(masks)
        if arg in self.leaves and arg not in self.special:
            # Reading element 0 where the mask fails costs less than a branch around the load.
            inside = self.load(self.leaves[arg], address, masks)
            return self._define(node, f"{condition.text} ? {inside.text} : {fill}", [condition, inside])
        address = self._named(address, arg.size)
        return self._branched(node, masks, address, lambda name: self._guarded(name, masks, arg, address, fill))

    def _named(self, index: Index, extent: int) -> Index:
        """The index; a long one becomes a variable of the kernel, since each view of a view would multiply it."""
        if index.length <= LONGEST_INDEX:
            return index
        value = self.region.index(index)
        var = Var(value.text, extent)
        self.region.declare(var, value.depth)
        return Index.of(var)

    def _common(self, mask: Mask) -> Mask:
        """The same mask, as one that all lanes of a vector share where it is."""
        if not self.lanes or mask.bound % self.lanes.width:
            return mask
        width = self.lanes.width
        shift = max(0, -(mask.index.range[0] // width))  # a masked coordinate may be negative, what is divided may not
        whole = (mask.index + shift * width) // width - shift
        return mask if self.lanes.var in whole.variables else Mask(whole, mask.bound // width)

    def _concatenation(self, node: Node, index: Index) -> Value:
        low, high = index.range
        start, inside = 0, []
        for arg in node.args:
            if start <= high and low < start + arg.size:
                inside.append((start, arg))
            start += arg.size
        if not inside:  # read under a mask that never holds
            return Value(literal(0, node.dtype))
        if len(inside) == 1:
            start, arg = inside[0]
            return self.value(arg, index - start)
        bounds = [self._common(Mask(index, start)) for start, _ in inside[1:]]
        return self._branched(node, bounds, index, lambda name: self._halved(name, inside, bounds, index))

    def _halved(self, name: str, members: Sequence[tuple[int, Node]], bounds: Sequence[Mask], index: Index) -> None:
        """Assign the element of the one of these members that holds it. Halves keep the tests few, and shallow: the
        lanes of every level take registers."""
        if len(members) == 1:
            ((start, arg),) = members
            self._assign(name, lambda: self.value(arg, index - start).text)
            return
        half = len(members) // 2
        condition = self.region.condition([bounds[half - 1]])
        self.region.alternatives(
            [
                (f"if ({condition.text})", partial(self._halved, name, members[:half], bounds[: half - 1], index)),
                ("else", partial(self._halved, name, members[half:], bounds[half:], index)),
            ]
        )

    def _guarded(self, name: str, masks: Sequence[Mask], arg: Node, index: Index, fill: str) -> None:
        """Assign an element where masks hold, else `fill`."""
        self._assign(name, lambda: fill)
        condition = self.region.condition(masks)
        inside = partial(self._assign, name, lambda: self.value(arg, index).text)
        self.region.alternatives([(f"if ({condition.text})", inside)])

    def _branched(self, node: Node, masks: Sequence[Mask], index: Index, write: Callable[[str], None]) -> Value:
        """What `write` assigns to a name in branches under these masks: once for all lanes that share them."""
        region, lanes = self.region, self.lanes
        name, ctype = region.fresh(), COMPUTE[node.dtype]
        tested = {var for mask in masks for var in mask.index.variables}
        if lanes and region.known_before(lanes.var, tested | index.variables - {lanes.var}):
            with region.before(lanes.var):
                region.statement(f"eq_run<{ctype}, {lanes.width}> {name};")
                write(name)
            return Value(f"{name}.v[{lanes.var}]", region.depth)
        region.statement(f"{ctype} {name};")
        write(name)
        return Value(name, region.depth)

    def _assign(self, name: str, text: Callable[[], str]) -> None:
        """Assign a value, of every lane where their loop is not open."""
        region, lanes = self.region, self.lanes
        if lanes and not region.is_open(lanes.var):
            with region.unrolled(lanes.var):
                region.statement(f"{name}.v[{lanes.var}] = {text()};")
        else:
            region.statement(f"{name} = {text()};")

    def _gather(self, node: Node, index: Index) -> Value:
        _, n, inner = node.attrs
        data, places = node.args
        within = index % inner
        place = (index // inner) % places.size
        outer = index // (inner * places.size)
        chosen = self.value(places, place)
        wrapped = self._define_index(f"{chosen.text} < 0 ? {chosen.text} + {n} : {chosen.text}", chosen)
        # An index out of range must not fault; NumPy would have refused the program.
        clamped = self._define_index(
            f"{wrapped.text} < 0 ? 0 : {wrapped.text} < {n} ? {wrapped.text} : {n - 1}", wrapped
        )
        var = Var(clamped.text, n)
        self.region.declare(var, clamped.depth)
        return self.value(data, outer * (n * inner) + Index.of(var) * inner + within)

    def _define_index(self, text: str, operand: Value) -> Value:
        return self.region.define(self.region.index_type, text, [operand])

    # --- memory -------------------------------------------------------------------------------------------------

    def load(self, leaf: Leaf, index: Index, masks: Sequence[Mask] = ()) -> Value:
        """An element of an array in memory; behind masks, element 0 where they fail."""
        region = self.region
        bound = Value("", region.guard_depth)
        if self.lanes and runs_along(index, self.lanes, masks):
            first = index.without(self.lanes.var)
            address = self._inside(region.index(first), masks)
            ctype = f"eq_run<{STORAGE[leaf.dtype]}, {self.lanes.width}>"
            read = f"eq_read_run<{self.lanes.width}>({leaf.name} + {address.text})"
            if region.known((ctype, read)) is None:
                loads = max(1, self.lanes.width * itemsize(leaf.dtype) // ACCESS_BYTES)
                self.traffic.loads += loads * self.traffic.weight(index, self.lanes)
            run = region.define(ctype, read, [address, bound])
            lane = region.index(Index.of(self.lanes.var))
            return region.define(COMPUTE[leaf.dtype], loaded(f"{run.text}.v[{lane.text}]", leaf.dtype), [run, lane])
        address = self._inside(region.index(index), masks)
        text = loaded(f"{leaf.name}[{address.text}]", leaf.dtype)
        if region.known((COMPUTE[leaf.dtype], text)) is None:
            moves = self.lanes is not None and self.lanes.var in index.variables
            loads = self.lanes.width if self.lanes and moves else 1
            self.traffic.loads += loads * self.traffic.weight(index, self.lanes)
        return region.define(COMPUTE[leaf.dtype], text, [address, bound])

    def _inside(self, address: Value, masks: Sequence[Mask]) -> Value:
        if not masks:
            return address
        condition = self.region.condition(masks)
        return self.region.define(
            self.region.index_type, f"{condition.text} ? {address.text} : 0", [condition, address]
        )


def runs_along(index: Index, lanes: Lanes, masks: Sequence[Mask] = ()) -> bool:
    """Whether the lanes lie at consecutive, aligned places, all or none of them behind a mask."""
    if index.coefficient(lanes.var) != 1 or any(m.index.coefficient(lanes.var) != 0 for m in masks):
        return False
    return index.without(lanes.var).multiple_of(lanes.width)


def stored(text: str, dtype: str) -> str:
    """A computed value as an element in memory."""
    return f"eq_store<{STORAGE[dtype]}>({text})"


def loaded(text: str, dtype: str) -> str:
    """An element in memory as a value to compute with."""
    return f"{text} != 0" if dtype == "bool" else f"eq_load({text})" if dtype in HALVES else text


def _cast(x: str, dtype: str) -> str:
    if dtype == "bool":
        return f"{x} != 0"
    return f"eq_load({stored(x, dtype)})" if dtype in HALVES else f"({COMPUTE[dtype]}){x}"


def _constant_power(x: str, exponent: Any, dtype: str) -> str | None:
    """x ** exponent as products or a root, for the exponents where that is exact or better."""
    if exponent == int(exponent) and 1 <= exponent <= _LARGEST_EXPANDED_POWER:
        return reduce(lambda power, _: f"eq_mul({power}, {x})", range(int(exponent) - 1), x)
    if dtype.startswith("int"):
        return None
    return {-1: f"eq_reciprocal({x})", 0.5: f"eq_half_power({x})", -0.5: f"eq_reciprocal(eq_half_power({x}))"}.get(
        exponent
    )
