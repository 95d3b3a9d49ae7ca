"""Rules that `eqsat rules discover` found missing: what is larger, smaller or signed already, and functions undone.

`RULES` always save work. Those in `PROVING` only bring two forms together.
"""

from __future__ import annotations

from eqsat.language.equation import Equation, Line, equation, lines, rules
from eqsat.language.rule import Numerics, Rule

_ENDS = "discovered: --operators maximum,minimum,max,min,relu,neg,abs --size 2"
_ENDS3 = "discovered: --operators maximum,minimum,relu,neg,abs --size 3"
_SIGNS2 = "discovered: --operators relu,abs,mul,matmul,neg,transpose,sub --size 2"
_REDUCED = "discovered: --operators sum,max,min,prod,add,mul,neg --size 2"
_OUTER = "discovered: --operators mul_row,add_row,matmul,transpose --size 2"
_PRODUCTS = "discovered: --operators matmul,add,mul,relu --size 3"
_POWERS = "discovered: --operators sub,div,sqrt,rsqrt,reciprocal,log,exp,mul --size 2"
_SUMS = "discovered: --operators sum,max,add,sub,mul,neg,mul_column,sub_column,div_column --size 2"
_DIFFERENCES = "discovered: --operators add,sub,mul,neg --size 3"
_EXTREMES = "discovered: --operators sum,max,add,mul,neg --size 3"
_POWERS3 = "discovered: --operators exp,log,sqrt,mul,div,reciprocal --size 3"

_ROUNDS: Numerics = "reassociating"
_RANGE: Numerics = "range-changing"
_FLOATING = "floating(dtype(a))"

_SAVING: tuple[Line, ...] = (
    ("maximum-of-same", "maximum(a, a) == a", "exact", _ENDS, "nothing is larger than itself"),
    ("minimum-of-same", "minimum(a, a) == a", "exact", _ENDS, "nothing is smaller than itself"),
    ("abs-of-abs", "abs(abs(a)) == abs(a)", "exact", _ENDS, "an absolute value has no sign to lose"),
    ("abs-of-negated", "abs(-a) == abs(a)", "exact", _ENDS, "the sign is lost anyway"),
    ("abs-of-relu", "abs(relu(a)) == relu(a)", _ROUNDS, _ENDS, "it is not negative; of -0 the sign is lost"),
    ("maximum-with-negated", "maximum(a, -a) == abs(a)", _ROUNDS, _ENDS, "one operator for two"),
    ("maximum-of-negated-and-same", "maximum(-a, a) == abs(a)", _ROUNDS, _ENDS, "one operator for two"),
    ("relu-of-exponential", "relu(exp(a)) == exp(a)", "exact", _POWERS, "an exponential is not negative"),
    ("exponential-of-log", "exp(log(a)) == a", _RANGE, _POWERS, "each undoes the other"),
    ("reciprocal-of-reciprocal", "reciprocal(reciprocal(a)) == a", _ROUNDS, _POWERS, "undoes itself, up to rounding"),
    ("reciprocal-of-quotient", "reciprocal(a / b) == b / a", _ROUNDS, _POWERS, "one division instead of two"),
    ("over-own-root", "a / sqrt(a) == sqrt(a)", _RANGE, _POWERS, "a division less"),
    ("add-difference", "a + (b - a) == b", _RANGE, _SUMS, "what is subtracted is added again"),
    ("difference-and-addend", "(b - a) + a == b", _RANGE, _SUMS, "what is subtracted is added again"),
    ("sum-of-negated", "sum(-a) == -sum(a)", _ROUNDS, _SUMS, "one sign for each row"),
)

_MEETING: tuple[Line, ...] = (
    ("maximum-with-smaller", "maximum(a, minimum(a, b)) == a", _RANGE, _ENDS, "what is at most a is no larger"),
    ("minimum-with-larger", "minimum(a, maximum(a, b)) == a", _RANGE, _ENDS, "what is at least a is no smaller"),
    ("minimum-with-abs", "minimum(a, abs(a)) == a", "exact", _ENDS, "an absolute value is no smaller"),
    ("maximum-with-abs", "maximum(a, abs(a)) == abs(a)", _ROUNDS, _ENDS, "an absolute value is no smaller"),
    ("minimum-with-relu", "minimum(a, relu(a)) == a", "exact", _ENDS, "relu only makes larger"),
    ("maximum-with-relu", "maximum(a, relu(a)) == relu(a)", "exact", _ENDS, "relu only makes larger"),
    ("relu-of-either-operand", "maximum(a, relu(b)) == maximum(b, relu(a))", _ROUNDS, _ENDS, "the largest of a, b, 0"),
    ("negated-abs", "-abs(a) == minimum(a, -a)", _ROUNDS, _ENDS, "of a value and its negation the smaller"),
    ("minimum-of-larger-abs", "minimum(a, maximum(b, abs(a))) == a", _RANGE, _ENDS3, "nothing is larger"),
    ("maximum-of-abs-of-smaller", "maximum(abs(a), minimum(a, b)) == abs(a)", _RANGE, _ENDS3, "nothing is less"),
    ("maximum-of-relu-of-smaller", "maximum(minimum(a, b), relu(a)) == relu(a)", _RANGE, _ENDS3, "it is no larger"),
    ("maximum-with-negated-relu", "maximum(a, -relu(a)) == relu(a)", _ROUNDS, _ENDS3, "one of both is not positive"),
    ("minimum-of-abs-and-relu", "minimum(abs(a), relu(a)) == relu(a)", _ROUNDS, _ENDS3, "relu is no larger"),
    ("abs-of-at-least-relu", "abs(maximum(a, relu(b))) == maximum(a, relu(b))", _ROUNDS, _ENDS3, "not negative"),
    ("square-of-relu", "relu(a) * relu(a) == a * relu(a)", _RANGE, _PRODUCTS, "one relu is enough"),
    ("relu-of-product-with-relu", "relu(a * relu(b)) == relu(a) * relu(b)", _RANGE, _PRODUCTS, "one factor has a sign"),
    ("relu-of-product-with-square", "relu(a * (a * b)) == a * (a * relu(b))", _RANGE, _PRODUCTS, "no sign in a square"),
    ("minimum-with-negated-relu", "minimum(a, -relu(a)) == minimum(a, -a)", "exact", _ENDS3, "relu changes neither"),
    (
        "minimum-with-abs-of-smaller",
        "minimum(a, abs(minimum(a, b))) == minimum(a, abs(b))",
        "exact",
        _ENDS3,
        "where a is the smaller one, it is the result either way",
    ),
    ("difference-of-same", "a - a == 0", _RANGE, _DIFFERENCES, "nothing is left"),
    ("log-of-one", "log(1) == 0", "exact", _POWERS3, "the power zero is one"),
    ("root-of-zero", "sqrt(0) == 0", "exact", _POWERS3, "zero is its own square"),
    ("abs-as-maximum", "abs(a) == maximum(a, -a)", _ROUNDS, _ENDS3, "laws of maxima apply to abs"),
    ("minimum-of-both-signs", "minimum(minimum(a, -a), 0) == minimum(a, -a)", "exact", _ENDS3, "it is not positive"),
    ("relu-without-itself", "relu(a) - a == relu(-a)", _RANGE, _SIGNS2, "what relu takes away"),
    ("reciprocal-of-negated", "reciprocal(-a) == -reciprocal(a)", "exact", _SUMS, "a sign moves out of a quotient"),
    ("rsqrt-as-reciprocal", "rsqrt(a) == reciprocal(sqrt(a))", _ROUNDS, _POWERS, "laws of quotients apply to it"),
    ("over-itself", "a * reciprocal(a) == 1", _RANGE, _POWERS3, "quotients cancel"),
    (
        "reciprocal-of-product",
        "reciprocal(a * b) == reciprocal(a) * reciprocal(b)",
        _ROUNDS,
        _POWERS3,
        "quotients of products are products of quotients",
    ),
    ("root-of-reciprocal", "sqrt(reciprocal(a)) == reciprocal(sqrt(a))", _RANGE, _POWERS3, "a quotient of roots"),
    ("rsqrt-as-quotient", "rsqrt(a) == reciprocal(a) * sqrt(a)", _RANGE, _POWERS3, "laws of roots apply to it"),
    ("square-of-root", "sqrt(a) * sqrt(a) == a", _RANGE, _POWERS3, "each undoes the other"),
    ("product-with-reciprocal-root", "a * rsqrt(a) == sqrt(a)", _RANGE, _POWERS3, "one root of the two cancels"),
    ("root-over-its-square", "reciprocal(a) * sqrt(a) == rsqrt(a)", _RANGE, _POWERS3, "one root of the two cancels"),
)

_SIGNED: tuple[Line, ...] = (
    ("relu-of-abs", "relu(abs(a)) == abs(a)", "exact", _ENDS, "an absolute value is not negative"),
    ("relu-of-square", "relu(a * a) == a * a", "exact", _ENDS, "a square is not negative"),
)
"""Of floats alone: the least integer has no negation, and products of integers wrap around."""

_DOUBLED: tuple[Line, ...] = (
    ("relu-of-doubled", "relu(a + a) == relu(a) + relu(a)", "exact", _PRODUCTS, "doubling keeps the sign"),
    (
        "relu-of-sum-with-relu",
        "relu(a + relu(a)) == relu(a) + relu(a)",
        "exact",
        _PRODUCTS,
        "of a positive value twice as much, else nothing",
    ),
    ("maximum-of-doubled", "max(a + a) == max(a) + max(a)", "exact", _EXTREMES, "doubling keeps the order"),
)
"""Of floats alone: integers that are doubled may wrap around."""

RELU = equation("relu-is-maximum", "relu(a) == maximum(a, 0)", source=_ENDS3)

SIGNS: dict[str, Equation] = {
    word: equation(f"{word}-of-negated", text, when=_FLOATING, source=_ENDS)
    for word, text in (
        ("maximum", "maximum(-a, -b) == -minimum(a, b)"),
        ("minimum", "minimum(-a, -b) == -maximum(a, b)"),
    )
}

LATTICE: dict[str, Equation] = {
    name: equation(name, text, source=_ENDS3)
    for name, text in (
        ("maximum-of-minima-of-same", "maximum(minimum(a, b), minimum(a, c)) == minimum(a, maximum(b, c))"),
        ("minimum-of-maxima-of-same", "minimum(maximum(a, b), maximum(a, c)) == maximum(a, minimum(b, c))"),
    )
}

_ELSEWHERE = (("-behind", "b, a", "c, a"), ("-around", "a, b", "c, a"), ("-between", "b, a", "a, c"))
"""Where the operand stands that both have in common, if not first. The zero that is met first decides of equal ones."""

_SHARED = "what both have in common is compared once"
_SHIFTED = "a shift of a row shifts its extreme"  # up to NaN: of -inf + inf beside inf + 1 only one side sees the first

RULES: tuple[Rule, ...] = (
    *lines(*_SAVING),
    *lines(*_SIGNED, when=_FLOATING),
    *(row for e in SIGNS.values() for row in e.orient("right", e.name, why="one sign instead of two")),
    *(row for e in LATTICE.values() for row in e.orient("right", e.name, why=_SHARED)),
    *(
        row
        for name, e in LATTICE.items()
        for where, left, right in _ELSEWHERE
        for row in rules(
            name + where,
            e.text.replace("a, b", left).replace("a, c", right),
            numerics=_ROUNDS,
            source=_ENDS3,
            why=_SHARED,
        )
    ),
)

PROVING: tuple[Rule, ...] = (
    *lines(*_MEETING),
    *lines(*_DOUBLED, when=_FLOATING),
    *lines(
        ("maximum-of-number", "max(v) == v", "exact", _EXTREMES, "there is nothing else to choose"),
        ("minimum-of-number", "min(v) == v", "exact", _EXTREMES, "there is nothing else to choose"),
        numbers="v",
    ),
    *lines(
        ("abs-of-square", "abs(a * a) == a * a", "exact", _SIGNS2, "a square is not negative"),
        ("negated-maximum-of-row", "-max(a) == min(-a)", "exact", _REDUCED, "of negated values the other extreme"),
        ("negated-minimum-of-row", "-min(a) == max(-a)", "exact", _REDUCED, "of negated values the other extreme"),
        when=_FLOATING,
    ),
    *lines(
        ("maximum-of-shifted", "max(a + b[L]) == max(a) + b[W]", "reassociating", _SUMS, _SHIFTED),
        ("minimum-of-shifted", "min(a + b[L]) == min(a) + b[W]", "reassociating", _SUMS, _SHIFTED),
        when='W = along(L, "r c -> r", r=size(self))',
    ),
    *rules(
        "product-over-one-column",
        'a.reshape(B, M, 1) @ b.reshape(B, 1, N) == a["b m 1 -> b m n"] * b["b 1 n -> b m n"]',
        numerics="reassociating",
        source=_OUTER,
        why="there is nothing to add up",
    ),
    *RELU.orient("right", "relu-as-maximum", why="laws of maxima apply to relu"),
    *RELU.orient("left", "maximum-as-relu", why="laws of relu apply to maxima"),
    *SIGNS["maximum"].orient("left", "negated-minimum", why="a sign moves into both operands"),
    *SIGNS["minimum"].orient("left", "negated-maximum", why="a sign moves into both operands"),
    *(
        row
        for word, e in zip(("minimum", "maximum"), LATTICE.values(), strict=True)
        for row in e.orient("left", f"distribute-{word}", why="each of two is compared by itself")
    ),
)
