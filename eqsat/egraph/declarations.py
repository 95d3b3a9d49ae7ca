"""What egglog is told before it begins: sorts, analyses, the questions of tables, and rules, as its text.

Every attribute that is not a plain integer (layouts, function names, values, dtypes) is interned to an integer, so that
egglog sees integers and classes alone. A rule becomes one egglog rule for each table that it asks and one that fires:

    body                                   =>  (want_compose L1 L2)
    body, (= L (compose_0 L1 L2))          =>  (union self ...)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from eqsat.language.rule import Arith, Ask, Attr, Compare, Fact, Lit, Pat, Pattern, Rule, Var, variables
from eqsat.language.tables import find
from eqsat.program.core_table import CORE, CoreOp


class Atoms:
    """Attribute values as integers, in order of first use, told apart by type (0, 0.0, -0.0 and False differ)."""

    def __init__(self) -> None:
        self._ids: dict[Any, int] = {}
        self.values: list[Any] = []

    def __call__(self, value: Any) -> int:
        key = (type(value), repr(value)) if isinstance(value, float) else (type(value), value)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self.values)
            self.values.append(value)
        return found

    def truncate(self, n: int) -> None:
        """Forget all but the first n."""
        del self.values[n:]
        self._ids = {key: i for key, i in self._ids.items() if i < n}


def declarations(rules: Sequence[Rule], tables: Sequence[str], atoms: Atoms, numbers: Mapping[str, int]) -> list[str]:
    """egglog's commands for rules and the tables that they ask; `numbers` is the number of each rule by name."""
    text = [_signature(), *map(_removal, _NEEDLESS.strip().splitlines()), *map(_table_text, tables)]
    return text + [line for row in rules for line in _Lowering(row, atoms, numbers[row.name]).text()]


def _signature() -> str:
    """Sorts, constructors, their `why` functions and the analyses."""
    text = [
        "(sort T) (sort TV (Vec T)) (relation Root (i64 T)) (constructor Named (i64) T)",
        "(relation const (T)) (relation dynamic (T))",
        "(function size (T) i64 :no-merge) (function dtype (T) i64 :no-merge)",
        "(function layout-size (i64) i64 :no-merge) (function layout-whole (i64) i64 :no-merge)",
        "(function gives (i64) i64 :no-merge) (relation keeps (i64))",
        "(ruleset analysis) (ruleset demand) (ruleset simplify) (ruleset algebra)",
    ]
    for row in CORE.values():
        sorts = " ".join(["i64"] * len(row.attrs) + (["TV"] if row.arity is None else ["T"] * row.arity))
        text += [f"(constructor {row.name} ({sorts}) T)", f"(function why_{row.name} ({sorts}) i64 :merge old)"]
    text += [line for row in CORE.values() if row.arity is not None for line in _analyses(row)]
    text.append(_EQUAL_WHERE_SHOWN)
    return "\n".join(text)


def _analyses(row: CoreOp) -> list[str]:
    """egglog's rules for the size and type of an operator of fixed arity, and whether constants are all it needs."""
    result, operands = row.signature.result, [f"a{i}" for i in range(len(row.signature.operands))]
    node = f"({' '.join([row.name, *(f'v_{a.name}' for a in row.attrs), *operands])})"

    def rule(holds: str, follows: str) -> str:
        return f"(rule ((= e {node}) {holds}) ({follows}) :ruleset analysis)"

    def number(name: str) -> str:
        if name in row.place:
            return f"(layout-size v_{name})" if row.kind(name) == "layout" else f"v_{name}"
        i, divisors = row.source_of(name)
        whole = f"(size {operands[i]})"
        return f"(/ {whole} {_times([f'v_{d}' for d in divisors])})" if divisors else whole

    same = row.same_size(result.sizes)
    size = f"(size {operands[same]})" if same is not None else _times([number(name) for name in result.sizes])
    of = f"v_{result.dtype}" if result.dtype in row.place else f"(dtype {operands[row.typed_by]})"
    sized, typed = f"(= n {size})", f"(= t {of})"
    if row.function is None:
        rules = [rule(f"{sized} {typed}", "(set (size e) n) (set (dtype e) t)")]
    else:
        rules = [
            rule(sized, "(set (size e) n)"),
            rule(f"(keeps v_{row.function}) {typed}", "(set (dtype e) t)"),
            rule(f"(= t (gives v_{row.function}))", "(set (dtype e) t)"),
        ]
    if not row.folds:
        return [*rules, rule("", "(dynamic e)")]
    rules.append(rule(" ".join(f"(const {a})" for a in operands), "(const e)"))
    return rules + [rule(f"(dynamic {a})", "(dynamic e)") for a in operands]


def _times(factors: Sequence[str]) -> str:
    """The product of some numbers."""
    return reduce(lambda a, b: f"(* {a} {b})", factors) if factors else "1"


# Arrays are equal where one view that shows all of each is. Rules compute what broadcasts repeat at several sizes: what
# they find equal at one must be so at the others, or all that follows is made once for each.
_EQUAL_WHERE_SHOWN = """
(rule ((= e (V l a)) (= e (V l b)) (!= a b) (= n (layout-whole l)) (= n (size a)) (= n (size b)))
      ((union a b)) :ruleset analysis :name "equal where shown")
"""

# E-nodes that no program needs, as their class `e` has another form: "name | e-node | where", one a line.
#
# An array that repeats itself is a view of itself through many maps. It is also a view of any array that repeats or
# pads it, once for each copy. Compositions of such views never end. The source's own views stay (rule 0).
#
# Products of constants along a cycle have no end either: x - x is any multiple of itself, and the mean of a repeated x
# is a third of three times x, which rounding may make another multiple of x. A cycle is cut at its oldest class, which
# was made without the others. Of several arrays whose same multiple is one class, as 0 times each is, the oldest stays.
_NEEDLESS = """
view of itself | (V l e) | (!= 0 (why_V l e))
view of its repetition | (V l b) | (= b (V k e)) (= p (size e)) (= q (size b)) (< p q) (!= 0 (why_V l b))
view of a repetition | (V l b) | (= b (V k a)) (= e (V m a)) (= p (size a)) (= q (size b)) (< p q) (!= 0 (why_V l b))
view that is a number | (V l b) | (= e (Full v n t)) (!= 0 (why_V l b))
multiple of itself | (Bin f e b) | (const b)
multiple of its multiple | (Bin f a b) | (const b) (= a (Bin f e c)) (const c) (= e (ordering-min e a))
same multiple | (Bin f b c) | (const c) (= e (Bin f a c)) (!= a b) (= b (Bin f a d)) (= a (ordering-min a b))
"""


def _removal(line: str) -> str:
    name, node, where = (part.strip() for part in line.split("|"))
    return f'(rule ((= e {node}) {where}) ((subsume {node})) :ruleset simplify :name "{name}")'


def _table_text(name: str) -> str:
    table, symbol = find(name), in_egglog(name)
    args = " ".join(["i64"] * len(table.takes))
    text = [f"(relation want_{symbol} ({args}))", f"(relation holds_{symbol} ({args}))"]
    text += [f"(function {symbol}_{i} ({args}) i64 :no-merge)" for i in range(len(table.gives))]
    return " ".join(text)


class _Lowering:
    """One rule of the rule language as egglog text."""

    def __init__(self, row: Rule, atoms: Atoms, rule_id: int) -> None:
        self.row, self.atoms, self.rule_id = row, atoms, rule_id
        self._fresh = 0
        self._top = ""

    def text(self) -> list[str]:
        body: list[str] = []
        self._match(self.row.left, "self", body)
        rules = []
        conditions: list[list[str]] = []  # of each guard
        needs: list[set[int]] = []  # of each guard: the earlier guards whose results it reads
        giver: dict[str, int] = {}
        for i, guard in enumerate(self.row.when):
            direct = {giver[name] for name in variables(guard) if name in giver}
            needs.append(direct.union(*(needs[j] for j in direct)))
            own: list[str] = []
            match guard:
                case Fact(name, cls):
                    own.append(f"({name} {_name(cls)})")
                case Compare(op, left, right):
                    relation = {"==": "=", "!=": "!="}.get(op, op)
                    own.append(f"({relation} {self._number(left, own)} {self._number(right, own)})")
                case Ask(table, args, gives):
                    asked, symbol = " ".join(self._number(a, own) for a in args), in_egglog(table)
                    # Tables that do not need each other's answers are asked in one iteration.
                    before = [
                        condition
                        for j, known in enumerate(conditions)
                        if j in needs[i] or (needs[j] <= needs[i] and not isinstance(self.row.when[j], Ask))
                        for condition in known
                    ]
                    asks = " ".join([*body, *before, *own])
                    rules.append(
                        f'(rule ({asks}) ((want_{symbol} {asked})) :ruleset demand :name "{self.row.name} asks {i}")'
                    )
                    own.append(f"(holds_{symbol} {asked})")
                    own += [f"(= {_name(v)} ({symbol}_{j} {asked}))" for j, v in enumerate(gives)]
                    giver.update((v.name, i) for v in gives)
            conditions.append(own)
        body += [condition for own in conditions for condition in own]
        actions: list[str] = []
        if self.row.meets:
            self._match(self.row.right, result := "other", body)
        else:
            result = self._build(self.row.right, body, actions)
        actions.append(f"(union self {result})")
        if self.row.subsumes:
            actions.append(f"(subsume {self._top})")
        # Numbers are folded before other rules meet them unfolded.
        folds = isinstance(self.row.right, Pat) and self.row.right.op == "Full"
        ruleset, name = "simplify" if self.row.subsumes or folds else "algebra", self.row.name
        rules.append(f'(rule ({" ".join(body)}) ({" ".join(actions)}) :ruleset {ruleset} :name "{name}")')
        return rules

    def _match(self, pattern: Pattern, name: str, body: list[str]) -> None:
        """Conditions under which the class `name` holds the pattern."""
        if isinstance(pattern, Var):
            return
        parts = [self._attr(a) for a in pattern.attrs]
        for arg in pattern.args:
            parts.append(_name(arg) if isinstance(arg, Var) else self._new("c"))
        node = f"({pattern.op} {' '.join(parts)})"
        if name == "self":
            self._top = node
        body.append(f"(= {name} {node})")
        for arg, part in zip(pattern.args, parts[len(pattern.attrs) :], strict=True):
            self._match(arg, part, body)

    def _build(self, pattern: Pattern, body: list[str], actions: list[str]) -> str:
        """Actions that make the pattern and say who made it; the name of its class. Arithmetic goes to the body."""
        if isinstance(pattern, Var):
            return _name(pattern)
        parts = [self._number(a, body) for a in pattern.attrs]
        parts += [self._build(a, body, actions) for a in pattern.args]
        call, name = " ".join(parts), self._new("t")
        actions.append(f"(let {name} ({pattern.op} {call}))")
        actions.append(f"(set (why_{pattern.op} {call}) {self.rule_id})")
        return name

    def _attr(self, attr: Attr) -> str:
        match attr:
            case Var():
                return _name(attr)
            case Lit(value):
                return str(value if isinstance(value, int) else self.atoms(value))
            case _:
                raise ValueError(f"{self.row.name}: arithmetic on the left side belongs in the guard")

    def _number(self, attr: Attr, body: list[str]) -> str:
        """An integer: a name or literal as it is; arithmetic is bound in the body, where failing means no match."""
        if isinstance(attr, Arith):
            name = self._new("n")
            body.append(f"(= {name} {self._formula(attr)})")
            return name
        return self._attr(attr)

    def _formula(self, attr: Attr) -> str:
        match attr:
            case Arith("size" | "dtype" as analysis, cls):
                return f"({analysis} {self._attr(cls)})"
            case Arith(op, left, right) if right is not None:
                return f"({op} {self._formula(left)} {self._formula(right)})"
            case _:
                return self._attr(attr)

    def _new(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}_{self._fresh}"


def _name(var: Var) -> str:
    """Variables keep their names, told apart from generated ones and from egglog's words."""
    return "self" if var.name == "self" else f"v_{in_egglog(var.name)}"


def in_egglog(name: str) -> str:
    """A name as egglog takes it: those of numbers and of views in axes hold other characters."""
    return re.sub(r"\W", lambda found: f"_{ord(found[0]):x}_", name)
