"""Writes a region of kernel text: C statements in nested scopes, each value defined once, as far out as possible.

A value is defined in the innermost scope that it depends on, so loop-invariant values are computed before the loop.
Loads never move out of a guard (`if`): outside it they may be out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from eqsat.gpu.code.index import Atom, Index, Mask, Quotient, Var


@dataclass(frozen=True, slots=True)
class Value:
    """A C expression without side effects, and the depth of the scope in which it is known."""

    text: str
    depth: int = 0


@dataclass(slots=True)
class _Scope:
    opening: str
    guard: bool = False
    lines: list[str] = field(default_factory=list)
    known: dict[Hashable, Value] = field(default_factory=dict)

    def block(self) -> list[str]:
        return [f"{self.opening} {{", *("  " + line for line in self.lines), "}"]


class Region:
    """Statements, written from outer to inner.

    Args:
        variables: those that the surrounding text defines.
        index_type: the C type of addresses, 'int' or 'long long'.
        prefix: of the names of values; two regions in one C scope need different ones.
    """

    def __init__(self, variables: Sequence[Var] = (), index_type: str = "int", prefix: str = "v") -> None:
        self.index_type = index_type
        self._prefix = prefix
        self._count = 0
        self._scopes = [_Scope("")]
        self._depth_of = dict.fromkeys(variables, 0)

    # --- scopes ---------------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Depth of the scope that is open."""
        return len(self._scopes) - 1

    @contextmanager
    def scope(self, opening: str, *variables: Var) -> Iterator[None]:
        """A block `opening { ... }` that defines `variables`."""
        self._scopes.append(_Scope(opening))
        self._depth_of.update(dict.fromkeys(variables, self.depth))
        yield
        done = self._scopes.pop()
        for var in variables:
            del self._depth_of[var]
        if done.lines:
            self._scopes[-1].lines += done.block()

    def alternatives(self, branches: Sequence[tuple[str, Callable[[], None]]]) -> None:
        """Guarded blocks in a row: `if`, `else if`, `else`, each written by its function."""
        blocks: list[str] = []
        for opening, write in branches:
            self._scopes.append(_Scope(opening, guard=True))
            write()
            blocks += self._scopes.pop().block()
        self._scopes[-1].lines += blocks

    def is_open(self, var: Var) -> bool:
        """Whether a loop over `var` is open."""
        return var in self._depth_of

    @contextmanager
    def before(self, var: Var) -> Iterator[None]:
        """Statements before the loop over `var`, which is the scope that is open."""
        loop = self._scopes.pop()
        depth = self._depth_of.pop(var)
        yield
        self._scopes.append(loop)
        self._depth_of[var] = depth

    def known_before(self, var: Var, variables: Iterable[Var]) -> bool:
        """Whether the loop over `var` is the scope that is open, and all these variables are known outside it."""
        return self._depth_of.get(var) == self.depth > 0 and all(self._depth_of[v] < self.depth for v in variables)

    @contextmanager
    def unrolled(self, var: Var) -> Iterator[None]:
        """An unrolled loop over a variable."""
        with self.scope(f"EQ_UNROLL\nfor (int {var} = 0; {var} < {var.extent}; ++{var})", var):
            yield

    def declare(self, var: Var, depth: int) -> None:
        """Make a variable known that a statement of the scope at `depth` defines."""
        self._depth_of[var] = depth

    @property
    def text(self) -> str:
        """The statements written so far at the outermost level."""
        assert self.depth == 0
        return "\n".join(line for entry in self._scopes[0].lines for line in _indented(entry))

    # --- statements -----------------------------------------------------------------------------------------------

    def statement(self, text: str) -> None:
        """A statement in the scope that is open."""
        self._scopes[-1].lines.append(text)

    def fresh(self) -> str:
        """A new name."""
        self._count += 1
        return f"{self._prefix}{self._count}"

    def known(self, key: Hashable) -> Value | None:
        """The value defined under `key` in an open scope."""
        for scope in reversed(self._scopes):
            if key in scope.known:
                return scope.known[key]
        return None

    def remember(self, key: Hashable, value: Value) -> Value:
        """Let `known(key)` find this value while its scope is open."""
        self._scopes[value.depth].known[key] = value
        return value

    def define(self, ctype: str, text: str, operands: Sequence[Value]) -> Value:
        """`const ctype name = text;` as far out as the operands allow, once for each text."""
        key = ctype, text
        found = self.known(key)
        if found is None:
            depth = max((v.depth for v in operands), default=0)
            found = Value(self.fresh(), depth)
            self._scopes[depth].lines.append(f"const {ctype} {found.text} = {text};")
            self._scopes[depth].known[key] = found
        return found

    @property
    def guard_depth(self) -> int:
        """Depth of the innermost open guard: accesses that may fault stay inside it."""
        return max((i for i, scope in enumerate(self._scopes) if scope.guard), default=0)

    # --- indices --------------------------------------------------------------------------------------------------

    def index(self, index: Index) -> Value:
        """The value of an index. Partial sums of outer terms are computed in their outer scopes."""
        atoms = [(self._atom(atom), c) for atom, c in index.terms]
        if len(atoms) == 1 and atoms[0][1] == 1 and index.constant == 0:
            return atoms[0][0]
        if not atoms:
            return Value(str(index.constant))
        parts: list[Value] = []
        for depth in sorted({v.depth for v, _ in atoms}):
            terms = [v.text if c == 1 else f"{self._wide(v.text)} * {c}" for v, c in atoms if v.depth == depth]
            if depth == min(v.depth for v, _ in atoms) and index.constant:
                terms.append(str(index.constant))
            terms = [*(p.text for p in parts), *terms]
            parts = [self.define(self.index_type, " + ".join(terms), [*parts, Value("", depth)])]
        return parts[0]

    def _wide(self, text: str) -> str:
        return text if self.index_type == "int" else f"({self.index_type}){text}"

    def _atom(self, atom: Atom) -> Value:
        if isinstance(atom, Var):
            return Value(atom.name, self._depth_of[atom])
        of = self.index(atom.of)
        sign = "/" if isinstance(atom, Quotient) else "%"
        # Unsigned division by a constant takes fewer instructions; indices are not negative.
        unsigned = "unsigned" if self.index_type == "int" else "unsigned long long"
        return self.define(self.index_type, f"({self.index_type})(({unsigned}){of.text} {sign} {atom.by}u)", [of])

    def condition(self, masks: Sequence[Mask]) -> Value:
        """Whether all masks hold."""
        unsigned = "unsigned" if self.index_type == "int" else "unsigned long long"
        tests = []
        for mask in masks:
            value = self.index(mask.index)
            low, high = mask.index.range
            if low >= 0:
                tests.append((f"{value.text} < {mask.bound}", value))
            elif high < mask.bound:
                tests.append((f"{value.text} >= 0", value))
            else:
                tests.append((f"({unsigned}){value.text} < {mask.bound}u", value))
        return self.define("bool", " && ".join(text for text, _ in tests), [value for _, value in tests])


def _indented(entry: str) -> list[str]:
    """A statement may span lines; a scope's indentation applies to each of them."""
    lead = entry[: len(entry) - len(entry.lstrip())]
    first, *rest = entry.split("\n")
    return [first, *(lead + line for line in rest)]
