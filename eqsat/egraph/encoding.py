"""The e-graph in egglog: rules are declared (`eqsat.egraph.declarations`), terms inserted, and snapshots read
(`eqsat.egraph.reader`).

`fill_tables` answers what rules have asked of tables since its last call. The rule that made an e-node first is kept
beside it in `why_*` functions (0: the source), since egglog's bindings do not offer its proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.base.graphs import to_make
from eqsat.base.memory_limit import collector_paused
from eqsat.egraph.bindings import egg
from eqsat.egraph.declarations import Atoms, declarations, in_egglog
from eqsat.egraph.reader import Listings, Reader
from eqsat.egraph.snapshot import ENode, Snapshot, needs_only_constants
from eqsat.language.rule import AnyRule, Ask, Rule
from eqsat.language.tables import find
from eqsat.layout.arithmetic import shown_whole
from eqsat.program.core import measure, result_dtype
from eqsat.program.core_table import CORE

Term = Any
"""What host rules and insertion speak of: a class id, or `(op, attrs, operands)` with operands that are terms."""

_COUNTS = range(-(1 << 63), 1 << 63)

# One span for every command: making one for each costs more than the commands themselves.
_SPAN = egg.RustSpan("eqsat", 0, 0)


class EGraph:
    """An e-graph over the core with a fixed set of rules."""

    def __init__(self, rules: Sequence[AnyRule]) -> None:
        self.atoms = Atoms()
        self.rule_names = ["", *(r.name for r in rules)]
        self._rule_ids = {name: i for i, name in enumerate(self.rule_names)}
        self._described = 0
        self._asked: dict[str, int] = {}
        self._insertions = 0
        self._named = 0
        self._scope: tuple[int, int] | None = None
        self._egraph = egg.EGraph()
        self._forget_listings()
        language = [r for r in rules if isinstance(r, Rule)]
        used = sorted({g.table for r in language for g in r.when if isinstance(g, Ask)})
        self._answered: dict[str, set[tuple[int, ...]]] = {name: set() for name in used}
        for part in declarations(language, used, self.atoms, self._rule_ids):
            self.declare(part)  # apart: the time and memory of parsing grow with the square of the length

    def _forget_listings(self) -> None:
        self._questions, self._reader = Listings(), Reader(self._egraph, self.atoms, self.rule_names)

    def declare(self, text: str) -> None:
        """Run egglog's commands for sorts, functions, rulesets or rules."""
        self._egraph.run_program(*self._egraph.parse_program(text))

    def clear(self) -> None:
        """Empty the e-graph of all but the rules, for another source."""
        if self._scope is not None:
            self._egraph.run_program(egg.Pop(_SPAN, 1))
            known, self._described = self._scope
            self.atoms.truncate(known)
            self._insertions = self._named = 0
            self._asked.clear()
            self._forget_listings()
            for answered in self._answered.values():
                answered.clear()
        self._scope = len(self.atoms.values), self._described
        self._egraph.run_program(egg.Push(1))

    def run(self, ruleset: str, *, saturate: bool = False) -> dict[str, int]:
        """Run a ruleset once, or until it changes nothing; the matches of each named rule.

        Raises:
            egglog's EggSmolError: two classes with different sizes or dtypes were merged, so some rule is unsound.
        """
        step = egg.Run(_SPAN, egg.RunConfig(ruleset))
        schedule = egg.Saturate(_SPAN, step) if saturate else step
        (output,) = self._egraph.run_program(egg.RunSchedule(schedule))
        assert isinstance(output, egg.RunScheduleOutput)
        return dict(output.report.num_matches_per_rule)

    def insert_source(self, source: Snapshot) -> None:
        """Add the program as it was written, or an e-graph that was read back, and mark the roots."""
        insertion = _Insertion(self, source, made_by=self._maker)
        insertion.mark_roots()
        insertion.add_others()
        insertion.finish()

    def _maker(self, node: ENode) -> int:
        """The number of the rule that made an e-node, 0 for the source."""
        return self._rule_ids[node.rule]

    def insert(self, snapshot: Snapshot, equalities: Iterable[tuple[str, int, Term]]) -> None:
        """Add terms, each equal to a class of `snapshot`, with the name of the rule that says so."""
        insertion = _Insertion(self, snapshot)
        for rule, cls, term in equalities:
            insertion.equate(self._rule_ids[rule], cls, term)
        insertion.finish()

    def names(self, snapshot: Snapshot) -> Mapping[int, int]:
        """The classes of a snapshot that have names."""
        return self._reader.names(snapshot)

    def new_name(self) -> int:
        """A name that no class has."""
        self._named += 1
        return self._named

    def _act(self, actions: list[Any]) -> None:
        self._insertions += 1
        name = f"insert{self._insertions}"
        row = egg.Rule(_SPAN, actions, [], name, name)
        run = egg.RunSchedule(egg.Run(_SPAN, egg.RunConfig(name)))
        self._egraph.run_program(egg.AddRuleset(_SPAN, name), egg.RuleCommand(row), run)

    def _describe_atoms(self) -> list[Any]:
        """What egglog must know of atoms it has not seen: the length of a layout, the dtype that a function gives."""
        facts = []
        for i in range(self._described, len(self.atoms.values)):
            value = self.atoms.values[i]
            if hasattr(value, "dims"):
                facts.append(egg.Set(_SPAN, "layout-size", [_int(i)], _int(value.size)))
                if (shown := shown_whole(value)) is not None:
                    facts.append(egg.Set(_SPAN, "layout-whole", [_int(i)], _int(shown)))
            elif isinstance(value, str) and (dtype := result_dtype(value)) is not None:
                facts.append(egg.Set(_SPAN, "gives", [_int(i)], _int(self.atoms(dtype))))
            elif isinstance(value, int | float):
                facts += self._known_values(i, value)
            elif isinstance(value, str):
                facts.append(egg.Expr_(_SPAN, egg.Call(_SPAN, "keeps", [_int(i)])))
        self._described = len(self.atoms.values)
        return facts

    def _known_values(self, atom: int, value: float) -> list[Any]:
        """What simple tables say of a value, told unasked: what is simplified must be gone before other rules meet it,
        and a question would cost an iteration."""
        asked = [("is_value", (0,)), ("is_value", (1,)), ("finite", ())]
        held = [(t, rest) for t, rest in asked if t in self._answered and find(t).fn(value, *rest) is not None]
        for table, rest in held:
            self._answered[table].add((atom, *rest))
        calls = [egg.Call(_SPAN, f"holds_{table}", [_int(v) for v in (atom, *rest)]) for table, rest in held]
        return [egg.Expr_(_SPAN, call) for call in calls]

    def fill_tables(self, functions: Mapping[str, Any]) -> int:
        """Answer every question that these hold and that was not answered before; how many rows were added."""
        actions = []
        for name, answered in self._answered.items():
            table, symbol = find(name), in_egglog(name)
            rows = functions[f"want_{symbol}"].rows
            if len(rows) == self._asked.get(name, 0):  # questions are never taken back
                continue
            self._asked[name] = len(rows)
            for asked in self._questions.made(name, rows, self._question):
                if asked in answered:
                    continue
                answered.add(asked)
                given = [
                    v if sort == "int" else self.atoms.values[v] for v, sort in zip(asked, table.takes, strict=True)
                ]
                found = table.fn(*given)
                if found is None or not all(map(_counted, found, table.gives)):
                    continue
                args = [_int(v) for v in asked]
                actions.append(egg.Expr_(_SPAN, egg.Call(_SPAN, f"holds_{symbol}", args)))
                for i, (value, sort) in enumerate(zip(found, table.gives, strict=True)):
                    result = _int(value if sort == "int" else self.atoms(value))
                    actions.append(egg.Set(_SPAN, f"{symbol}_{i}", args, result))
        actions += self._describe_atoms()
        if actions:
            self._act(actions)
        return len(actions)

    def _question(self, row: Any) -> tuple[int, ...]:
        return tuple(map(self._egraph.value_to_i64, row.inputs))

    def freeze(self) -> Mapping[str, Any]:
        """Every function of the e-graph with its rows, for `snapshot` and `fill_tables`."""
        with collector_paused():
            return self._egraph.freeze().functions  # every access copies all of them

    def snapshot(self, functions: Mapping[str, Any]) -> Snapshot:
        """The e-graph as plain data."""
        return self._reader.read(functions)


def _counted(value: Any, sort: str) -> bool:
    """Whether egglog, which counts in 64 bits, can hold a table's number, or the size of its layout. No program has an
    array of more elements, so such an answer counts as none."""
    return sort not in ("int", "layout") or (value if sort == "int" else value.size) in _COUNTS


def _int(value: int) -> Any:
    return egg.Lit(_SPAN, egg.Int(int(value)))


@dataclass(frozen=True, slots=True)
class _Told:
    """A value as egglog is told of it, with its analyses."""

    by: Any
    size: int
    dtype: str
    const: bool


class _Uncounted(Exception):
    """A term of more elements than any program has."""


class _Insertion:
    """One batch of terms as egglog actions. A class of the snapshot is told by its shallowest derivation, and gets a
    name, by which later batches tell it.

    `made_by` says which rule made an e-node of the snapshot, where that is not known yet: such a batch is the source,
    whose classes get no names, as most are never told again.
    """

    def __init__(self, graph: EGraph, snapshot: Snapshot, made_by: Callable[[ENode], int] | None = None) -> None:
        self.graph, self.snapshot, self._made_by = graph, snapshot, made_by
        self._names = graph.names(snapshot)
        self.actions: list[Any] = []
        self._classes: dict[int, _Told] = {}
        self._terms: dict[int, tuple[_Told, Term]] = {}
        self._nameless: list[_Told] = []

    def mark_roots(self) -> None:
        """State which classes are the roots of the snapshot."""
        for i, cls in enumerate(self.snapshot.roots):
            self.actions.append(egg.Expr_(_SPAN, egg.Call(_SPAN, "Root", [_int(i), self._class(cls).by])))

    def add_others(self) -> None:
        """Add the e-nodes that are not of the shallowest derivations."""
        for i, node in enumerate(self.snapshot.nodes):
            if i != self.snapshot.best[node.cls]:
                operands = [self._class(a) for a in node.args]
                made = self._let(node.op, node.attrs, operands, self._made_by and self._made_by(node))
                self._unite(self._class(node.cls).by, made)

    def equate(self, rule: int, cls: int, term: Term) -> None:
        """Add a term that equals a class, unless egglog cannot count its elements."""
        try:
            told = self._term(term, rule)
        except _Uncounted:
            return
        self._unite(self._class(cls).by, told.by)

    def finish(self) -> None:
        """Hand the batch to egglog."""
        for told in self._nameless:
            self._unite(told.by, _named(self.graph.new_name()))
        self.actions += self.graph._describe_atoms()
        if self.actions:
            self.graph._act(self.actions)

    def _unite(self, one: Any, other: Any) -> None:
        self.actions.append(egg.Union(_SPAN, one, other))

    def _class(self, cls: int) -> _Told:
        snapshot = self.snapshot
        for c in to_make(cls, self._classes, self._told_by):
            known = snapshot.size[c], snapshot.dtype[c], snapshot.const[c]
            if c in self._names:
                self._classes[c] = _Told(_named(self._names[c]), *known)
                continue
            node = snapshot.nodes[snapshot.best[c]]
            operands = [self._classes[a] for a in node.args]
            made = self._let(node.op, node.attrs, operands, self._made_by and self._made_by(node))
            told = self._classes[c] = self._described(node.op, _Told(made, *known))
            if operands and not self._made_by:
                self._nameless.append(told)
        return self._classes[cls]

    def _told_by(self, cls: int) -> Sequence[int]:
        """The classes by which another one is told."""
        return () if cls in self._names else self.snapshot.nodes[self.snapshot.best[cls]].args

    def _term(self, term: Term, rule: int) -> _Told:
        if isinstance(term, int):
            return self._class(term)
        if id(term) in self._terms:
            return self._terms[id(term)][0]
        op, attrs, operands = term
        known = [self._term(t, rule) for t in operands]
        size, dtype = measure(op, attrs, [k.size for k in known], [k.dtype for k in known])
        counts = [a for a, s in zip(attrs, CORE[op].attrs, strict=True) if s.kind == "int"]
        if not all(count in _COUNTS for count in (size, *counts)):
            raise _Uncounted
        made = self._let(op, attrs, known, rule)
        const = needs_only_constants(op, [k.const for k in known])
        told = self._described(op, _Told(made, size, dtype, const))
        self._terms[id(term)] = (told, term)
        return told

    def _let(self, op: str, attrs: tuple[Any, ...], operands: Sequence[_Told], rule: int | None) -> Any:
        row = CORE[op]
        args = [_int(a if s.kind == "int" else self.graph.atoms(a)) for a, s in zip(attrs, row.attrs, strict=True)]
        known = [operand.by for operand in operands]
        args += [egg.Call(_SPAN, "vec-of", known)] if row.arity is None else known
        name = f"t{len(self.actions)}"
        self.actions.append(egg.Let(_SPAN, name, egg.Call(_SPAN, op, args)))
        if rule is not None:
            self.actions.append(egg.Set(_SPAN, f"why_{op}", args, _int(rule)))
        return egg.Var(_SPAN, name)

    def _described(self, op: str, told: _Told) -> _Told:
        """The same; the analyses of an n-ary node are stated, which egglog's rules cannot compute over a vector."""
        if CORE[op].arity is None:
            self.actions.append(egg.Set(_SPAN, "size", [told.by], _int(told.size)))
            self.actions.append(egg.Set(_SPAN, "dtype", [told.by], _int(self.graph.atoms(told.dtype))))
            self.actions.append(egg.Expr_(_SPAN, egg.Call(_SPAN, "const" if told.const else "dynamic", [told.by])))
        return told


def _named(name: int) -> Any:
    """A class by its name."""
    return egg.Call(_SPAN, "Named", [_int(name)])
