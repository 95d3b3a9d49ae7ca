"""Rules that `eqsat rules discover` found missing: what is larger, smaller or signed already, and functions undone.

Those of `RULES` always save work. `PROVING` holds those that only bring two forms together.
"""

from __future__ import annotations

from eqsat.language.equation import Equation, equation, rules
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

_SAVING: tuple[tuple[str, str, Numerics, str, str], ...] = (
    ("maximum-of-same", "maximum(a, a) == a", "exact", _ENDS, "nothing is larger than itself"),
    ("minimum-of-same", "minimum(a, a) == a", "exact", _ENDS, "nothing is smaller than itself"),
    ("abs-of-abs", "abs(abs(a)) == abs(a)", "exact", _ENDS, "an absolute value has no sign to lose"),
    ("abs-of-negated", "abs(-a) == abs(a)", "exact", _ENDS, "the sign is lost anyway"),
    ("abs-of-relu", "abs(relu(a)) == relu(a)", "reassociating", _ENDS, "it is not negative; of -0 the sign is lost"),
    ("maximum-with-negated", "maximum(a, -a) == abs(a)", "reassociating", _ENDS, "one operator for two"),
    ("relu-of-exponential", "relu(exp(a)) == exp(a)", "exact", _POWERS, "an exponential is not negative"),
    ("exponential-of-log", "exp(log(a)) == a", "range-changing", _POWERS, "each undoes the other"),
    (
        "reciprocal-of-reciprocal",
        "reciprocal(reciprocal(a)) == a",
        "reassociating",
        _POWERS,
        "each undoes the other, up to rounding",
    ),
    (
        "reciprocal-of-quotient",
        "reciprocal(a / b) == b / a",
        "reassociating",
        _POWERS,
        "one division instead of two",
    ),
    ("over-own-root", "a / sqrt(a) == sqrt(a)", "range-changing", _POWERS, "a division less"),
    ("add-difference", "a + (b - a) == b", "range-changing", _SUMS, "what is subtracted is added again"),
    ("sum-of-negated", "sum(-a) == -sum(a)", "reassociating", _SUMS, "one sign for each row"),
)

_MEETING: tuple[tuple[str, str, Numerics, str, str], ...] = (
    (
        "maximum-with-smaller",
        "maximum(a, minimum(a, b)) == a",
        "range-changing",
        _ENDS,
        "what is at most a is no larger",
    ),
    (
        "minimum-with-larger",
        "minimum(a, maximum(a, b)) == a",
        "range-changing",
        _ENDS,
        "what is at least a is no smaller",
    ),
    ("minimum-with-abs", "minimum(a, abs(a)) == a", "exact", _ENDS, "an absolute value is no smaller"),
    ("maximum-with-abs", "maximum(a, abs(a)) == abs(a)", "reassociating", _ENDS, "an absolute value is no smaller"),
    ("minimum-with-relu", "minimum(a, relu(a)) == a", "exact", _ENDS, "relu only makes larger"),
    ("maximum-with-relu", "maximum(a, relu(a)) == relu(a)", "exact", _ENDS, "relu only makes larger"),
    (
        "relu-of-either-operand",
        "maximum(a, relu(b)) == maximum(b, relu(a))",
        "reassociating",
        _ENDS,
        "the largest of three, one of which is zero",
    ),
    ("negated-abs", "-abs(a) == minimum(a, -a)", "reassociating", _ENDS, "of a value and its negation the smaller"),
    ("minimum-of-larger-abs", "minimum(a, maximum(b, abs(a))) == a", "range-changing", _ENDS3, "nothing is larger"),
    (
        "maximum-of-abs-of-smaller",
        "maximum(abs(a), minimum(a, b)) == abs(a)",
        "range-changing",
        _ENDS3,
        "nothing is less",
    ),
    (
        "maximum-of-relu-of-smaller",
        "maximum(minimum(a, b), relu(a)) == relu(a)",
        "range-changing",
        _ENDS3,
        "it is no larger",
    ),
    (
        "maximum-with-negated-relu",
        "maximum(a, -relu(a)) == relu(a)",
        "reassociating",
        _ENDS3,
        "one of both is not positive",
    ),
    ("minimum-of-abs-and-relu", "minimum(abs(a), relu(a)) == relu(a)", "reassociating", _ENDS3, "relu is no larger"),
    (
        "abs-of-at-least-relu",
        "abs(maximum(a, relu(b))) == maximum(a, relu(b))",
        "reassociating",
        _ENDS3,
        "not negative",
    ),
    ("square-of-relu", "relu(a) * relu(a) == a * relu(a)", "range-changing", _PRODUCTS, "one relu is enough"),
    (
        "relu-of-product-with-relu",
        "relu(a * relu(b)) == relu(a) * relu(b)",
        "range-changing",
        _PRODUCTS,
        "a sign is one factor's",
    ),
    (
        "relu-of-product-with-square",
        "relu(a * (a * b)) == a * (a * relu(b))",
        "range-changing",
        _PRODUCTS,
        "a square has no sign",
    ),
    (
        "minimum-with-negated-relu",
        "minimum(a, -relu(a)) == minimum(a, -a)",
        "exact",
        _ENDS3,
        "relu changes neither",
    ),
    (
        "minimum-with-abs-of-smaller",
        "minimum(a, abs(minimum(a, b))) == minimum(a, abs(b))",
        "exact",
        _ENDS3,
        "where a is the smaller one, it is the result either way",
    ),
    ("difference-of-same", "a - a == 0", "range-changing", _DIFFERENCES, "nothing is left"),
    ("log-of-one", "log(1) == 0", "exact", _POWERS3, "the power zero is one"),
    ("root-of-zero", "sqrt(0) == 0", "exact", _POWERS3, "zero is its own square"),
    ("abs-as-maximum", "abs(a) == maximum(a, -a)", "reassociating", _ENDS3, "laws of maxima apply to abs"),
    ("minimum-of-both-signs", "minimum(minimum(a, -a), 0) == minimum(a, -a)", "exact", _ENDS3, "it is not positive"),
    ("relu-without-itself", "relu(a) - a == relu(-a)", "range-changing", _SIGNS2, "what relu takes away"),
    ("reciprocal-of-negated", "reciprocal(-a) == -reciprocal(a)", "exact", _SUMS, "a sign moves out of a quotient"),
    (
        "rsqrt-as-reciprocal",
        "rsqrt(a) == reciprocal(sqrt(a))",
        "reassociating",
        _POWERS,
        "laws of quotients apply to it",
    ),
    ("over-itself", "a * reciprocal(a) == 1", "range-changing", _POWERS3, "quotients cancel"),
    (
        "reciprocal-of-product",
        "reciprocal(a * b) == reciprocal(a) * reciprocal(b)",
        "reassociating",
        _POWERS3,
        "quotients of products are products of quotients",
    ),
    ("root-of-product", "sqrt(a * b) == sqrt(a) * sqrt(b)", "range-changing", _POWERS3, "a root of each factor"),
    (
        "root-of-reciprocal",
        "sqrt(reciprocal(a)) == reciprocal(sqrt(a))",
        "range-changing",
        _POWERS3,
        "a root of a quotient is one of roots",
    ),
    ("square-of-root", "sqrt(a) * sqrt(a) == a", "range-changing", _POWERS3, "each undoes the other"),
    (
        "product-with-reciprocal-root",
        "a * rsqrt(a) == sqrt(a)",
        "range-changing",
        _POWERS3,
        "one root of the two cancels",
    ),
    (
        "root-over-its-square",
        "reciprocal(a) * sqrt(a) == rsqrt(a)",
        "range-changing",
        _POWERS3,
        "one root of the two cancels",
    ),
)


_SIGNED: tuple[tuple[str, str, str], ...] = (
    ("relu-of-abs", "relu(abs(a)) == abs(a)", "an absolute value is not negative"),
    ("relu-of-square", "relu(a * a) == a * a", "a square is not negative"),
)
"""Of floats alone: the least integer has no negation, and products of integers wrap around."""

_DOUBLED: tuple[tuple[str, str, str, str], ...] = (
    ("relu-of-doubled", "relu(a + a) == relu(a) + relu(a)", _PRODUCTS, "doubling keeps the sign"),
    (
        "relu-of-sum-with-relu",
        "relu(a + relu(a)) == relu(a) + relu(a)",
        _PRODUCTS,
        "of a positive value twice as much, else nothing",
    ),
    ("maximum-of-doubled", "max(a + a) == max(a) + max(a)", _EXTREMES, "doubling keeps the order"),
)
"""Of floats alone: integers that are doubled may wrap around."""

RELU = equation("relu-is-maximum", "relu(a) == maximum(a, 0)", source=_ENDS3)

SIGNS: dict[str, Equation] = {
    word: equation(f"{word}-of-negated", text, when="floating(dtype(a))", source=_ENDS)
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

RULES: tuple[Rule, ...] = (
    *(
        row
        for name, text, numerics, source, why in _SAVING
        for row in rules(name, text, numerics=numerics, source=source, why=why)
    ),
    *(
        row
        for name, text, why in _SIGNED
        for row in rules(name, text, when="floating(dtype(a))", source=_ENDS, why=why)
    ),
    *(row for e in SIGNS.values() for row in e.orient("right", e.name, why="one sign instead of two")),
    *(
        row
        for e in LATTICE.values()
        for row in e.orient("right", e.name, why="what both have in common is compared once")
    ),
)

PROVING: tuple[Rule, ...] = (
    *(
        row
        for name, text, numerics, source, why in _MEETING
        for row in rules(name, text, numerics=numerics, source=source, why=why)
    ),
    *(
        row
        for name, text, source, why in _DOUBLED
        for row in rules(name, text, when="floating(dtype(a))", source=source, why=why)
    ),
    *(
        row
        for word, fn in (("maximum", "max"), ("minimum", "min"))
        for row in rules(
            f"{word}-of-number",
            f"{fn}(v) == v",
            numbers="v",
            source=_EXTREMES,
            why="there is nothing else to choose",
        )
    ),
    *rules(
        "abs-of-square",
        "abs(a * a) == a * a",
        when="floating(dtype(a))",
        source=_SIGNS2,
        why="a square is not negative",
    ),
    *(
        row
        for word, fn, other in (("maximum", "max", "min"), ("minimum", "min", "max"))
        for row in rules(
            f"negated-{word}-of-row",
            f"-{fn}(a) == {other}(-a)",
            when="floating(dtype(a))",
            source=_REDUCED,
            why="of negated values the other extreme",
        )
    ),
    *(
        row
        for word, fn in (("maximum", "max"), ("minimum", "min"))
        for row in rules(
            f"{word}-of-shifted",
            f"{fn}(a + b[L]) == {fn}(a) + b[W]",
            when='W = along(L, "r c -> r", r=size(self)); floating(dtype(a))',
            source=_SUMS,
            why="what is the same along a row is added to its extreme",
        )
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
