"""Rules of XLA's algebraic simplifier on whole arrays, as written down by TensorRight (Arora et al., POPL 2025;
`rules/xla`).

TensorRight states most of them for reals and integers; here some use one of these, some both. Its constants of unknown
value are inputs here. A dynamic slice has known starts, or is a gather whose indices are inputs.
"""

from __future__ import annotations

from .notation import Equation, table

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
    *table("xla movement", _MOVEMENT),
    *table("xla reduce", _REDUCE),
    *table("xla dot", _DOT),
    *table("xla conv", _CONV),
)
