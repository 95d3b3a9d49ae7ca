"""Every rule of the language, compiled for egglog, joins its two sides where its guard holds, and nowhere else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest

from eqsat.base.numerics import ELEMENTWISE
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import ENode, Snapshot, needs_only_constants
from eqsat.evidence.instances import Instance, Unfit
from eqsat.language.rule import Fact, Lit, Pat, Pattern, Rule, Var, patterns
from eqsat.rules import ALL, EXPLORING

LANGUAGE = [row for row in [*ALL, *EXPLORING] if isinstance(row, Rule)]
DRAWS = 2000
TRIED = 5


def instances(row: Rule, holds: bool) -> Iterator[Instance]:
    """Instances without empty arrays on which a guard holds, or does not."""
    for seed in range(DRAWS):
        try:
            instance = Instance(row, random.Random(seed), ("float32", "float32", "int32", "bool")[seed % 4])
        except Unfit:
            continue
        if not instance.empty and all(map(instance.holds, row.when)) == holds:
            yield instance


def written(row: Rule, instance: Instance, *sides: Pattern) -> Snapshot:
    """Sides of a rule, each a root, as they are written: nothing is simplified as `make` does."""
    constants = {g.cls.name for g in row.when if isinstance(g, Fact) and g.name == "const"}
    nodes: list[ENode] = []
    classes: dict[tuple, int] = {}
    const: list[bool] = []

    def of(pattern: Pattern) -> int:
        if isinstance(pattern, Var):
            name = pattern.name
            op = "Const" if name in constants else "In"
            key = (op, (name, instance.bindings[name], instance.types[name]), ())
        else:
            key = (pattern.op, tuple(map(instance.number, pattern.attrs)), tuple(map(of, pattern.args)))
        if key not in classes:
            classes[key] = len(const)
            nodes.append(ENode(*key, len(const)))
            const.append(needs_only_constants(key[0], [const[a] for a in key[2]]))
        return classes[key]

    roots = list(map(of, sides))
    return Snapshot(nodes, len(const), const, roots)


def saturated(row: Rule, source: Snapshot) -> Snapshot:
    return Saturation(source, [row], Limits(seconds=10, iterations=4)).run()


@pytest.mark.parametrize("row", LANGUAGE, ids=lambda row: row.name)
def test_a_rule_fires_where_its_guard_holds(row: Rule):
    for instance in islice(instances(row, holds=True), TRIED):
        found = saturated(row, written(row, instance, row.left, row.right))
        if row.name in found.stats["matches"]:
            assert found.roots[0] == found.roots[1]
            return
    pytest.fail("it fires on none of the instances on which its guard holds")


GUARDED = [row for row in LANGUAGE if any(not isinstance(guard, Fact) for guard in row.when)]


@pytest.mark.parametrize("row", GUARDED, ids=lambda row: row.name)
def test_a_rule_does_not_fire_where_its_guard_fails(row: Rule):
    for instance in islice(instances(row, holds=False), 1):
        assert row.name not in saturated(row, written(row, instance, row.left)).stats["matches"]


COMMUTING = {fn for fn, row in ELEMENTWISE.items() if "commutative" in row.traits}


def commuted(pattern: Pattern, wanted: Pat) -> Pattern:
    """A pattern with the operands of one of its operators the other way round."""
    if not isinstance(pattern, Pat):
        return pattern
    args = tuple(commuted(a, wanted) for a in pattern.args)
    return Pat(pattern.op, pattern.attrs, args[::-1] if pattern is wanted else args)


def commuting(row: Rule) -> Iterator[Pattern]:
    """The left side of a rule with the operands of one operator that commutes the other way round, where that is
    another pattern."""
    for part in patterns(row.left):
        if isinstance(part, Pat) and part.op == "Bin" and isinstance(part.attrs[0], Lit):
            left = commuted(row.left, part)
            if part.attrs[0].value in COMMUTING and left != row.left:
                yield left


TURNED = [(row, left) for row in ALL if isinstance(row, Rule) for left in commuting(row)]


@pytest.mark.parametrize(("row", "left"), TURNED, ids=lambda x: x.name if isinstance(x, Rule) else "")
def test_operands_that_commute_may_stand_either_way_round(row: Rule, left: Pattern):
    instance = next(instances(row, holds=True))
    assert together(row, instance, left) or not together(row, instance, row.left)


def together(row: Rule, instance: Instance, left: Pattern) -> bool:
    """Whether all rules find that a side of a rule is its right side."""
    source = written(row, instance, left, row.right)
    found = Saturation(source, [r for r in ALL if isinstance(r, Rule)], Limits(seconds=10, iterations=12)).run()
    return found.roots[0] == found.roots[1]


def test_a_rule_by_which_two_meet_makes_nothing():
    row = next(row for row in ALL if isinstance(row, Rule) and row.meets)
    instance = next(instances(row, holds=True))
    alone = saturated(row, written(row, instance, row.left))
    assert len(alone.nodes) == len(written(row, instance, row.left).nodes)
