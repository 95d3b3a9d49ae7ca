"""Rules of XLA's algebraic simplifier on elements, as written down by TensorRight (Arora et al., POPL 2025;
`rules/xla`).

TensorRight states most of them for reals and integers; here some use one of these, some both. Its constants of unknown
value are inputs here.
"""

from __future__ import annotations

from .notation import Equation, table

_ARITHMETIC = """
sum of constants | a=3x5 c=() d=()
  (a + c) + d
  == a + (c + d)
sum of integer constants | a=int32:3x5 c=int32:() d=int32:()
  (a + c) + d
  == a + (c + d)
sum with zero | a=3x5
  a + 0.0
  == a
sum with zero on the left | a=int64:3x5
  0 + a
  == a
sum of shared factors | a=3x5 b=3x5 c=3x5
  a * c + b * c
  == (a + b) * c
sum of shared integer factors | a=int32:3x5 b=int32:3x5 c=int32:3x5
  a * c + b * c
  == (a + b) * c
sum with a negation | a=3x5 b=3x5
  a + -b
  == a - b
sum with a negated integer | a=int32:3x5 b=int32:3x5
  a + -b
  == a - b
sum of a negation and a value | a=3x5 b=3x5
  -a + b
  == b - a
difference with itself | a=3x5
  a - a
  == a * 0.0
difference of integers with themselves | a=int32:3x5
  a - a
  == a * 0
difference with zero | a=3x5
  a - 0.0
  == a
difference with a constant | a=3x5 c=()
  a - c
  == a + -c
difference as a sum, integers | a=int64:3x5 b=int64:3x5
  a - b
  == a + -b
difference of constants | a=3x5 c=() d=()
  (a - c) - d
  == a - (c + d)
difference from a constant | a=3x5 c=() d=()
  (c - a) + d
  == (c + d) - a
negation twice | a=3x5
  -(-a)
  == a
negation twice, integers | a=int32:3x5
  -(-a)
  == a
negated difference | a=3x5 b=3x5
  -(a - b)
  == b - a
product with one | a=3x5
  a * 1.0
  == a
product with one, integers | a=int32:3x5
  1 * a
  == a
product with zero | a=int32:3x5
  a * 0
  == a - a
product with minus one | a=3x5
  a * -1.0
  == -a
product of constants | a=3x5 c=() d=()
  (a * c) * d
  == a * (c * d)
product of constants, integers | a=int32:3x5 c=int32:() d=int32:()
  (a * c) * d
  == a * (c * d)
product of two with constants | a=3x5 b=3x5 c=() d=()
  (a * c) * (b * d)
  == (a * b) * (c * d)
product with a broadcast | a=3x5 b=3 c=()
  (a * c) * Expand(Unsqueeze(b, [1]), [3, 5])
  == Expand(Unsqueeze(b * c, [1]), [3, 5]) * a
product of absolute values | a=3x5
  Abs(a) * Abs(a)
  == a * a
product of absolute integers | a=int32:3x5
  Abs(a) * Abs(a)
  == a * a
product of negations | a=3x5 b=3x5
  -a * -b
  == a * b
product of exponentials | a=3x5 b=3x5
  Exp(a) * Exp(b)
  == Exp(a + b)
product with a reciprocal root | a=3x5 b=3x5
  a / Sqrt(b)
  == a * (1.0 / Sqrt(b))
product of a root with itself | a=3x5
  (1.0 / Sqrt(a)) * (1.0 / Sqrt(a))
  == 1.0 / a
quotient by one | a=3x5
  a / 1.0
  == a
quotient by one, integers | a=int32:3x5
  a / 1
  == a
quotient by minus one, integers | a=int32:3x5
  a / -1
  == -a
quotient by a constant | a=3x5 c=()
  a / c
  == a * (1.0 / c)
quotient of quotients | a=3x5 b=3x5 c=3x5 d=3x5
  (a / b) / (c / d)
  == (a * d) / (b * c)
quotient by a quotient | a=3x5 b=3x5 c=3x5
  a / (b / c)
  == (a * c) / b
quotient of a quotient | a=3x5 b=3x5 c=3x5
  (a / b) / c
  == a / (b * c)
quotient by itself | a=3x5
  a / a
  == a * 0.0 + 1.0
quotient of integers by themselves | a=int32:3x5
  a / a
  == a * 0 + 1
quotient by an exponential | a=3x5 b=3x5
  a / Exp(b)
  == a * Exp(-b)
quotient by a power | a=3x5 b=3x5 c=3x5
  a / Pow(b, c)
  == a * Pow(b, -c)
quotient of exponentials | a=3x5 b=3x5
  Exp(a) / Exp(b)
  == Exp(a - b)
quotient by a root | a=3x5 b=3x5
  a / Sqrt(b)
  == a * Reciprocal(Sqrt(b))
remainder of a remainder | a=int32:3x5 b=int32:3x5
  Mod(Mod(a, b, fmod=1), b, fmod=1)
  == Mod(a, b, fmod=1)
floored remainder of a remainder | a=int32:3x5 b=int32:3x5
  Mod(Mod(a, b), b)
  == Mod(a, b)
remainder by one | a=int32:3x5
  Mod(a, 1)
  == a * 0
remainder by one, truncated | a=int64:3x5
  Mod(a, 1, fmod=1)
  == a - a
remainder of an iota | a=int64:5
  a + Mod(Range(0, 5, 1), 7)
  == a + Range(0, 5, 1)
remainder of a long iota | a=int64:7
  a + Mod(Range(0, 7, 1), 7)
  == a + Range(0, 7, 1)
remainder of an iota and a constant | a=int64:7
  a + Mod(Range(0, 7, 1) + 3, 3)
  == a + Mod(Range(0, 7, 1), 3)
remainder of an iota and a constant, truncated | a=int64:7
  a + Mod(Range(0, 7, 1) + 5, 5, fmod=1)
  == a + Mod(Range(0, 7, 1), 5, fmod=1)
floored remainder of a sum | a=int32:3x5 c=int32:3x5
  Mod(a + c, c)
  == Mod(a, c)
floored remainder of a sum with a constant | a=int32:3x5
  Mod(a + 7, 7)
  == Mod(a, 7)
floored remainder of a product and a sum | a=int32:3x5 b=int32:3x5 c=int32:3x5
  Mod(a * c + b, c)
  == Mod(b, c)
remainder with itself | a=int32:3x5
  Mod(a, a)
  == a - a
remainder of a remainder of a sum | a=int64:3x5 b=int64:3x5 c=int64:3x5
  Mod(Mod(a, c) + b, c)
  == Mod(a + b, c)
dividend from quotient and remainder | a=int32:3x5 b=int32:3x5
  (a / b) * b + Mod(a, b, fmod=1)
  == a
truncated remainder of a negation | a=int32:3x5 b=int32:3x5
  Mod(-a, b, fmod=1)
  == -Mod(a, b, fmod=1)
truncated remainder by a negation | a=int32:3x5 b=int32:3x5
  Mod(a, -b, fmod=1)
  == Mod(a, b, fmod=1)
quotient of negations, integers | a=int32:3x5 b=int32:3x5
  -a / -b
  == a / b
quotient of a negation, integers | a=int32:3x5 b=int32:3x5
  -a / b
  == -(a / b)
quotient of a product, integers | a=int32:3x5 b=int32:3x5
  (a * b) / b
  == a
power zero | a=3x5
  Pow(a, 0.0)
  == a * 0.0 + 1.0
power one | a=3x5
  Pow(a, 1.0)
  == a
power two | a=3x5
  Pow(a, 2.0)
  == a * a
power three | a=3x5
  Pow(a, 3.0)
  == a * a * a
power two, integers | a=int32:3x5
  Pow(a, 2)
  == a * a
power one half | a=3x5
  Pow(a, 0.5)
  == Sqrt(a)
power minus one | a=3x5
  Pow(a, -1.0)
  == 1.0 / a
power of an exponential | a=3x5 b=3x5
  Pow(Exp(a), b)
  == Exp(a * b)
power of a power | a=3x5
  Pow(Pow(a, 2.0), 3.0)
  == Pow(a, 6.0)
power of a sum of exponents | a=3x5 b=3x5 c=3x5
  Pow(Exp(a), b) * Pow(Exp(a), c)
  == Pow(Exp(a), b + c)
logarithm of an exponential | a=3x5
  Log(Exp(a))
  == a
exponential of a logarithm | a=3x5 b=3x5
  Exp(Log(a) + b)
  == a * Exp(b)
logarithm of a product of exponentials | a=3x5 b=3x5
  Log(Exp(a) * Exp(b))
  == a + b
logarithm of a power of an exponential | a=3x5 b=3x5
  Log(Pow(Exp(a), b))
  == a * b
root of a product with itself | a=3x5
  Sqrt(a * a)
  == Abs(a)
a root squared | a=3x5
  Sqrt(a) * Sqrt(a)
  == a
reciprocal of a reciprocal root | a=3x5
  1.0 / (1.0 / Sqrt(a))
  == Sqrt(a)
absolute value twice | a=3x5
  Abs(Abs(a))
  == Abs(a)
absolute value of a negation | a=3x5
  Abs(-a)
  == Abs(a)
absolute value of a square | a=3x5
  Abs(a * a)
  == a * a
absolute value of an exponential | a=3x5
  Abs(Exp(a))
  == Exp(a)
sign times absolute value | a=3x5
  Sign(a) * Abs(a)
  == a
sign times absolute value, integers | a=int32:3x5
  Sign(a) * Abs(a)
  == a
sign of a sign | a=3x5
  Sign(Sign(a))
  == Sign(a)
sign of a negation | a=3x5
  Sign(-a)
  == -Sign(a)
sign of an exponential | a=3x5
  Sign(Exp(a))
  == a * 0.0 + 1.0
a value times its sign | a=3x5
  a * Sign(a)
  == Abs(a)
floor of a floor | a=3x5
  Floor(Floor(a))
  == Floor(a)
ceiling as a floor | a=3x5
  Ceil(a)
  == -Floor(-a)
ceiling of a floor | a=3x5
  Ceil(Floor(a))
  == Floor(a)
rounding of a floor | a=3x5
  Round(Floor(a))
  == Floor(a)
floor of a sum with a whole number | a=3x5
  Floor(a + 3.0)
  == Floor(a) + 3.0
cosine of a negation | a=3x5
  Cos(-a)
  == Cos(a)
sine of a negation | a=3x5
  Sin(-a)
  == -Sin(a)
tanh of a negation | a=3x5
  Tanh(-a)
  == -Tanh(a)
logistic as a quotient | a=3x5
  Sigmoid(a)
  == 1.0 / (1.0 + Exp(-a))
logistic of a negation | a=3x5
  Sigmoid(-a)
  == 1.0 - Sigmoid(a)
logistic by tanh | a=3x5
  Sigmoid(a)
  == 0.5 + 0.5 * Tanh(a * 0.5)
tanh by the logistic | a=3x5
  Tanh(a)
  == 2.0 * Sigmoid(2.0 * a) - 1.0
"""

_LOGIC = """
maximum with minus infinity | a=3x5
  Max(a, -1e999)
  == a
minimum with infinity | a=3x5
  Min(a, 1e999)
  == a
maximum with the least integer | a=int32:3x5
  Max(a, -2147483648)
  == a
minimum with the largest integer | a=int32:3x5
  Min(a, 2147483647)
  == a
maximum of maxima | a=3x5 b=3x5
  Max(Max(a, b), b)
  == Max(a, b)
maximum of a minimum | a=3x5 b=3x5
  Max(Min(a, b), b)
  == b
maximum of itself | a=3x5
  Max(a, a)
  == a
maximum of constants | a=3x5
  Max(Max(a, 3.0), 5.0)
  == Max(a, 5.0)
minimum of integers | a=int32:3x5
  Min(Min(a, 3), 5)
  == Min(a, 3)
maximum of negations | a=3x5 b=3x5
  Max(-a, -b)
  == -Min(a, b)
maximum of sums | a=3x5 b=3x5 c=3x5
  Max(a + c, b + c)
  == Max(a, b) + c
maximum of integer sums | a=int32:3x5 b=int32:3x5 c=int32:3x5
  Max(a - c, b - c)
  == Max(a, b) - c
maximum of exponentials | a=3x5 b=3x5
  Max(Exp(a), Exp(b))
  == Exp(Max(a, b))
minimum of exponentials | a=3x5 b=3x5
  Min(Exp(a), Exp(b))
  == Exp(Min(a, b))
maximum of logistics | a=3x5 b=3x5
  Max(Sigmoid(a), Sigmoid(b))
  == Sigmoid(Max(a, b))
maximum distributes over minimum | a=3x5 b=3x5 c=3x5
  Max(a, Min(b, c))
  == Min(Max(a, b), Max(a, c))
maximum of scaled values | a=3x5 b=3x5
  Max(a * 2.0, b * 2.0)
  == 2.0 * Max(a, b)
maximum of products with an exponential | a=3x5 b=3x5 c=3x5
  Max(a * Exp(c), b * Exp(c))
  == Max(a, b) * Exp(c)
maximum of the exponential and zero | a=3x5
  Max(Exp(a), 0.0)
  == Exp(a)
maximum of an absolute value and zero | a=3x5
  Relu(Abs(a))
  == Abs(a)
maximum with a negation | a=3x5
  Max(a, -a)
  == Abs(a)
clamp of a clamp | a=3x5 c=3x5 d=3x5
  Min(Max(Min(Max(a, c), d), c), d)
  == Min(Max(a, c), d)
clamp of a clamp with scalar limits | a=3x5 c=() d=()
  Clip(Clip(a, c, d), c, d)
  == Clip(a, c, d)
clamp as minimum of maximum | a=3x5 c=() d=()
  Min(d, Max(a, c))
  == Clip(a, c, d)
clamp of integers as minimum of maximum | a=int32:3x5 c=int32:() d=int32:()
  Min(d, Max(a, c))
  == Clip(a, c, d)
clamp as maximum of minimum | a=3x5
  Max(-3.0, Min(a, 5.0))
  == Clip(a, -3.0, 5.0)
clamp of integers as maximum of minimum | a=int32:3x5
  Max(-3, Min(a, 5))
  == Clip(a, -3, 5)
greater than itself | a=3x5
  a > a
  == Equal(a, a + 1.0)
less than itself | a=int32:3x5
  a < a
  == Not(Equal(a, a))
unequal to itself | a=3x5
  ~Equal(a, a)
  == a > a
greater or equal to itself | a=3x5
  a >= a
  == Equal(a, a)
less or equal to itself, integers | a=int32:3x5
  a <= a
  == Equal(a, a)
greater by swapping | a=3x5 b=3x5
  a > b
  == b < a
greater or equal by swapping | a=int32:3x5 b=int32:3x5
  a >= b
  == b <= a
not less | a=3x5 b=3x5
  ~(a < b)
  == a >= b
not less or equal | a=int32:3x5 b=int32:3x5
  ~(a <= b)
  == a > b
not equal | a=3x5 b=3x5
  ~Equal(a, b)
  == Or(a < b, a > b)
less for integers by one | a=int32:3x5 b=int32:3x5
  a < b
  == a + 1 <= b
less than a whole number | a=int64:3x5
  a > 2
  == a >= 3
below zero and absolute | a=3x5
  Abs(a) < 0.0
  == a < a
negative exponential | a=3x5
  Exp(a) <= 0.0
  == a < a
compare differences | a=3x5 b=3x5
  a - b > 0.0
  == a > b
compare sums | a=3x5 b=3x5 c=3x5
  a + c < b + c
  == a < b
compare negations | a=3x5 b=3x5
  -a < -b
  == b < a
compare exponentials | a=3x5 b=3x5
  Exp(a) < Exp(b)
  == a < b
greater than the smaller | a=3x5 b=3x5
  Max(a, b) > b
  == a > b
greater than the first | a=3x5 b=3x5
  Max(a, b) > a
  == b > a
maximum at least its operand | a=3x5 b=3x5
  Max(a, b) >= b
  == Equal(a, a)
two bounds above | a=3x5 c=() d=()
  And(a < c, d > a)
  == a < Min(c, d)
two bounds above, integers | a=int32:3x5 c=int32:() d=int32:()
  And(a < c, d > a)
  == a < Min(c, d)
two bounds below | a=3x5 c=() d=()
  And(a > c, a > d)
  == a > Max(c, d)
either bound | a=3x5 c=3x5 d=3x5
  Or(a < c, a < d)
  == a < Max(c, d)
or with true | p=bool:3x5
  Or(p, Not(And(p, Not(p))))
  == Or(p, Not(p))
or with false | p=bool:3x5 a=3x5
  Or(p, a < a)
  == p
and with true | p=bool:3x5 a=3x5
  And(p, Equal(a, a))
  == p
and with false | p=bool:3x5 q=bool:3x5
  And(p, And(q, Not(q)))
  == And(q, Not(q))
not of not | p=bool:3x5
  Not(Not(p))
  == p
De Morgan | p=bool:3x5 q=bool:3x5
  Not(And(p, q))
  == Or(Not(p), Not(q))
De Morgan, or | p=bool:3x5 q=bool:3x5
  Not(Or(p, q))
  == And(Not(p), Not(q))
absorption | p=bool:3x5 q=bool:3x5
  Or(p, And(p, q))
  == p
distribution of and | p=bool:3x5 q=bool:3x5 r=bool:3x5
  And(p, Or(q, r))
  == Or(And(p, q), And(p, r))
exclusive or | p=bool:3x5 q=bool:3x5
  Xor(p, q)
  == Or(And(p, Not(q)), And(Not(p), q))
exclusive or with itself | p=bool:3x5
  Xor(p, p)
  == And(p, Not(p))
equality of booleans | p=bool:3x5 q=bool:3x5
  Equal(p, q)
  == Not(Xor(p, q))
select of equals | p=bool:3x5 a=3x5
  Where(p, a, a)
  == a
select of equal integers | p=bool:3x5 a=int32:3x5
  Where(p, a, a)
  == a
select by true | a=3x5 b=3x5
  Where(Equal(a, a), a, b)
  == a
select by false | a=int32:3x5 b=int32:3x5
  Where(a < a, a, b)
  == b
select by not | p=bool:3x5 a=3x5 b=3x5
  Where(Not(p), a, b)
  == Where(p, b, a)
select of booleans | p=bool:3x5 q=bool:3x5 r=bool:3x5
  Where(p, q, r)
  == Or(And(p, q), And(Not(p), r))
select of select | p=bool:3x5 a=3x5 b=3x5 c=3x5
  Where(p, Where(p, a, b), c)
  == Where(p, a, c)
select of sums | p=bool:3x5 a=3x5 b=3x5 c=3x5
  Where(p, a + c, b + c)
  == Where(p, a, b) + c
select of exponentials | p=bool:3x5 a=3x5 b=3x5
  Where(p, Exp(a), Exp(b))
  == Exp(Where(p, a, b))
select as maximum | a=3x5 b=3x5
  Where(a > b, a, b)
  == Max(a, b)
select as minimum of integers | a=int32:3x5 b=int32:3x5
  Where(a < b, a, b)
  == Min(a, b)
select as absolute value | a=3x5
  Where(a >= 0.0, a, -a)
  == Abs(a)
select of the equal | a=3x5 b=3x5
  Where(Equal(a, b), a, b)
  == b
cast there and back | a=int32:3x5
  Cast(Cast(a, to="int64"), to="int32")
  == a
cast of a boolean twice | p=bool:3x5
  Cast(Cast(p, to="float32"), to="bool")
  == p
cast of booleans as select | p=bool:3x5
  Cast(p, to="float32")
  == Where(p, 1.0, 0.0)
cast of a conjunction | p=bool:3x5 q=bool:3x5
  Cast(And(p, q), to="int32")
  == Cast(p, to="int32") * Cast(q, to="int32")
cast of integers to boolean | a=int32:3x5
  Cast(a, to="bool")
  == Not(Equal(a, 0))
"""

EQUATIONS: tuple[Equation, ...] = (
    *table("xla arithmetic", _ARITHMETIC),
    *table("xla logic", _LOGIC),
)
