"""Rules that `eqsat rules discover` found missing: what is larger, smaller or signed already, and functions undone.

Those of `RULES` always save work. `PROVING` holds those that only bring two forms together.
"""

from __future__ import annotations

from eqsat.language.equation import rules
from eqsat.language.rule import Numerics, Rule

_ENDS = "discovered: --operators maximum,minimum,max,min,relu,neg,abs --size 2"
_POWERS = "discovered: --operators sub,div,sqrt,rsqrt,reciprocal,log,exp,mul --size 2"
_SUMS = "discovered: --operators sum,max,add,sub,mul,neg,mul_column,sub_column,div_column --size 2"

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

_MEETING: tuple[tuple[str, str, Numerics, str], ...] = (
    ("maximum-with-smaller", "maximum(a, minimum(a, b)) == a", "range-changing", "what is at most a is no larger"),
    ("minimum-with-larger", "minimum(a, maximum(a, b)) == a", "range-changing", "what is at least a is no smaller"),
    ("minimum-with-abs", "minimum(a, abs(a)) == a", "exact", "an absolute value is no smaller"),
    ("maximum-with-abs", "maximum(a, abs(a)) == abs(a)", "reassociating", "an absolute value is no smaller"),
    ("minimum-with-relu", "minimum(a, relu(a)) == a", "exact", "relu only makes larger"),
    ("maximum-with-relu", "maximum(a, relu(a)) == relu(a)", "exact", "relu only makes larger"),
    (
        "relu-of-either-operand",
        "maximum(a, relu(b)) == maximum(b, relu(a))",
        "reassociating",
        "the largest of three, one of which is zero",
    ),
    ("negated-abs", "-abs(a) == minimum(a, -a)", "reassociating", "of a value and its negation the smaller"),
)

RULES: tuple[Rule, ...] = tuple(
    row
    for name, text, numerics, source, why in _SAVING
    for row in rules(name, text, numerics=numerics, source=source, why=why)
)

PROVING: tuple[Rule, ...] = tuple(
    row for name, text, numerics, why in _MEETING for row in rules(name, text, numerics=numerics, source=_ENDS, why=why)
)
