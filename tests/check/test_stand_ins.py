"""Where checks cut programs: a value is compared over stand-ins that both read, and over fewer if it differs."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from eqsat.check.check import _Comparison, check
from eqsat.check.cuts import Compared, Cuts
from eqsat.check.inputs import Drawn
from eqsat.check.means import Means
from eqsat.check.part import Part, Settings
from eqsat.check.stand_ins import MARK, narrowed, number_of, stand_in
from eqsat.errors import CheckFailed, InputError
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, topological

X, Y = (ops.input(name, (4, 4), "float32") for name in "xy")


def chain(x: Term, depth: int) -> list[Term]:
    """Values that are each computed from the one before."""
    found = [ops.exp(x)]
    while len(found) < depth:
        found.append(ops.matmul(found[-1], x))
    return found


def inputs_of(over: Compared) -> list[set[str]]:
    """The names of the inputs of both programs, those of stand-ins with their numbers only."""
    names = [{t.attr("name") for t in topological([term]) if t.op == "input"} for term in over[:2]]
    return [{name.partition(" ")[0].replace(MARK, "%") for name in each} for each in names]


def test_a_stand_in_of_one_program_gives_way() -> None:
    """The source reads a value that the result computes once more from the one before."""
    *below, last, read = chain(X, 9)
    source = ops.neg(read)
    result = ops.neg(ops.matmul(ops.slice_(ops.concat([last, X]), [0], [4]), X))
    values = [Compared(v, v, v) for v in (*below, last)]
    values += [Compared(read, ops.abs_(read), ops.abs_(read)), Compared(source, result, result)]
    first, *further = Cuts(values).over(len(values) - 1)
    assert inputs_of(first) == [{"%7", "x"}, {"%7", "x"}]
    assert [{"%8"}, {"%7", "x"}] in map(inputs_of, further)


def test_what_other_members_of_a_group_read_may_stay() -> None:
    """One product of two pairs of arrays: the slice for the first pair reads nothing of the second."""
    *_, a, b = chain(X, 9)
    both = ops.matmul(ops.reshape(ops.concat([ops.neg(a), b]), (2, 4, 4)), ops.broadcast(X, (2, 4, 4)))
    result = ops.reshape(ops.slice_(both, [0], [1]), (4, 4))
    c = ops.neg(a)
    source = ops.matmul(c, X)
    values = [
        Compared(a, a, a),
        Compared(b, b, b),
        Compared(c, ops.exp(c), ops.exp(c)),
        Compared(source, result, result),
    ]
    first, *further = Cuts(values).over(3)
    assert inputs_of(first) == [{"%0", "x"}, {"%0", "%1", "x"}]
    assert [{"%2", "x"}, {"%0", "%1", "x"}] in map(inputs_of, further)


def test_an_input_that_only_the_source_reads_keeps_no_value_from_being_compared() -> None:
    """Times zero it says nothing; the value that the result does not hold gives way all the same."""
    n, x, y = (ops.input(name, (4,), "int32") for name in "nxy")
    below, read = ops.add(y, n), ops.mul(y, n)
    held = ops.mul(ops.add(below, x), read)
    source = ops.add(ops.neg(held), ops.mul(ops.input("z", (4,), "int32"), ops.full_like(0, x)))
    result = ops.neg(ops.mul(ops.add(below, x), read))
    values = [Compared(v, v, v) for v in (below, read)]
    values += [Compared(held, ops.abs_(held), ops.abs_(held)), Compared(source, result, result)]
    *_, last = Cuts(values).over(3)
    assert inputs_of(last) == [{"%0", "%1", "x", "z"}, {"%0", "%1", "x"}]


def test_a_group_gives_way_that_holds_what_the_source_computes_from_another_value() -> None:
    """Two products in a group, only one of which the source has as a value; its operands lie deep."""
    below = chain(X, 24)
    a, b = below[-2:]
    group = ops.matmul(ops.reshape(ops.concat([a, b]), (2, 4, 4)), ops.broadcast(Y, (2, 4, 4)))
    first, second = (ops.reshape(ops.slice_(group, [i], [i + 1]), (4, 4)) for i in range(2))
    known = ops.matmul(b, Y)
    source, result = ops.add(ops.matmul(a, Y), known), ops.add(first, second)
    values = [*(Compared(v, v, v) for v in below), Compared(known, second, second), Compared(source, result, result)]
    first, *further = Cuts(values).over(len(values) - 1)
    assert inputs_of(first) == [{"%22", "%23", "y"}, {"%22", "%23", "y"}]
    assert inputs_of(further[-1]) == [{"%22", "%24", "y"}, {"%24"}]  # hardly ever equal over these


def test_values_that_are_one_value_of_the_result_are_compared_over_what_makes_them_equal() -> None:
    """The sum and the mean of an array times zero are one term of the result: neither holds for random numbers."""
    zeros = ops.mul(ops.exp(X), ops.full_like(0.0, X))
    total = ops.reduce("sum", zeros, (0,))
    mean = ops.mul(total, ops.full_like(0.25, total))
    values = [Compared(v, v, v) for v in (zeros, total)] + [Compared(mean, total, total)]
    first, *further = Cuts(values).over(2)
    assert inputs_of(first) == [{"%1"}, {"%1"}]
    assert list(map(inputs_of, further)) == [[{"%0"}, {"%0"}], [{"x"}, {"x"}]]
    part = Part({"mean": further[-1]}, Settings("float32", Drawn(0), "same", Means(), False))
    assert part.run(1, 1000, 10.0).parts["full"] == 1


def test_a_value_is_compared_over_inputs_however_deep_what_differs_lies() -> None:
    """Random numbers for the values of a long chain are not what is computed from the first of them."""
    first, *above = chain(X, 40)
    top, other = above[-1], ops.neg(X)
    source, result = ops.add(top, ops.mul(first, Y)), ops.add(top, ops.mul(ops.abs_(other), Y))
    values = [*(Compared(v, v, v) for v in (first, other, *above)), Compared(source, result, result)]
    *_, last = map(inputs_of, Cuts(values).over(len(values) - 1))
    assert last == [{"%0", "%40", "y"}, {"%1", "%40", "y"}]
    assert [{"x", "y"}, {"x", "y"}] in map(inputs_of, Cuts(values).over(len(values) - 1))


def test_what_is_computed_from_a_stand_in_that_gives_way_may_stay() -> None:
    """A projection of an input, read once near the input and once more at a value that lies deep."""
    group = ops.matmul(Y, ops.concat([X, ops.neg(X)], 1))
    near, far = (ops.slice_(group, [0, i], [4, i + 4]) for i in (0, 4))
    below = [ops.exp(near)]
    while len(below) < 24:
        below.append(ops.matmul(below[-1], X))
    source = ops.mul(below[-1], ops.matmul(Y, ops.neg(X)))
    result = ops.mul(below[-1], far)
    values = [Compared(near, near, near), *(Compared(v, v, v) for v in below), Compared(source, result, result)]
    first, *_ = Cuts(values).over(len(values) - 1)
    assert inputs_of(first) == [{"%24", "x", "y"}, {"%24", "x", "y"}]


def square(n: int) -> dict[str, Compared]:
    """A value whose comparison takes longer for a larger n."""
    x = ops.input("x", (n, n), "float32")
    return {"y": Compared(ops.matmul(x, x), ops.neg(ops.matmul(x, x)), ops.neg(ops.matmul(x, x)))}


SQUARES = dict(zip("abcd", map(square, (64, 2048, 1024, 3072)), strict=True))


def comparing(seconds: float) -> _Comparison:
    """A comparison with so much time left."""
    return _Comparison([], {}, Settings("float32", Drawn(0), "same", Means(), exact=False), None, lambda: seconds)


@pytest.mark.parametrize(("seconds", "order"), [(100.0, "abcd"), (0.0, "acbd"), (-1.0, "acbd")])
def test_a_comparison_that_there_is_no_time_for_is_put_off_until_the_others_are_no_cheaper(
    seconds: float, order: str
) -> None:
    first, *further = SQUARES.values()
    found = list(comparing(seconds)._in_turn(first, further, 3))
    assert [values for values, _ in found] == [SQUARES[x] for x in order]
    assert all(part.values == values and part.number == 3 for values, part in found if part is not None)


def test_no_try_is_made_that_takes_longer_than_two_that_there_is_no_time_for() -> None:
    first, *_ = SQUARES.values()
    further = map(square, (2048, 3072, 4096))
    in_turn = comparing(-1.0)._in_turn(first, further, 3)
    assert [values["y"].source.shape for values, _ in (next(in_turn), next(in_turn))] == [(64, 64), (2048, 2048)]
    assert [values["y"].source.shape for values in further] == [(4096, 4096)]


def test_a_comparison_over_values_over_which_another_part_differed_comes_last() -> None:
    first, *further = SQUARES.values()
    comparison = comparing(100.0)
    part = comparison.waiting[comparison._form(first)] = Part(first, comparison.settings, 3)
    comparison.work = part.work(comparison.each)
    comparison.differed = {frozenset(part.inputs)}
    found = list(comparison._in_turn(first, further, 3))
    assert [values for values, _ in found] == [SQUARES[x] for x in "bcda"]
    assert found[-1][1] is part
    assert (comparison.waiting, comparison.work) == ({}, 0)
    comparison.differed = {frozenset([*part.inputs, Y])}
    assert [values for values, _ in comparison._in_turn(first, further, 3)] == [SQUARES[x] for x in "abcd"]


def test_a_comparison_over_what_only_the_source_reads_comes_last_however_dear_the_others_are() -> None:
    first, *further = SQUARES.values()
    sided = {"y": Compared(ops.add(X, Y), ops.neg(X), ops.neg(X))}
    found = list(comparing(-1.0)._in_turn(first, [sided, *further], 3))
    assert [values for values, _ in found] == [*(SQUARES[x] for x in "acbd"), sided]


def test_a_value_may_have_several_meanings() -> None:
    """One part of the program reads a constant as it is, the next one computes it from another."""
    w = ops.constant(np.arange(16, dtype=np.float32).reshape(4, 4))
    value, again = (ops.neg(ops.matmul(ops.exp(X), x)) for x in (w, ops.neg(ops.neg(w))))
    result, meaning = ops.abs_(value), ops.abs_(again)
    assert again is not value
    first = next(Cuts([Compared(value, value, value), Compared(result, result, meaning)]).over(1))
    assert first == (ops.abs_(stand_in(value, 0)),) * 3


def test_a_value_that_both_compute_alike_is_not_compared_over_fewer_stand_ins() -> None:
    below = chain(X, 4)
    same, other = ops.add(below[-1], below[-2]), ops.mul(below[-1], below[-2])
    values = [Compared(v, v, v) for v in below]
    assert len(list(Cuts([*values, Compared(same, same, same)]).over(4))) == 1
    assert len(list(Cuts([*values, Compared(same, other, other)]).over(4))) > 1


GROUP = stand_in(ops.input("group", (6, 4), "float32"), 3)


def parts_of(read: Callable[[Term], list[Term]]) -> list[tuple[int, ...]]:
    """The shapes of the inputs that are read in place of parts of a group."""
    roots = [ops.exp(value) for value in read(GROUP)]
    inputs = [term for term in topological(narrowed(roots)) if term.op == "input"]
    assert {number_of(term) for term in inputs} <= {3}
    return [] if inputs == [GROUP] else [term.shape for term in inputs]


@pytest.mark.parametrize(
    ("read", "shapes"),
    [
        (lambda g: [ops.slice_(g, [0], [2]), ops.slice_(g, [3], [6])], [(2, 4), (3, 4)]),
        (lambda g: [ops.slice_(g, [0], [3]), ops.slice_(g, [2], [6])], []),
        (lambda g: [ops.slice_(g, [0], [6], steps=[2]), ops.slice_(g, [1], [6], steps=[2])], []),
        (lambda g: [ops.slice_(g, [0], [2], [1]), ops.slice_(g, [3], [1], [1], [-1])], [(6, 2), (6, 2)]),
        (lambda g: [ops.slice_(g, [0], [2]), ops.exp(g)], []),
        (lambda g: [ops.transpose(g, (1, 0))], [(4, 6)]),
        (lambda g: [ops.transpose(g, (1, 0)), ops.exp(g)], []),
        (lambda g: [ops.transpose(g, (1, 0)), ops.reshape(g, (24,))], []),
        (lambda g: [ops.broadcast(g, (2, 6, 4))], []),
        (lambda g: [ops.slice_(ops.reshape(g, (3, 8)), [i], [i + 1]) for i in range(3)], [(1, 8)] * 3),
        (lambda g: [ops.slice_(ops.reshape(g, (3, 8)), [0], [1]), ops.slice_(g, [2], [6])], []),
        (lambda g: [a := ops.slice_(g, [0], [2]), ops.slice_(a, [0], [1])], [(2, 4)]),
        (lambda g: [ops.slice_(g, [0, 0], [3, 2]), ops.slice_(g, [3, 1], [6, 4])], [(3, 2), (3, 3)]),
        (lambda g: [ops.slice_(g, [2], [2]), ops.slice_(g, [1], [6])], [(0, 4), (5, 4)]),
    ],
)
def test_what_is_read_of_a_stand_in_without_common_elements_is_an_input_of_its_own(
    read: Callable[[Term], list[Term]], shapes: list[tuple[int, ...]]
) -> None:
    assert parts_of(read) == shapes


def test_over_parts_of_a_group_the_same_is_computed() -> None:
    group, other = np.arange(24, dtype="f").reshape(6, 4), ops.input("x", (2, 4), "float32")
    one, two = ops.slice_(GROUP, [1], [3]), ops.transpose(ops.slice_(GROUP, [4], [6]), (1, 0))
    root = ops.add(ops.mul(one, other), ops.reshape(two, (2, 4)))
    (over,) = narrowed([root])
    inputs = {t.attr("name"): t for t in topological([over]) if t.op == "input"}
    x, parts = np.ones((2, 4), "f"), (group[1:3], group[4:6].T.reshape(2, 4))
    given = {"x": x} | dict(zip([name for name in inputs if name != "x"], parts, strict=True))
    found = Program(tuple(inputs.values()), {"y": over}).run(given)["y"]
    assert np.array_equal(found, Program((GROUP, other), {"y": root}).run({GROUP.attr("name"): group, "x": x})["y"])


def test_outputs_that_read_unequal_parts_of_one_group_are_compared() -> None:
    """One by one, each reads a first part; together, these are two."""
    weights = [ops.input(f"w{n}", (n, 4), "float32") for n in (2, 3)]
    group = ops.matmul(ops.concat(weights), X)
    values = [ops.matmul(w, X) for w in weights]
    parts = [ops.slice_(group, [0], [2]), ops.slice_(group, [2], [5])]
    inputs = (*weights, X)
    source = Program(inputs, {str(i): ops.mul(c, ops.add(c, c)) for i, c in enumerate(values)})
    result = Program(inputs, {str(i): ops.add(ops.mul(c, c), ops.mul(c, c)) for i, c in enumerate(parts)})
    cuts = list(zip(values, parts, strict=True))
    assert check(source, result, cuts=cuts).max_error < 1e-6
    wrong = Program(inputs, result.outputs | {"1": ops.mul(parts[1], parts[1])})
    with pytest.raises(CheckFailed):
        check(source, wrong, cuts=cuts)


@pytest.mark.parametrize("name", ["%0", "%1", "%x", "%0/0"])
def test_no_input_is_taken_for_a_stand_in(name: str) -> None:
    p = ops.input(name, (4, 6), "float32")
    v = ops.exp(p)
    with pytest.raises(CheckFailed):
        check(Program((p,), {"y": ops.mul(v, p)}), Program((p,), {"y": ops.mul(p, p)}), cuts=[(v, v)])
    e = ops.exp(ops.transpose(p, (1, 0)))
    doubled = ops.mul(e, ops.full_like(2.0, e))
    assert check(Program((p,), {"y": ops.add(e, e)}), Program((p,), {"y": doubled}), cuts=[(v, v)]).max_error < 1e-6


def test_no_input_has_the_name_of_a_stand_in() -> None:
    with pytest.raises(InputError, match="NUL"):
        ops.input(f"{MARK}0", (2,))


def test_many_slices_of_large_groups_are_told_apart_at_once() -> None:
    group = stand_in(ops.input("group", (1 << 40, 4), "float32"), 3)
    step = 1 << 28
    slices = [ops.slice_(group, [i * step], [(i + 1) * step]) for i in range(1 << 12)]
    began = time.process_time()
    assert len(narrowed([ops.concat(slices)])[0].args) == len(slices)
    assert time.process_time() - began < 5.0


def test_equal_cells_are_compared_once_though_one_reads_a_group() -> None:
    """The first reads two values, the second two slices of one."""

    def cell(a: Term, b: Term) -> Term:
        return ops.matmul(ops.add(a, b), ops.exp(b))

    def in_a_group(a: Term, b: Term) -> Term:
        both = ops.matmul(ops.reshape(ops.concat([a, b]), (2, 4, 4)), ops.broadcast(X, (2, 4, 4)))
        return ops.neg(both)

    a, b = ops.exp(X), ops.exp(Y)
    first = cell(a, b)
    c, d = ops.neg(ops.matmul(a, X)), ops.neg(ops.matmul(b, X))
    group = in_a_group(a, b)
    parts = [ops.reshape(ops.slice_(group, [i], [i + 1]), (4, 4)) for i in range(2)]

    def otherwise(a: Term, b: Term) -> Term:
        return ops.add(ops.matmul(a, ops.exp(b)), ops.matmul(b, ops.exp(b)))

    inside = [Compared(a, a, a), Compared(b, b, b)]
    inside += [Compared(first, x := otherwise(a, b), x)]
    inside += [Compared(v, w, w) for v, w in zip((c, d), parts, strict=True)]
    output = Compared(cell(c, d), x := otherwise(*parts), x)
    settings = Settings("float32", Drawn(0), "same", Means(), exact=True)
    comparison = _Comparison(inside, {"y": output}, settings, None, lambda: 10.0)
    counts = comparison.run().parts
    assert (counts["same"], counts["full"]) == (2, 4)
    assert len(comparison.known) == 3, "the cells, and each member of the group"
