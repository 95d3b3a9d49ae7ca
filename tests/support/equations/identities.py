"""Identities that compilers use beyond the published lists.

They come from XLA's `algebraic_simplifier.cc`, where TensorRight leaves them out, and from mathematics.
"""

from __future__ import annotations

from .notation import Equation, table

_ELEMENTWISE = """
difference is a constant | a=3x5
  a - a
  == Expand(0.0, [3, 5])
remainder by one is a constant | a=int32:3x5
  Mod(a, 1)
  == Cast(Expand(0.0, [3, 5]), to="int32")
equality is a constant | a=3x5
  Equal(a, a)
  == Cast(Expand(1.0, [3, 5]), to="bool")
unequal is a constant | a=int64:3x5
  ~Equal(a, a)
  == Cast(Expand(0.0, [3, 5]), to="bool")
quotient by itself is one | a=3x5
  a / a
  == Expand(1.0, [3, 5])
power zero is one | a=3x5
  Pow(a, 0.0)
  == Expand(1.0, [3, 5])
zero times | a=int64:3x5
  a * 0
  == Cast(Expand(0.0, [3, 5]), to="int64")
or with true constant | p=bool:3x5
  Or(p, Cast(Expand(1.0, [3, 5]), to="bool"))
  == Cast(Expand(1.0, [3, 5]), to="bool")
and with true constant | p=bool:3x5
  And(Cast(Expand(1.0, [3, 5]), to="bool"), p)
  == p
select by constant true | a=3x5 b=3x5
  Where(Cast(Expand(1.0, [3, 5]), to="bool"), a, b)
  == a
select of true and false | p=bool:3x5
  Where(p, Cast(1.0, to="bool"), Cast(0.0, to="bool"))
  == p
select of false and true | p=bool:3x5
  Where(p, Cast(0.0, to="bool"), Cast(1.0, to="bool"))
  == Not(p)
compare a select | p=bool:3x5
  Equal(Where(p, 1.0, 0.0), 1.0)
  == p
compare a select with zero | p=bool:3x5
  Where(p, 1.0, 0.0) > 0.0
  == p
root of a reciprocal | a=3x5
  Sqrt(1.0 / a)
  == 1.0 / Sqrt(a)
log of a root | a=3x5
  Log(Sqrt(a))
  == Log(a) * 0.5
log of a reciprocal root | a=3x5
  Log(1.0 / Sqrt(a))
  == Log(a) * -0.5
log of a power | a=3x5 b=3x5
  Log(Pow(a, b))
  == b * Log(a)
log of a product | a=3x5 b=3x5
  Log(a * b)
  == Log(a) + Log(b)
log of a quotient | a=3x5 b=3x5
  Log(a / b)
  == Log(a) - Log(b)
root of a square | a=3x5
  Sqrt(Pow(a, 2.0))
  == Abs(a)
quotient by a reciprocal root | a=3x5 b=3x5
  a / (1.0 / Sqrt(b))
  == a * Sqrt(b)
square of a root | a=3x5
  Pow(Sqrt(a), 2.0)
  == a
product of powers | a=3x5 b=3x5 c=3x5
  Pow(a, b) * Pow(a, c)
  == Pow(a, b + c)
product of roots | a=3x5 b=3x5
  Sqrt(a) * Sqrt(b)
  == Sqrt(a * b)
exp of twice | a=3x5
  Exp(a * 2.0)
  == Exp(a) * Exp(a)
exp of negation | a=3x5
  Exp(-a)
  == 1.0 / Exp(a)
pow of exp whole | a=3x5
  Pow(Exp(a), 3.0)
  == Exp(a * 3.0)
sum of multiples | a=3x5 c=() d=()
  a * c + a * d
  == a * (c + d)
a value and itself | a=3x5
  a + a
  == a * 2.0
a value and itself, integers | a=int32:3x5
  a + a
  == a * 2
sub of neg | a=3x5 b=3x5
  a - -b
  == a + b
quotient of a negation | a=3x5 b=3x5
  -a / b
  == a / -b
quotient of products | a=3x5 b=3x5 c=3x5
  (a * c) / (b * c)
  == a / b
quotient of sums | a=3x5 b=3x5 c=3x5
  a / c + b / c
  == (a + b) / c
fractions added | a=3x5 b=3x5 c=3x5 d=3x5
  a / b + c / d
  == (a * d + c * b) / (b * d)
min and max sum | a=3x5 b=3x5
  Max(a, b) + Min(a, b)
  == a + b
min and max product | a=3x5 b=3x5
  Max(a, b) * Min(a, b)
  == a * b
max minus min | a=3x5 b=3x5
  Max(a, b) - Min(a, b)
  == Abs(a - b)
max by abs | a=3x5 b=3x5
  Max(a, b)
  == (a + b + Abs(a - b)) * 0.5
max of three | a=3x5 b=3x5 c=3x5
  Max(a, b, c)
  == Max(Max(c, a), b)
min of max bounds | a=3x5 b=3x5 c=3x5
  Min(Max(a, b), Max(a, c))
  == Max(a, Min(b, c))
max monotone in relu | a=3x5 b=3x5
  Relu(Max(a, b))
  == Max(Relu(a), Relu(b))
max of negative scaled | a=3x5 b=3x5
  Max(a * -2.0, b * -2.0)
  == Min(a, b) * -2.0
relu as where | a=3x5
  Relu(a)
  == Where(a > 0.0, a, 0.0)
relu as clip | a=3x5
  Relu(a)
  == Max(a, 0.0)
relu6 | a=3x5
  Min(Relu(a), 6.0)
  == Clip(a, 0.0, 6.0)
relu scaled positive exp | a=3x5 b=3x5
  Relu(a * Exp(b))
  == Relu(a) * Exp(b)
leaky relu | a=3x5
  LeakyRelu(a, alpha=0.1)
  == Where(a < 0.0, a * 0.1, a)
leaky relu as max | a=3x5
  LeakyRelu(a, alpha=0.1)
  == Max(a, a * 0.1)
hard sigmoid | a=3x5
  HardSigmoid(a)
  == Clip(a * 0.2 + 0.5, 0.0, 1.0)
abs of product | a=3x5 b=3x5
  Abs(a * b)
  == Abs(a) * Abs(b)
abs of quotient | a=3x5 b=3x5
  Abs(a / b)
  == Abs(a) / Abs(b)
abs squared | a=int32:3x5 b=int32:3x5
  Abs(a - b) * Abs(b - a)
  == (a - b) * (a - b)
sign of product | a=3x5 b=3x5
  Sign(a * b)
  == Sign(a) * Sign(b)
triangle where equal abs | a=3x5
  Abs(a) + a
  == Relu(a) * 2.0
compare max | a=3x5 b=3x5
  Max(a, b) < b
  == a < a
compare min | a=3x5 b=3x5
  Min(a, b) > a
  == a < a
compare squares | a=3x5
  a * a < 0.0
  == a > a
compare doubles | a=3x5 b=3x5
  a * 2.0 < b * 2.0
  == a < b
compare halves negative | a=3x5 b=3x5
  a * -0.5 < b * -0.5
  == b < a
not equal via lt gt ints | a=int32:3x5 b=int32:3x5
  Or(a < b, b < a)
  == ~Equal(a, b)
le as lt or eq | a=3x5 b=3x5
  a <= b
  == Or(a < b, Equal(a, b))
ge and le | a=3x5 b=3x5
  And(a >= b, a <= b)
  == Equal(a, b)
eq symmetrical | a=int64:3x5 b=int64:3x5
  Equal(a, b)
  == Equal(b, a)
eq shift | a=int64:3x5 b=int64:3x5
  Equal(a + 1, b + 1)
  == Equal(a, b)
transitive | a=3x5 b=3x5 c=3x5
  And(And(a < b, b < c), a < c)
  == And(a < b, b < c)
between | a=3x5
  And(a > 2.0, a > 3.0)
  == a > 3.0
contradiction | a=3x5
  And(a > 3.0, a < 2.0)
  == a > a
tautology | a=3x5
  Or(a > 2.0, a < 3.0)
  == Equal(a, a)
and idempotent | p=bool:3x5
  And(p, p)
  == p
excluded middle | p=bool:3x5
  Or(p, Not(p))
  == Cast(Expand(1.0, [3, 5]), to="bool")
xor associates | p=bool:3x5 q=bool:3x5 r=bool:3x5
  Xor(Xor(p, q), r)
  == Xor(p, Xor(q, r))
xor with true | p=bool:3x5
  Xor(p, Cast(1.0, to="bool"))
  == Not(p)
select same branches swapped | p=bool:3x5 q=bool:3x5 a=3x5 b=3x5
  Where(p, Where(q, a, b), Where(q, a, b))
  == Where(q, a, b)
select and | p=bool:3x5 q=bool:3x5 a=3x5 b=3x5
  Where(And(p, q), a, b)
  == Where(p, Where(q, a, b), b)
select or | p=bool:3x5 q=bool:3x5 a=3x5 b=3x5
  Where(Or(p, q), a, b)
  == Where(p, a, Where(q, a, b))
select relu | p=bool:3x5 a=3x5 b=3x5
  Relu(Where(p, a, b))
  == Where(p, Relu(a), Relu(b))
select of max | p=bool:3x5 a=3x5 b=3x5 c=3x5
  Max(Where(p, a, b), c)
  == Where(p, Max(a, c), Max(b, c))
select products | p=bool:3x5 a=3x5 b=3x5 c=3x5 d=3x5
  Where(p, a, b) * Where(p, c, d)
  == Where(p, a * c, b * d)
select compare ints | a=int32:3x5 b=int32:3x5
  Where(a >= b, a, b)
  == Max(b, a)
floor plus | a=3x5 b=int32:3x5
  Floor(a + Cast(b, to="float32"))
  == Floor(a) + Cast(b, to="float32")
floor of cast | b=int32:3x5
  Floor(Cast(b, to="float32"))
  == Cast(b, to="float32")
ceil neg | a=3x5
  -Ceil(-a)
  == Floor(a)
ceil of sum | a=3x5
  Ceil(a - 2.0)
  == Ceil(a) - 2.0
round odd | a=3x5
  Round(-a)
  == -Round(a)
int division by constants | a=int32:3x5
  (a / 2) / 3
  == a / 6
int division of doubled | a=int32:3x5 b=int32:3x5
  (a * 2) / (b * 2)
  == a / b
int square difference | a=int32:3x5 b=int32:3x5
  (a + b) * (a - b)
  == a * a - b * b
mod negative | a=int32:3x5
  Mod(a, -1)
  == a - a
mod twice | a=int32:3x5
  Mod(Mod(a, 6), 3)
  == Mod(a, 3)
mod of product | a=int64:3x5 b=int64:3x5
  Mod(a * b, b)
  == a * 0
fmod float | a=3x5 b=3x5
  Mod(Mod(a, b, fmod=1), b, fmod=1)
  == Mod(a, b, fmod=1)
fmod of neg float | a=3x5 b=3x5
  Mod(-a, b, fmod=1)
  == -Mod(a, b, fmod=1)
mod by quotient floor | a=3x5 b=3x5
  a - b * Floor(a / b)
  == (a / b - Floor(a / b)) * b
cast int widening sum | a=int32:3x5 b=int32:3x5
  Cast(a, to="int64") + Cast(b, to="int64")
  == Cast(a + b, to="int64")
cast float of int product | a=int32:3x5 b=int32:3x5
  Cast(a * b, to="float32")
  == Cast(a, to="float32") * Cast(b, to="float32")
cast trunc twice | a=3x5
  Cast(Cast(Cast(a, to="int32"), to="float32"), to="int32")
  == Cast(a, to="int32")
cast of floor | a=3x5
  Cast(Cast(Floor(a), to="int32"), to="float32")
  == Floor(a)
cast bool of not | p=bool:3x5
  1.0 - Cast(p, to="float32")
  == Cast(Not(p), to="float32")
cast or | p=bool:3x5 q=bool:3x5
  Cast(Or(p, q), to="int32")
  == Max(Cast(p, to="int32"), Cast(q, to="int32"))
exp monotone relu | a=3x5
  Max(Exp(a), 1.0)
  == Exp(Relu(a))
softplus | a=3x5
  Softplus(a)
  == Log(1.0 + Exp(a))
softplus difference | a=3x5
  Softplus(a) - Softplus(-a)
  == a
log sigmoid | a=3x5
  Log(Sigmoid(a))
  == -Softplus(-a)
silu | a=3x5
  a * Sigmoid(a)
  == a / (1.0 + Exp(-a))
tanh exp | a=3x5
  Tanh(a)
  == (Exp(a) - Exp(-a)) / (Exp(a) + Exp(-a))
sigmoid ratio | a=3x5
  Sigmoid(a)
  == Exp(a) / (Exp(a) + 1.0)
sigmoid product | a=3x5
  Sigmoid(a) * Sigmoid(-a)
  == Sigmoid(a) - Sigmoid(a) * Sigmoid(a)
gelu odd part | a=3x5
  Erf(-a)
  == -Erf(a)
elu as where | a=3x5
  Elu(a)
  == Where(a < 0.0, Exp(a) - 1.0, a)
"""

_REDUCE = """
reduce prod const | a=3x5 c=3x1
  ReduceProd(a * c, [1])
  == ReduceProd(a, [1]) * Pow(c, 5.0)
reduce min max | a=3x5
  ReduceMin(a, [1])
  == -ReduceMax(-a, [1])
reduce max scale exp | a=3x5 c=3x1
  ReduceMax(a * Exp(c), [1])
  == ReduceMax(a, [1]) * Exp(c)
reduce max relu | a=3x5
  ReduceMax(Relu(a), [1])
  == Relu(ReduceMax(a, [1]))
reduce max sigmoid | a=3x5
  ReduceMax(Sigmoid(a), [1])
  == Sigmoid(ReduceMax(a, [1]))
reduce max sqrt | a=3x5
  ReduceMax(Sqrt(a), [1])
  == Sqrt(ReduceMax(a, [1]))
reduce max floor | a=3x5
  ReduceMax(Floor(a), [1])
  == Floor(ReduceMax(a, [1]))
reduce max log | a=3x5
  ReduceMax(Log(a), [1])
  == Log(ReduceMax(a, [1]))
reduce of where | p=bool:3x1 a=3x5 b=3x5
  ReduceMax(Where(p, a, b), [1])
  == Where(p, ReduceMax(a, [1]), ReduceMax(b, [1]))
sum of where broadcast | p=bool:3x1 a=3x5 b=3x5
  ReduceSum(Where(p, a, b), [1])
  == Where(p, ReduceSum(a, [1]), ReduceSum(b, [1]))
mean shift | a=3x5 c=3x1
  ReduceMean(a + c, [1])
  == ReduceMean(a, [1]) + c
variance | a=3x5
  ReduceMean(a * a, [1]) - ReduceMean(a, [1]) * ReduceMean(a, [1])
  == ReduceMean((a - ReduceMean(a, [1])) * (a - ReduceMean(a, [1])), [1])
layernorm shift | a=3x5 g=5 b=5 c=3x1
  LayerNormalization(a + c, g, b)
  == LayerNormalization(a, g, b)
argmax exp | a=3x5
  ArgMax(Exp(a), axis=1)
  == ArgMax(a, axis=1)
argmax softmax | a=3x5
  ArgMax(Softmax(a, axis=1), axis=1)
  == ArgMax(a, axis=1)
argmin scale | a=3x5
  ArgMin(a * 3.0 + 1.0, axis=1)
  == ArgMin(a, axis=1)
matmul ones | x=3x5
  x @ Expand(1.0, [5, 1])
  == ReduceSum(x, [1])
"""

_MOVEMENT = """
tile | a=3x5
  Tile(a, [1, 2])
  == cat(1, a, a)
tile of a sum | a=3x5 b=3x5
  Tile(a + b, [2, 1])
  == Tile(a, [2, 1]) + Tile(b, [2, 1])
flatten | a=3x5x7
  Flatten(a, axis=1)
  == Reshape(a, [3, 35])
squeeze unsqueeze | a=3x5
  Squeeze(Unsqueeze(a, [1]), [1])
  == a
trilu sum | a=5x5
  Trilu(a, upper=1) + Trilu(a, upper=0)
  == a + a * EyeLike(Expand(0.0, [5, 5]))
matmul diag | x=3x5 d=5
  x @ (EyeLike(Expand(0.0, [5, 5])) * d)
  == x * d
batched left | a=3x5 b=7x5x3
  a @ b
  == Transpose(Reshape(a @ Reshape(Transpose(b, perm=[1, 0, 2]), [5, 21]), [3, 7, 3]), perm=[1, 0, 2])
gather twice const | a=7x5
  Gather(Gather(a, [1, 3, 5], axis=0), [0, 2], axis=0)
  == Gather(a, [1, 5], axis=0)
gather slice | a=7x5 i=int64:3
  Slice(Gather(a, Mod(i, 7), axis=0), [1], [4], [1])
  == Gather(Slice(a, [1], [4], [1]), Mod(i, 7), axis=0)
gather relu | a=7x5 i=int64:3
  Relu(Gather(a, Mod(i, 7), axis=0))
  == Gather(Relu(a), Mod(i, 7), axis=0)
gather of concat rows | a=3x5 b=3x5
  Gather(cat(0, a, b), [4, 0], axis=0)
  == cat(0, Gather(b, [1], axis=0), Gather(a, [0], axis=0))
gather neg index | a=7x5
  Gather(a, [-1, -2], axis=0)
  == Gather(a, [6, 5], axis=0)
"""

_CONV = """
avgpool exclude pad of relu concat | x=1x3x5x7 y=1x3x5x7
  AveragePool(cat(1, x, y), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
  == cat(1, AveragePool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), AveragePool(y, kernel_shape=[3, 3], pads=[1,
      1, 1, 1]))
avgpool auto pad | x=1x3x5x7
  AveragePool(x, kernel_shape=[3, 3], auto_pad="SAME_UPPER", count_include_pad=1)
  == avgpool(x, 3)
conv auto pad | x=1x3x5x7 w=3x3x3x3
  Conv(x, w, auto_pad="SAME_UPPER")
  == conv(x, w)
maxpool stride slice | x=1x3x5x7
  maxpool(x, 3, stride=2, pad=0)
  == Slice(maxpool(x, 3, pad=0), [0, 0], [3, 5], [2, 3], [2, 2])
maxpool of pad | x=1x3x5x7
  maxpool(Pad(Relu(x), [0, 0, 1, 1, 0, 0, 1, 1]), 3, pad=0)
  == maxpool(Relu(x), 3)
conv batchnorm | x=1x3x5x7 w=5x3x3x3 s=5
  conv(x, w) * Reshape(s, [1, 5, 1, 1])
  == conv(x, w * Reshape(s, [5, 1, 1, 1]))
conv input scale | x=1x3x5x7 w=5x3x3x3 s=3
  conv(x * Reshape(s, [1, 3, 1, 1]), w)
  == conv(x, w * Reshape(s, [1, 3, 1, 1]))
depthwise | x=1x3x5x7 w=3x1x3x3
  conv(x, w, group=3)
  == cat(1, conv(Slice(x, [0], [1], [1]), Slice(w, [0], [1], [0])), conv(Slice(x, [1], [2], [1]), Slice(w, [1],
      [2], [0])), conv(Slice(x, [2], [3], [1]), Slice(w, [2], [3], [0])))
1x1 convs | x=1x3x5x7 w=5x3x1x1 v=7x5x1x1
  conv(conv(x, w, k=1), v, k=1)
  == conv(x, Reshape(Reshape(v, [7, 5]) @ Reshape(w, [5, 3]), [7, 3, 1, 1]), k=1)
"""

EQUATIONS: tuple[Equation, ...] = (
    *table("identities elementwise", _ELEMENTWISE),
    *table("identities reduce", _REDUCE),
    *table("identities movement", _MOVEMENT),
    *table("identities conv", _CONV),
)
