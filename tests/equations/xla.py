"""Rules of XLA's algebraic simplifier, as written down by TensorRight (Arora et al., POPL 2025; `rules/xla`).

TensorRight states most of them for reals and integers; here some are on one, some on both. Its constants of unknown
value are inputs here. A dynamic slice has starts that are known, or is a gather whose indices are inputs.
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

_MOVEMENT = """
sum of broadcasts | a=5 b=5
  Expand(a, [3, 5]) + Expand(b, [3, 5])
  == Expand(a + b, [3, 5])
product of broadcasts | a=3 b=3
  Expand(Unsqueeze(a, [1]), [3, 7]) * Expand(Unsqueeze(b, [1]), [3, 7])
  == Expand(Unsqueeze(a * b, [1]), [3, 7])
integer product of broadcasts | a=int32:5 b=int32:5
  Expand(a, [3, 5]) * Expand(b, [3, 5])
  == Expand(a * b, [3, 5])
transpose of a broadcast scalar | c=()
  t(Expand(c, [3, 5]))
  == Expand(c, [5, 3])
reverse of a broadcast scalar | c=()
  Slice(Expand(c, [3, 5]), [-1, -1], [-9, -9], [0, 1], [-1, -1])
  == Expand(c, [3, 5])
slice of a broadcast scalar | c=()
  Slice(Expand(c, [3, 7]), [0, 1], [2, 6], [0, 1], [1, 2])
  == Expand(c, [2, 3])
slice of a broadcast integer | c=int32:()
  Slice(Expand(c, [3, 7]), [0, 1], [2, 6], [0, 1], [1, 2])
  == Expand(c, [2, 3])
gather of a broadcast scalar | c=() i=int64:5
  Gather(Expand(c, [3, 7]), Mod(i, 7), axis=1)
  == Expand(c, [3, 5])
broadcast of an iota | a=int64:3x5
  a + Expand(Unsqueeze(Range(0, 3, 1), [1]), [3, 5])
  == a + Unsqueeze(Range(0, 3, 1), [1])
broadcast of a broadcast | a=5
  Expand(Expand(a, [3, 5]), [7, 3, 5])
  == Expand(a, [7, 3, 5])
broadcast of a broadcast, inner | a=3
  Expand(Expand(Unsqueeze(a, [1, 2]), [3, 5, 1]), [3, 5, 7])
  == Expand(Unsqueeze(a, [1, 2]), [3, 5, 7])
iota of one row | a=int64:1x5
  a + Reshape(Range(0, 1, 1), [1, 1])
  == a
concat of one | a=3x5
  cat(0, a)
  == a
concat to the right | a=3x5 b=3x7 c=3x3
  cat(1, a, cat(1, b, c))
  == cat(1, cat(1, a, b), c)
concat of three | a=3x5 b=3x7 c=3x3
  cat(1, a, b, c)
  == cat(1, a, cat(1, b, c))
concat of three rows, integers | a=int32:3x5 b=int32:7x5 c=int32:1x5
  cat(0, a, cat(0, b, c))
  == cat(0, a, b, c)
concat of adjacent slices | a=3x7
  cat(1, Slice(a, [1], [3], [1]), Slice(a, [3], [6], [1]))
  == Slice(a, [1], [6], [1])
concat of adjacent slices of rows | a=7x5
  cat(0, Slice(a, [0], [3], [0]), Slice(a, [3], [7], [0]))
  == a
concat of adjacent slices with other bounds | a=7x5
  cat(0, Slice(a, [0, 1], [3, 4], [0, 1]), Slice(a, [3, 1], [7, 4], [0, 1]))
  == Slice(a, [1], [4], [1])
concat of a broadcast scalar before | b=3x5 c=()
  cat(0, Expand(c, [2, 5]), b)
  == Pad(b, [2, 0, 0, 0], c)
concat of a broadcast scalar after | b=3x5 c=()
  cat(1, b, Expand(c, [3, 7]))
  == Pad(b, [0, 0, 0, 7], c)
concat of zeros before | b=3x5
  cat(0, Expand(0.0, [2, 5]), b)
  == Pad(b, [2, 0, 0, 0])
concat of twos after | b=int32:3x5
  cat(1, b, Expand(Cast(2.0, to="int32"), [3, 7]))
  == Pad(b, [0, 0, 0, 7], 2)
concat of broadcasts | a=5 b=7
  cat(1, Expand(a, [3, 5]), Expand(b, [3, 7]))
  == Expand(cat(0, a, b), [3, 12])
concat of equals is a broadcast | a=1x5
  cat(0, a, a, a)
  == Expand(a, [3, 5])
pad by nothing | a=3x5 c=()
  Pad(a, [0, 0, 0, 0], c)
  == a
pad of a pad | a=3x5
  Pad(Pad(a, [1, 0, 0, 2], 3.0), [0, 1, 2, 0], 3.0)
  == Pad(a, [1, 1, 2, 2], 3.0)
pad of a pad with an input | a=3x5 c=()
  Pad(Pad(a, [1, 0, 0, 2], c), [0, 1, 2, 0], c)
  == Pad(a, [1, 1, 2, 2], c)
pad of a broadcast | a=3 c=()
  Pad(Expand(Unsqueeze(a, [1]), [3, 5]), [1, 0, 2, 0], c)
  == Expand(Unsqueeze(Pad(a, [1, 2], c), [1]), [6, 5])
pad of a broadcast by zeros | a=3
  Pad(Expand(Unsqueeze(a, [1]), [3, 5]), [1, 0, 2, 0])
  == Expand(Unsqueeze(Pad(a, [1, 2]), [1]), [6, 5])
negative pad | a=7x5 c=()
  Pad(a, [-1, 1, -2, 2], c)
  == Slice(Pad(a, [0, 1, 0, 2], c), [1], [5], [0])
negative pad on both axes | a=7x5
  Pad(a, [-1, -2, -2, -1])
  == Slice(a, [1, 2], [5, 4], [0, 1])
pad of a broadcast scalar | c=()
  Pad(Expand(c, [3, 5]), [1, 1, 2, 2], c)
  == Expand(c, [6, 8])
pad of a transpose | a=3x5 c=()
  Pad(t(a), [1, 2, 0, 1], c)
  == t(Pad(a, [2, 1, 1, 0], c))
pad of a product with zero padding | a=3x5 b=3x5
  Pad(a * b, [1, 1, 1, 1])
  == Pad(a, [1, 1, 1, 1]) * Pad(b, [1, 1, 1, 1])
pad of a relu | a=3x5
  Pad(Relu(a), [1, 1, 1, 1])
  == Relu(Pad(a, [1, 1, 1, 1]))
pad of an exponential | a=3x5
  Pad(Exp(a), [1, 1, 1, 1], 1.0)
  == Exp(Pad(a, [1, 1, 1, 1]))
slice of everything | a=3x5
  Slice(a, [0, 0], [3, 5], [0, 1])
  == a
slice of a broadcast | a=5
  Slice(Expand(a, [7, 5]), [1, 1], [6, 4], [0, 1], [2, 1])
  == Expand(Slice(a, [1], [4], [0]), [3, 3])
slice of a broadcast axis | a=5
  Slice(Expand(a, [7, 5]), [1], [6], [0], [2])
  == Expand(a, [3, 5])
slice of a pad within | a=3x5 c=()
  Slice(Pad(a, [1, 2, 1, 2], c), [2, 3], [4, 6], [0, 1])
  == Slice(a, [1, 1], [3, 4], [0, 1])
slice of a pad to the original | a=3x5 c=()
  Slice(Pad(a, [1, 2, 1, 2], c), [1, 2], [4, 7], [0, 1])
  == a
slice of the padding | a=3x5 c=()
  Slice(Pad(a, [0, 2, 0, 3], c), [7], [10], [1])
  == Expand(c, [3, 3])
slice of the padding, integers | a=int32:3x5
  Slice(Pad(a, [0, 2, 0, 3], 5), [0], [2], [1])
  == Expand(Cast(5.0, to="int32"), [3, 2])
slice of a slice | a=7x5
  Slice(Slice(a, [1, 0], [6, 4], [0, 1]), [1, 1], [4, 3], [0, 1])
  == Slice(a, [2, 1], [5, 3], [0, 1])
slice of a strided slice | a=7x5
  Slice(Slice(a, [0], [7], [0], [2]), [1], [4], [0], [2])
  == Slice(a, [2], [7], [0], [4])
slice of a concat, second | a=3x5 b=3x7
  Slice(cat(1, a, b), [5], [12], [1])
  == b
slice of a concat, first | a=3x5 b=3x7
  Slice(cat(1, a, b), [1, 1], [3, 4], [0, 1])
  == Slice(a, [1, 1], [3, 4], [0, 1])
slice of a concat within the second | a=3x5 b=3x7
  Slice(cat(1, a, b), [6], [11], [1])
  == Slice(b, [1], [6], [1])
slice of a concat of three | a=3x5 b=3x7 c=3x3
  Slice(cat(1, a, b, c), [6], [14], [1])
  == Slice(cat(1, b, c), [1], [9], [1])
slice of a concat of integers | a=int64:3x5 b=int64:7x5
  Slice(cat(0, a, b), [3, 1], [10, 5], [0, 1], [2, 1])
  == Slice(b, [0, 1], [7, 5], [0, 1], [2, 1])
slice of a reverse | a=7x5
  Slice(Slice(a, [-1], [-9], [0], [-1]), [1], [4], [0])
  == Slice(Slice(a, [3], [6], [0]), [-1], [-9], [0], [-1])
slice of a strided reverse | a=7x5
  Slice(Slice(a, [-1], [-9], [0], [-1]), [1], [6], [0], [2])
  == Slice(Slice(a, [1], [6], [0], [2]), [-1], [-9], [0], [-1])
slice of a transpose | a=5x7
  Slice(t(a), [1, 0], [4, 3], [0, 1])
  == t(Slice(a, [0, 1], [3, 4], [0, 1]))
slice of a sum | a=3x5 b=3x5
  Slice(a + b, [1], [4], [1])
  == Slice(a, [1], [4], [1]) + Slice(b, [1], [4], [1])
slice of a select | p=bool:3x5 a=3x5 b=3x5
  Slice(Where(p, a, b), [1], [4], [1])
  == Where(Slice(p, [1], [4], [1]), Slice(a, [1], [4], [1]), Slice(b, [1], [4], [1]))
slice of a reshape | a=3x5x7
  Slice(Reshape(a, [3, 35]), [1], [3], [0])
  == Reshape(Slice(a, [1], [3], [0]), [2, 35])
slice of an iota | a=int64:3
  a + Slice(Range(0, 7, 1), [2], [5], [0])
  == a + Range(2, 5, 1)
reverse of one | a=1x5
  Slice(a, [-1], [-9], [0], [-1])
  == a
reverse twice | a=3x5
  Slice(Slice(a, [-1], [-9], [0], [-1]), [-1], [-9], [0], [-1])
  == a
reverse of other axes | a=3x5x7
  Slice(Slice(a, [-1, -1], [-9, -9], [0, 1], [-1, -1]), [-1, -1], [-9, -9], [1, 2], [-1, -1])
  == Slice(a, [-1, -1], [-9, -9], [0, 2], [-1, -1])
reverse of a sum with a constant | a=3x5 c=()
  Slice(a + c, [-1], [-9], [1], [-1])
  == Slice(a, [-1], [-9], [1], [-1]) + c
reverse of integers with a constant | a=int32:3x5 c=int32:()
  Slice(a * c, [-1], [-9], [1], [-1])
  == Slice(a, [-1], [-9], [1], [-1]) * c
reverse of a concat | a=3x5 b=3x7
  Slice(cat(1, a, b), [-1], [-19], [1], [-1])
  == cat(1, Slice(b, [-1], [-9], [1], [-1]), Slice(a, [-1], [-9], [1], [-1]))
transpose of a transpose | a=3x5x7
  Transpose(Transpose(a, perm=[1, 2, 0]), perm=[1, 2, 0])
  == Transpose(a, perm=[2, 0, 1])
transpose to itself | a=3x5x7
  Transpose(a, perm=[0, 1, 2])
  == a
transpose of a reshape | a=15x7
  Transpose(Reshape(a, [3, 5, 7]), perm=[2, 0, 1])
  == Reshape(t(a), [7, 3, 5])
reshape of a reshape | a=3x5x7
  Reshape(Reshape(a, [15, 7]), [105])
  == Reshape(a, [105])
reshape of a sum | a=3x5 b=3x5
  Reshape(a + b, [15])
  == Reshape(a, [15]) + Reshape(b, [15])
reshape of a broadcast | a=7
  Reshape(Expand(a, [3, 5, 7]), [15, 7])
  == Expand(a, [15, 7])
dynamic slice is a slice | a=7x5
  Gather(a, Range(2, 5, 1), axis=0)
  == Slice(a, [2], [5], [0])
dynamic slice of everything | a=3x5
  Gather(a, Range(0, 3, 1), axis=0)
  == a
dynamic slice of a broadcast | a=5 i=int64:3
  Gather(Expand(a, [7, 5]), Mod(i, 5), axis=1)
  == Expand(Gather(a, Mod(i, 5), axis=0), [7, 3])
dynamic slice of a transpose | a=5x7 i=int64:3
  Gather(t(a), Mod(i, 7), axis=0)
  == t(Gather(a, Mod(i, 7), axis=1))
dynamic slice of a sum | a=5x7 b=5x7 i=int64:3
  Gather(a + b, Mod(i, 5), axis=0)
  == Gather(a, Mod(i, 5), axis=0) + Gather(b, Mod(i, 5), axis=0)
dynamic slice of an exponential | a=5x7 i=int64:3
  Gather(Exp(a), Mod(i, 5), axis=0)
  == Exp(Gather(a, Mod(i, 5), axis=0))
dynamic slice of a dynamic slice | a=7x5 i=int64:5 j=int64:3
  Gather(Gather(a, Mod(i, 7), axis=0), Mod(j, 5), axis=0)
  == Gather(a, Gather(Mod(i, 7), Mod(j, 5), axis=0), axis=0)
dynamic slice of a concat of columns | a=5x3 b=5x7 i=int64:3
  Gather(cat(1, a, b), Mod(i, 5), axis=0)
  == cat(1, Gather(a, Mod(i, 5), axis=0), Gather(b, Mod(i, 5), axis=0))
update of zeros added | a=7x5 b=3x5
  a + cat(0, Expand(0.0, [2, 5]), b, Expand(0.0, [2, 5]))
  == cat(0, Slice(a, [0], [2], [0]), b + Slice(a, [2], [5], [0]), Slice(a, [5], [7], [0]))
update of a constant | a=3x5 c=()
  cat(0, Expand(c, [1, 5]), a, Expand(c, [2, 5]))
  == Pad(a, [1, 0, 2, 0], c)
update of everything | a=3x5 b=3x5
  cat(0, Slice(a, [0], [0], [0]), b)
  == b
update of an update | a=7x5 b=1x5
  cat(0, Slice(a, [0], [2], [0]), cat(0, Slice(Slice(a, [2], [5], [0]), [0], [1], [0]), b, Slice(Slice(a, [2], [5],
    [0]), [2], [3], [0])), Slice(a, [5], [7], [0]))
  == cat(0, Slice(a, [0], [3], [0]), b, Slice(a, [4], [7], [0]))
"""

_REDUCE = """
product of sums | a=3 b=5
  ReduceSum(a, [0], keepdims=0) * ReduceSum(b, [0], keepdims=0)
  == ReduceSum(Expand(Unsqueeze(a, [1]), [3, 5]) * Expand(b, [3, 5]), [0, 1], keepdims=0)
sum of joined sums | a=3x5 b=7x5
  ReduceSum(cat(0, ReduceSum(a, [0]), ReduceSum(b, [0])), [0], keepdims=0)
  == ReduceSum(cat(0, a, b), [0], keepdims=0)
constant times a sum | a=3x5 c=()
  c * ReduceSum(a, [1], keepdims=0)
  == ReduceSum(c * a, [1], keepdims=0)
integer constant times a sum | a=int32:3x5 c=int32:()
  c * ReduceSum(a, [1], keepdims=0)
  == ReduceSum(c * a, [1], keepdims=0)
sum of a transpose | a=3x5x7
  ReduceSum(Transpose(a, perm=[1, 0, 2]), [1], keepdims=0)
  == ReduceSum(a, [0], keepdims=0)
sum of a transpose, kept order | a=3x5x7
  ReduceSum(Transpose(a, perm=[2, 0, 1]), [1], keepdims=0)
  == t(ReduceSum(a, [0], keepdims=0))
sum of a sum | a=3x5x7
  ReduceSum(ReduceSum(a, [0], keepdims=0), [0], keepdims=0)
  == ReduceSum(a, [0, 1], keepdims=0)
maximum of a maximum | a=3x5x7
  ReduceMax(ReduceMax(a, [2], keepdims=0), [1], keepdims=0)
  == ReduceMax(a, [1, 2], keepdims=0)
minimum of a minimum, integers | a=int32:3x5x7
  ReduceMin(ReduceMin(a, [2], keepdims=0), [0], keepdims=0)
  == ReduceMin(a, [0, 2], keepdims=0)
product of a product | a=3x5x7
  ReduceProd(ReduceProd(a, [2], keepdims=0), [1], keepdims=0)
  == ReduceProd(a, [1, 2], keepdims=0)
mean of a mean | a=3x5x7
  ReduceMean(ReduceMean(a, [2], keepdims=0), [1], keepdims=0)
  == ReduceMean(a, [1, 2], keepdims=0)
sum of a batched matmul | a=3x5x7 b=3x7x5
  ReduceSum(a @ b, [0], keepdims=0)
  == Reshape(Transpose(a, perm=[1, 0, 2]), [5, 21]) @ Reshape(b, [21, 5])
sum over one | a=1x5
  ReduceSum(a, [0], keepdims=0)
  == Reshape(a, [5])
maximum over one | a=3x1x5
  ReduceMax(a, [1], keepdims=0)
  == Squeeze(a, [1])
sum of a broadcast | a=5
  ReduceSum(Expand(a, [3, 5]), [0], keepdims=0)
  == a * 3.0
sum of a broadcast of integers | a=int32:5
  ReduceSum(Expand(a, [7, 5]), [0], keepdims=0)
  == a * 7
maximum of a broadcast | a=5
  ReduceMax(Expand(a, [3, 5]), [0], keepdims=0)
  == a
sum of a reshape | a=3x5x7
  ReduceSum(Reshape(a, [3, 35]), [1], keepdims=0)
  == ReduceSum(a, [1, 2], keepdims=0)
sum of a reverse | a=3x5
  ReduceSum(Slice(a, [-1], [-9], [1], [-1]), [1], keepdims=0)
  == ReduceSum(a, [1], keepdims=0)
maximum of a reverse | a=3x5
  ReduceMax(Slice(a, [-1], [-9], [1], [-1]), [1], keepdims=0)
  == ReduceMax(a, [1], keepdims=0)
sum of a pad | a=3x5
  ReduceSum(Pad(a, [0, 1, 0, 2]), [1], keepdims=0)
  == ReduceSum(a, [1], keepdims=0)
sum of a padded constant | a=3x5 c=()
  ReduceSum(Pad(a, [0, 1, 0, 2], c), [1], keepdims=0)
  == ReduceSum(a, [1], keepdims=0) + c * 3.0
sum of sums | a=3x5 b=3x5
  ReduceSum(a, [1], keepdims=0) + ReduceSum(b, [1], keepdims=0)
  == ReduceSum(a + b, [1], keepdims=0)
sum of a negation | a=3x5
  ReduceSum(-a, [1], keepdims=0)
  == -ReduceSum(a, [1], keepdims=0)
maximum of a negation | a=3x5
  ReduceMax(-a, [1], keepdims=0)
  == -ReduceMin(a, [1], keepdims=0)
maximum of a shift | a=3x5 c=3x1
  ReduceMax(a + c, [1])
  == ReduceMax(a, [1]) + c
maximum of the exponential | a=3x5
  ReduceMax(Exp(a), [1], keepdims=0)
  == Exp(ReduceMax(a, [1], keepdims=0))
minimum of tanh | a=3x5
  ReduceMin(Tanh(a), [1], keepdims=0)
  == Tanh(ReduceMin(a, [1], keepdims=0))
maximum of a slice and the rest | a=3x7
  Max(ReduceMax(Slice(a, [0], [3], [1]), [1]), ReduceMax(Slice(a, [3], [7], [1]), [1]))
  == ReduceMax(a, [1])
product of a concat | a=3x5 b=3x3
  ReduceProd(cat(1, a, b), [1], keepdims=0)
  == ReduceProd(a, [1], keepdims=0) * ReduceProd(b, [1], keepdims=0)
sum of squares | a=3x5
  ReduceSumSquare(a, [1], keepdims=0)
  == ReduceSum(a * a, [1], keepdims=0)
norm | a=3x5
  ReduceL2(a, [1], keepdims=0)
  == Sqrt(ReduceSum(a * a, [1], keepdims=0))
absolute sum | a=3x5
  ReduceL1(a, [1], keepdims=0)
  == ReduceSum(Abs(a), [1], keepdims=0)
mean as a sum | a=3x5
  ReduceMean(a, [1], keepdims=0)
  == ReduceSum(a, [1], keepdims=0) / 5.0
log of a sum of exponentials | a=3x5
  ReduceLogSumExp(a, [1], keepdims=0)
  == Log(ReduceSum(Exp(a), [1], keepdims=0))
log of a sum of exponentials, shifted | a=3x5 c=3x1
  ReduceLogSumExp(a + c, [1])
  == ReduceLogSumExp(a, [1]) + c
log of a sum, by the maximum | a=3x5
  Log(ReduceSum(Exp(a), [1]))
  == Log(ReduceSum(Exp(a - ReduceMax(a, [1])), [1])) + ReduceMax(a, [1])
softmax of a shift | a=3x5 c=3x1
  Softmax(a + c, axis=1)
  == Softmax(a, axis=1)
softmax as a quotient | a=3x5
  Softmax(a, axis=1)
  == Exp(a) / ReduceSum(Exp(a), [1])
log of softmax | a=3x5
  LogSoftmax(a, axis=1)
  == a - Log(ReduceSum(Exp(a), [1]))
any as maximum of casts | p=bool:3x5 q=bool:3x5
  ReduceMax(Cast(Or(p, q), to="int32"), [1], keepdims=0)
  == Max(ReduceMax(Cast(p, to="int32"), [1], keepdims=0), ReduceMax(Cast(q, to="int32"), [1], keepdims=0))
sum of a select | p=bool:3x5 a=3x5
  ReduceSum(Where(p, a, a * 0.0), [1], keepdims=0)
  == ReduceSum(a * Cast(p, to="float32"), [1], keepdims=0)
position of the maximum, shifted | a=3x5 c=3x1
  ArgMax(a + c, axis=1, keepdims=0)
  == ArgMax(a, axis=1, keepdims=0)
position of the maximum of the negation | a=3x5
  ArgMax(-a, axis=1, keepdims=0)
  == ArgMin(a, axis=1, keepdims=0)
position of the maximum, scaled | a=3x5
  ArgMax(a * 2.0, axis=1, keepdims=0)
  == ArgMax(a, axis=1, keepdims=0)
"""

_DOT = """
dot of concats | x=3x5 y=3x7 c=5x7 d=7x7
  cat(1, x, y) @ cat(0, c, d)
  == ReduceSum(cat(0, Unsqueeze(x @ c, [0]), Unsqueeze(y @ d, [0])), [0], keepdims=0)
dot of a pad | x=3x5 y=7x5
  Pad(x, [0, 0, 0, 2]) @ y
  == x @ Slice(y, [0], [5], [0])
dot commutes | x=3x5 y=5x7
  x @ y
  == t(t(y) @ t(x))
batched dot commutes | x=3x5x7 y=3x7x5
  x @ y
  == Transpose(Transpose(y, perm=[0, 2, 1]) @ Transpose(x, perm=[0, 2, 1]), perm=[0, 2, 1])
dot without contraction | x=3x1 y=1x5
  x @ y
  == x * y
dot with a vector | x=3x5 y=5
  x @ y
  == ReduceSum(x * y, [1], keepdims=0)
batched dot with vectors | x=3x5x7 y=3x7
  Squeeze(x @ Unsqueeze(y, [2]), [2])
  == ReduceSum(x * Unsqueeze(y, [1]), [2], keepdims=0)
dot of vectors | x=5 y=5
  x @ y
  == ReduceSum(x * y, [0], keepdims=0)
integer dot distributes | x=int32:3x5 y=int32:5x7 z=int32:5x7
  MatMul(x, y + z)
  == MatMul(x, y) + MatMul(x, z)
integer dot associates | x=int32:3x5 y=int32:5x7 z=int32:7x3
  (x @ y) @ z
  == x @ (y @ z)
dot of a broadcast | x=3x5 c=()
  x @ Expand(c, [5, 7])
  == Expand(ReduceSum(x, [1]) * c, [3, 7])
dot of negations | x=3x5 y=5x7
  -x @ -y
  == x @ y
slice of a dot, rows | x=3x5 y=5x7
  Slice(x @ y, [1], [3], [0])
  == Slice(x, [1], [3], [0]) @ y
slice of a dot, columns | x=3x5 y=5x7
  Slice(x @ y, [1], [6], [1], [2])
  == x @ Slice(y, [1], [6], [1], [2])
sum of a dot, columns | x=3x5 y=5x7
  ReduceSum(x @ y, [1], keepdims=0)
  == x @ ReduceSum(y, [1], keepdims=0)
sum of a dot, rows | x=3x5 y=5x7
  ReduceSum(x @ y, [0], keepdims=0)
  == ReduceSum(x, [0], keepdims=0) @ y
reverse of a dot | x=3x5 y=5x7
  Slice(x, [-1], [-9], [1], [-1]) @ Slice(y, [-1], [-9], [0], [-1])
  == x @ y
gather of a dot | x=7x5 y=5x3 i=int64:3
  Gather(x @ y, Mod(i, 7), axis=0)
  == Gather(x, Mod(i, 7), axis=0) @ y
dot of a reshape | x=3x5x7 y=7x3
  Reshape(x, [15, 7]) @ y
  == Reshape(x @ y, [15, 3])
dot of a row scale | x=3x5 y=5x7 c=3x1
  (x * c) @ y
  == (x @ y) * c
dot of a column scale | x=3x5 y=5x7 c=7
  x @ (y * c)
  == (x @ y) * c
dot of a scale along k | x=3x5 y=5x7 c=5
  (x * c) @ y
  == x @ (y * Unsqueeze(c, [1]))
matmul of a transposed product | x=3x5 y=5x7
  Gemm(x, y)
  == x @ y
matmul with transposed operands | x=5x3 y=7x5
  Gemm(x, y, transA=1, transB=1)
  == t(x) @ t(y)
matmul with a bias | x=3x5 y=5x7 c=7
  Gemm(x, y, c, alpha=2.0, beta=3.0)
  == (x @ y) * 2.0 + c * 3.0
contraction by einsum | x=3x5x7 y=3x5x7
  Einsum(x, y, equation="bij,bkj->bik")
  == x @ Transpose(y, perm=[0, 2, 1])
"""

_CONV = """
convolution of a pad | x=1x3x5x7 w=5x3x3x3
  conv(Pad(x, [0, 0, 1, 2, 0, 0, 2, 1]), w, pad=0)
  == Conv(x, w, pads=[1, 2, 2, 1])
padded convolution of a pad | x=1x3x5x7 w=5x3x3x3
  conv(Pad(x, [0, 0, 1, 1, 0, 0, 1, 1]), w)
  == conv(x, w, pad=2)
convolution with a spread filter | x=1x3x5x7 w=5x3x2x2
  Conv(x, Reshape(Slice(Pad(Reshape(w, [5, 3, 2, 1, 2, 1]), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]), [0], [5], [0]),
    [5, 3, 4, 4]), pads=[0, 0, 1, 1])
  == Conv(x, w, dilations=[2, 2])
convolution is a dot | x=1x3x5x7 w=5x3x1x1
  conv(x, w, k=1)
  == Reshape(Reshape(w, [5, 3]) @ Reshape(x, [3, 35]), [1, 5, 5, 7])
convolution of a whole image is a dot | x=3x3x5x7 w=5x3x5x7
  Conv(x, w)
  == Reshape(Reshape(x, [3, 105]) @ t(Reshape(w, [5, 105])), [3, 5, 1, 1])
one-dimensional convolution is two-dimensional | x=1x3x7 w=5x3x3
  Conv(x, w, pads=[1, 1])
  == Squeeze(Conv(Unsqueeze(x, [2]), Unsqueeze(w, [2]), pads=[0, 1, 0, 1]), [2])
convolution of transposed axes | x=1x3x5x7 w=5x3x3x3
  Transpose(conv(x, w), perm=[0, 1, 3, 2])
  == conv(Transpose(x, perm=[0, 1, 3, 2]), Transpose(w, perm=[0, 1, 3, 2]))
convolution of reversed axes | x=1x3x5x7 w=5x3x3x3
  conv(Slice(x, [-1], [-9], [3], [-1]), Slice(w, [-1], [-9], [3], [-1]))
  == Slice(conv(x, w), [-1], [-9], [3], [-1])
convolution of reversed channels | x=1x3x5x7 w=5x3x3x3
  conv(Slice(x, [-1], [-9], [1], [-1]), Slice(w, [-1], [-9], [1], [-1]))
  == conv(x, w)
slice of a batch | x=3x3x5x7 w=5x3x3x3
  Slice(conv(x, w), [1], [3], [0])
  == conv(Slice(x, [1], [3], [0]), w)
slice of output channels | x=1x3x5x7 w=5x3x3x3
  Slice(conv(x, w), [1], [4], [1])
  == conv(x, Slice(w, [1], [4], [0]))
a stride is a slice | x=1x3x5x7 w=5x3x3x3
  conv(x, w, stride=2, pad=0)
  == Slice(conv(x, w, pad=0), [0, 0], [3, 5], [2, 3], [2, 2])
groups are a concat | x=1x4x5x7 w=6x2x3x3
  conv(x, w, group=2)
  == cat(1, conv(Slice(x, [0], [2], [1]), Slice(w, [0], [3], [0])), conv(Slice(x, [2], [4], [1]), Slice(w, [3],
    [6], [0])))
convolution with a bias | x=1x3x5x7 w=5x3x3x3 b=5
  Conv(x, w, b, pads=[1, 1, 1, 1])
  == conv(x, w) + Reshape(b, [1, 5, 1, 1])
convolution of negations | x=1x3x5x7 w=5x3x3x3
  conv(-x, -w)
  == conv(x, w)
sum over the image of a convolution by one | x=1x3x5x7 w=5x3x1x1
  ReduceSum(conv(x, w, k=1), [2, 3])
  == conv(ReduceSum(x, [2, 3]), w, k=1)
maximum pool of a shift | x=1x3x5x7 c=()
  maxpool(x + c, 3)
  == maxpool(x, 3) + c
maximum pool twice | x=1x3x5x7
  maxpool(maxpool(x, 3), 3)
  == maxpool(x, 5)
maximum pool by rows and columns | x=1x3x5x7
  MaxPool(MaxPool(x, kernel_shape=[3, 1], pads=[1, 0, 1, 0]), kernel_shape=[1, 3], pads=[0, 1, 0, 1])
  == maxpool(x, 3)
maximum pool of the exponential | x=1x3x5x7
  maxpool(Exp(x), 3)
  == Exp(maxpool(x, 3))
maximum pool is a maximum of slices | x=1x1x3x7
  MaxPool(x, kernel_shape=[1, 2])
  == Max(Slice(x, [0], [6], [3]), Slice(x, [1], [7], [3]))
average pool by rows and columns | x=1x3x5x7
  AveragePool(AveragePool(x, kernel_shape=[3, 1]), kernel_shape=[1, 3])
  == AveragePool(x, kernel_shape=[3, 3])
average pool of a whole image | x=1x3x5x7
  AveragePool(x, kernel_shape=[5, 7])
  == ReduceMean(x, [2, 3])
global average pool | x=1x3x5x7
  GlobalAveragePool(x)
  == ReduceMean(x, [2, 3])
global maximum pool | x=1x3x5x7
  GlobalMaxPool(x)
  == ReduceMax(x, [2, 3])
average pool of transposed axes | x=1x3x5x7
  Transpose(avgpool(x, 3), perm=[0, 1, 3, 2])
  == avgpool(Transpose(x, perm=[0, 1, 3, 2]), 3)
"""

EQUATIONS: tuple[Equation, ...] = (
    *table("xla arithmetic", _ARITHMETIC),
    *table("xla logic", _LOGIC),
    *table("xla movement", _MOVEMENT),
    *table("xla reduce", _REDUCE),
    *table("xla dot", _DOT),
    *table("xla conv", _CONV),
)
