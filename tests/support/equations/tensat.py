"""Equations that TASO derives and TENSAT (Yang et al., MLSys 2021) searches with.

They come from its `single_rules.txt` and `multi_rules.txt`. The published lists repeat most of them with other names of
inputs; here each appears once.
"""

from __future__ import annotations

from .notation import Equation, table

_S = "a=5x5 b=5x5 c=5x5"
_MATMUL = f"""
four factors | a=3x5 b=5x7 c=7x5 d=5x3
  (a @ b) @ (c @ d)
  == (a @ (b @ c)) @ d
four factors to the right | a=3x5 b=5x7 c=7x5 d=5x3
  (a @ b) @ (c @ d)
  == a @ ((b @ c) @ d)
four factors to the left | a=3x5 b=5x7 c=7x5 d=5x3
  a @ (b @ (c @ d))
  == ((a @ b) @ c) @ d
a stack times a matrix | a=3x5 b=5x7 c=7x3
  cat(0, b, a @ b) @ c
  == cat(0, b @ c, a @ (b @ c))
a square twice | a=3x5 b=5x7 c=7x7
  ((a @ b) @ c) @ c
  == a @ ((b @ c) @ c)
a factor shared by sums | a=3x5 b=5x7 c=7x7
  a @ b + (a @ b) @ c
  == a @ (b + b @ c)
a sum with a product | {_S}
  (a + a @ b) @ c
  == a @ (c + b @ c)
scale of three | a=3x5 b=5x7 c=7x3 s=()
  ((a @ b) @ c) * s
  == (a * s) @ (b @ c)
scale inside three | a=3x5 b=5x7 c=7x3 s=()
  ((a @ b) @ c) * s
  == a @ ((b @ c) * s)
columns of a chain | a=3x5 b=5x7 c=7x3
  cat(1, a @ b, (a @ b) @ c)
  == a @ cat(1, b, b @ c)
a factor repeated | a=5x7 b=7x5 c=3x5
  (c @ (a @ b)) @ a
  == c @ (a @ (b @ a))
a product squared | a=5x7 b=7x5
  (a @ b) @ ((a @ b) @ a)
  == (a @ (b @ a)) @ (b @ a)
a factor repeated, regrouped | a=5x7 b=7x5 c=3x5
  (c @ (a @ b)) @ a
  == (c @ a) @ (b @ a)
powers | {_S}
  (a @ (a @ b)) @ c
  == a @ (a @ (b @ c))
a sandwich | {_S}
  (b @ (a @ b)) @ c
  == b @ (a @ (b @ c))
a sandwich regrouped | {_S}
  (c @ (a @ b)) @ c
  == (c @ a) @ (b @ c)
sum before a product | {_S}
  (b + a @ b) @ c
  == b @ c + a @ (b @ c)
powers to the left | {_S}
  c @ (a @ (a @ b))
  == ((c @ a) @ a) @ b
an inner product | {_S}
  (b @ c) @ (a @ b)
  == b @ ((c @ a) @ b)
scale of the last | {_S} s=()
  (c @ (a @ b)) * s
  == (c @ a) @ (b * s)
scale in the middle | {_S} s=()
  (c @ (a @ b)) * s
  == ((c @ a) * s) @ b
sum of products | a=3x5 b=3x5 c=5x7
  a @ c + b @ c
  == (a + b) @ c
identity and a product | a=3x5 b=5x5
  a + a @ b
  == a @ (b + EyeLike(Expand(0.0, [5, 5])))
identity from the left | a=5x5 b=5x7
  b + a @ b
  == (a + EyeLike(Expand(0.0, [5, 5]))) @ b
scaled identity | a=3x5 s=()
  a @ (EyeLike(Expand(0.0, [5, 5])) * s)
  == a * s
scaled identity, transposed | a=3x5 s=()
  a @ (EyeLike(Expand(0.0, [5, 5])) * s)
  == t(t(a) * s)
identity before a transpose | a=3x5
  EyeLike(Expand(0.0, [5, 5])) @ t(a)
  == t(a)
merge by splitting columns | a=3x5 b=5x7 c=5x3
  a @ b
  == Split(a @ cat(1, b, c), [7, 3], axis=1)[0]
merge by splitting columns, second | a=3x5 b=5x7 c=5x3
  a @ c
  == Split(a @ cat(1, b, c), [7, 3], axis=1)[1]
merge by splitting rows | a=3x5 b=7x5 c=5x7
  a @ c
  == Split(cat(0, a, b) @ c, [3, 7], axis=0)[0]
merge by splitting rows, second | a=3x5 b=7x5 c=5x7
  b @ c
  == Split(cat(0, a, b) @ c, [3, 7], axis=0)[1]
"""

_SCALE = """
scale of a matmul | a=3x5 b=5x7 s=()
  (a @ b) * s
  == (a * s) @ b
scale of a chain | a=3x5 b=5x7 c=7x3 s=()
  ((a @ b) @ c) * s
  == ((a * s) @ b) @ c
scale of a sum with a matmul | a=3x5 b=5x5 s=()
  (a + a @ b) * s
  == a * s + (a * s) @ b
scale of a product with a matmul | a=3x5 b=3x7 c=5x7 s=()
  (b * (a @ c)) * s
  == b * ((a * s) @ c)
scale of columns | a=3x5 b=5x7 s=()
  cat(1, a, a @ b) * s
  == cat(1, a * s, (a * s) @ b)
scale of rows | a=3x5 b=5x5 s=()
  cat(0, a, a @ b) * s
  == cat(0, a * s, (a * s) @ b)
a matmul and its multiple | a=3x5 b=5x7 s=()
  a @ b + (a @ b) * s
  == (a + a * s) @ b
a product and its multiple | a=3x5 b=3x5 s=()
  a * b + (a * b) * s
  == b * (a + a * s)
scale of a product of three | a=3x5 b=3x5 c=3x5 s=()
  (c * (a * b)) * s
  == (a * s) * (b * c)
scale in a product of three | a=3x5 b=3x5 c=3x5 s=()
  (c * (a * b)) * s
  == c * (b * (a * s))
scale beside a product | a=3x5 b=3x5 c=3x5 s=()
  (c * (a * b)) * s
  == b * ((a * c) * s)
scale of a product in a matmul | a=3x5 b=3x5 c=5x7 s=()
  ((a * b) @ c) * s
  == (b * (a * s)) @ c
scale of a sum with a product | a=3x5 b=3x5 s=()
  (a + a * b) * s
  == a * s + b * (a * s)
scale of columns with a product | a=3x5 b=3x5 s=()
  cat(1, a, a * b) * s
  == cat(1, a * s, b * (a * s))
scale of rows with a product | a=3x5 b=3x5 s=()
  cat(0, b, a * b) * s
  == cat(0, b * s, a * (b * s))
two scales of a product | a=3x5 b=3x5 s=()
  ((a * b) * s) * s
  == (a * s) * (b * s)
two scales of a matmul | a=3x5 b=5x7 s=()
  ((a @ b) * s) * s
  == (a * s) @ (b * s)
two scales of one factor | a=3x5 b=5x7 s=()
  ((a @ b) * s) * s
  == ((a * s) * s) @ b
rows of a matmul and its multiple | a=3x5 b=5x7 s=()
  cat(0, a @ b, (a @ b) * s)
  == cat(0, a, a * s) @ b
columns of a matmul and its multiple | a=3x5 b=5x7 s=()
  cat(1, a @ b, (a @ b) * s)
  == a @ cat(1, b, b * s)
scale past a transpose | a=3x5 b=7x5 s=()
  b @ t(a * s)
  == (b * s) @ t(a)
scale out of a transposed factor | a=3x5 b=7x5 s=()
  b @ t(a * s)
  == (b @ t(a)) * s
scale past a transpose on the left | a=5x3 b=5x7 s=()
  t(a * s) @ b
  == t(a) @ (b * s)
scale of a transposed product | a=5x3 b=3x5 s=()
  b * t(a * s)
  == (b * s) * t(a)
scale of a product with a transpose | a=5x3 b=3x5 s=()
  b * t(a * s)
  == (b * t(a)) * s
scale of a symmetric sum | a=5x5 s=()
  a * s + t(a * s)
  == (a + t(a)) * s
scale of joined transposes | a=5x5 s=()
  cat(1, a * s, t(a * s))
  == cat(1, a, t(a)) * s
scale of stacked transposes | a=5x5 s=()
  cat(0, a * s, t(a * s))
  == cat(0, a, t(a)) * s
"""

_ELEMENTWISE = """
a sum twice over | a=3x5 b=3x5 c=3x5
  c + (c + (a + b))
  == (a + c) + (b + c)
a sum rotated | a=3x5 b=3x5 c=3x5
  c + (a + b)
  == b + (a + c)
a sum regrouped | a=3x5 b=3x5 c=3x5
  (a + b) + (b + c)
  == b + (b + (a + c))
a sum interleaved | a=3x5 b=3x5 c=3x5
  c + (c + (a + b))
  == b + (c + (a + c))
a shared factor | a=3x5 b=3x5 c=3x5
  b * (a + c)
  == a * b + b * c
a factor shared by products | a=3x5 b=3x5 c=3x5
  a * b + c * (a * b)
  == b * (a + a * c)
a factor moved between sums | a=3x5 b=3x5 c=3x5
  c * (b + a * b)
  == b * (c + a * c)
a product twice over | a=3x5 b=3x5 c=3x5
  c * (c * (a * b))
  == (a * c) * (b * c)
a product rotated | a=3x5 b=3x5 c=3x5
  c * (a * b)
  == b * (a * c)
a product spread | a=3x5 b=3x5 c=3x5
  c * (b + a * b)
  == b * c + a * (b * c)
one and a product | a=3x5 b=3x5
  b + a * b
  == b * (a + Expand(1.0, [3, 5]))
relu of columns, split | a=3x5 b=3x7
  Relu(a)
  == Split(Relu(cat(1, a, b)), [5, 7], axis=1)[0]
relu of rows, split | a=3x5 b=7x5
  Relu(b)
  == Split(Relu(cat(0, a, b)), [3, 7], axis=0)[1]
relu of channels, split | a=1x3x5x7 b=1x5x5x7
  Relu(b)
  == Split(Relu(cat(1, a, b)), [3, 5], axis=1)[1]
"""

_MOVEMENT = """
columns of sums with a shared term | a=3x5 b=3x5 c=3x5
  cat(1, a + b, b + c)
  == cat(1, a, b) + cat(1, b, c)
columns of sums, swapped | a=3x5 b=3x5 c=3x5
  cat(1, a + b, b + c)
  == cat(1, b, c) + cat(1, a, b)
columns of products, swapped | a=3x5 b=3x5 c=3x5
  cat(1, a * b, b * c)
  == cat(1, b, c) * cat(1, a, b)
rows of sums, crossed | a=3x5 b=3x5 c=7x5 d=7x5
  cat(0, a + b, c + d)
  == cat(0, a, d) + cat(0, b, c)
rows of products, crossed | a=3x5 b=3x5 c=7x5 d=7x5
  cat(0, a * b, c * d)
  == cat(0, b, c) * cat(0, a, d)
channels of sums | a=1x3x5x7 b=1x3x5x7 c=1x3x5x7
  cat(1, a + b, b + c)
  == cat(1, b, c) + cat(1, a, b)
channels of products | a=1x3x5x7 b=1x3x5x7 c=1x3x5x7
  cat(1, a * b, b * c)
  == cat(1, a, b) * cat(1, b, c)
transpose of a sum with a multiple | a=3x5 s=()
  t(a + a * s)
  == t(a) + t(a) * s
transpose of a product with a multiple | a=3x5 s=()
  t(a * (a * s))
  == t(a) * (t(a) * s)
transpose of two scales | a=3x5 s=()
  t((a * s) * s)
  == (t(a) * s) * s
transpose of a scaled relu | a=3x5 s=()
  t(Relu(a * s))
  == Relu(t(a) * s)
transpose of a stack with a multiple | a=3x5 s=()
  t(cat(0, a, a * s))
  == cat(1, t(a), t(a) * s)
transpose of columns with a multiple | a=3x5 s=()
  t(cat(1, a, a * s))
  == cat(0, t(a), t(a) * s)
transpose of a sum with a relu | a=3x5
  t(a + Relu(a))
  == t(a) + Relu(t(a))
transpose of a product with a relu | a=3x5
  t(a * Relu(a))
  == t(a) * Relu(t(a))
transpose of relu twice | a=3x5
  t(Relu(Relu(a)))
  == Relu(Relu(t(a)))
transpose of a stack with a relu | a=3x5
  t(cat(0, a, Relu(a)))
  == cat(1, t(a), Relu(t(a)))
transpose of columns with a relu | a=3x5
  t(cat(1, a, Relu(a)))
  == cat(0, t(a), Relu(t(a)))
relu between transposes | a=3x5
  Relu(a)
  == t(Relu(t(a)))
transpose of a matmul with a transpose | a=3x5 b=7x5
  t(b @ t(a))
  == a @ t(b)
transpose of a matmul of a transpose | a=5x3 b=5x7
  t(t(a) @ b)
  == t(b) @ a
transpose of a matmul with a multiple | a=5x5 s=()
  t(a @ (a * s))
  == (t(a) * s) @ t(a)
transpose of a matmul with a multiple, right | a=5x5 s=()
  t(a @ (a * s))
  == t(a) @ (t(a) * s)
transpose of a matmul with a relu | a=5x5
  t(Relu(a) @ a)
  == t(a) @ Relu(t(a))
transpose of a matmul by a relu | a=5x5
  t(a @ Relu(a))
  == Relu(t(a)) @ t(a)
relu of joined transposes | a=5x5
  cat(1, Relu(a), t(Relu(a)))
  == Relu(cat(1, a, t(a)))
relu of stacked transposes | a=5x5
  cat(0, Relu(a), t(Relu(a)))
  == Relu(cat(0, a, t(a)))
a transposed factor in a chain | a=3x5 b=3x7 c=7x5
  (a @ t(c)) @ t(b)
  == a @ (t(c) @ t(b))
a transposed factor first | a=5x3 b=5x7 c=7x3
  t(a) @ (b @ c)
  == (t(a) @ b) @ c
transpose of a symmetric sum | a=5x3 b=3x5
  t(b + t(a))
  == a + t(b)
transpose of a symmetric product | a=5x3 b=3x5
  t(b * t(a))
  == a * t(b)
scaled factors of a transposed matmul | a=5x3 b=5x7 s=()
  t(b) @ (a * s)
  == t(b * s) @ a
transpose of a stack of transposes | a=5x5
  t(cat(0, a, t(a)))
  == cat(1, t(a), t(t(a)))
"""

_W = "x=1x3x5x7 u=3x3x3x3 v=3x3x3x3"
_P = "x=1x3x5x7 p=3x3x1x1 q=3x3x1x1"
_ICONV = "Pad(Reshape(EyeLike(Expand(0.0, [3, 3])), [3, 3, 1, 1]), [0, 0, 1, 1, 0, 0, 1, 1])"
_CPOOL = "Reshape(EyeLike(Expand(0.0, [3, 3])), [3, 3, 1, 1]) * Expand(1.0, [3, 3, 3, 3]) / 9.0"
_CONV = f"""
sum of filters, swapped | {_W}
  conv(x, u + v)
  == conv(x, v) + conv(x, u)
sum of images, swapped | x=1x3x5x7 y=1x3x5x7 u=5x3x3x3
  conv(x + y, u)
  == conv(y, u) + conv(x, u)
sums in image and filter | x=3x3x3x3 y=3x3x3x3 z=3x3x3x3
  conv(z + (x + y), z + (x + y))
  == conv(y + (x + z), y + (x + z))
products in image and filter | x=3x3x3x3 y=3x3x3x3 z=3x3x3x3
  conv(z * (x * y), z * (x * y))
  == conv(x * (y * z), x * (y * z))
products in image and filter, relu | x=3x3x3x3 y=3x3x3x3 z=3x3x3x3
  Relu(conv(z * (x * y), z * (x * y)))
  == Relu(conv(y * (x * z), y * (x * z)))
identity filter after relu | {_W}
  Relu(conv(conv(x, u), {_ICONV}))
  == Relu(conv(x, u))
relu twice | {_W}
  Relu(Relu(conv(x, u)))
  == Relu(conv(Relu(conv(x, u)), {_ICONV}))
relu of an image by the identity filter | x=1x3x5x7
  Relu(conv(x, {_ICONV}))
  == Relu(x)
relu and one-by-one | {_W} p=3x3x1x1
  conv(Relu(conv(x, u)), p, k=1)
  == conv(Relu(conv(x, u)), enlarge(p, 3))
relu, one-by-one, relu | {_W} p=3x3x1x1
  Relu(conv(Relu(conv(x, u)), p, k=1))
  == Relu(conv(Relu(conv(x, u)), enlarge(p, 3)))
two convolutions, one enlarged | {_P}
  conv(conv(x, p, k=1), p, k=1)
  == conv(conv(x, enlarge(p, 3)), enlarge(p, 3))
two convolutions, the first enlarged | {_P} u=3x3x3x3
  Relu(conv(conv(x, p, k=1), u))
  == Relu(conv(conv(x, enlarge(p, 3)), u))
averages by a filter | {_W}
  avgpool(Relu(conv(x, u)), 3)
  == conv(Relu(conv(x, u)), {_CPOOL})
averages of joined images | x=1x3x5x7 y=1x3x5x7
  cat(0, avgpool(x, 3), avgpool(y, 3))
  == conv(cat(0, x, y), {_CPOOL})
averages of the identity filter | x=1x3x5x7
  avgpool(x, 3)
  == conv(x, avgpool({_ICONV}, 3))
averages of relu by the identity filter | x=1x3x5x7
  conv(Relu(x), {_CPOOL})
  == avgpool(Relu(conv(x, {_ICONV})), 3)
a scaled averaging filter | x=1x3x5x7 s=()
  Relu(avgpool(x, 3) * s)
  == Relu(conv(x, ({_CPOOL}) * s))
a residual as a filter | {_W}
  x + conv(x, u)
  == conv(x, u + {_ICONV})
a residual as a filter, relu | {_W}
  Relu(x + conv(x, u))
  == Relu(conv(x, u + {_ICONV}))
a relu beside a convolution | {_W}
  cat(1, Relu(conv(x, u)), Relu(x))
  == Relu(conv(x, cat(0, u, {_ICONV})))
a scaled identity filter | x=1x3x5x7 s=()
  conv(x, {_ICONV} * s)
  == x * s
a scaled identity filter as a product | x=1x3x5x7 s=()
  conv(x, {_ICONV} * s)
  == x * (Expand(1.0, [1, 3, 5, 7]) * s)
filters of two sizes | x=1x3x5x7 u=3x3x3x3 p=3x3x1x1
  conv(x, u) + conv(x, p, k=1)
  == conv(x, u + enlarge(p, 3))
filters of two widths | x=1x3x5x7 u=3x3x3x3 p=3x3x1x3
  conv(x, u) + conv(x, p, k=(1, 3))
  == conv(x, u + enlarge(p, 3, size=(1, 3)))
joined filters of two sizes | x=1x3x5x7 u=3x3x3x3 p=5x3x1x1
  cat(1, conv(x, u), conv(x, p, k=1))
  == conv(x, cat(0, u, enlarge(p, 3)))
joined filters of two sizes, relu | x=1x3x5x7 u=3x3x3x3 p=5x3x1x1
  cat(1, Relu(conv(x, u)), Relu(conv(x, p, k=1)))
  == Relu(conv(x, cat(0, u, enlarge(p, 3))))
joined images, enlarged filter | x=1x3x5x7 y=1x3x5x7 p=5x3x1x1
  cat(0, conv(x, p, k=1), conv(y, p, k=1))
  == conv(cat(0, x, y), enlarge(p, 3))
joined images, enlarged filter, relu | x=1x3x5x7 y=1x3x5x7 p=5x3x1x3
  cat(0, Relu(conv(x, p, k=(1, 3))), Relu(conv(y, p, k=(1, 3))))
  == Relu(conv(cat(0, x, y), enlarge(p, 3, size=(1, 3))))
scale of an enlarged filter | x=1x3x5x7 p=5x3x1x1 s=()
  conv(x, p, k=1) * s
  == conv(x, enlarge(p, 3) * s)
scale past an enlarged filter | x=1x3x5x7 p=5x3x1x1 s=()
  conv(x, p, k=1) * s
  == conv(x * s, enlarge(p, 3))
scale past an enlarged filter, relu | x=1x3x5x7 p=5x3x1x1 s=()
  Relu(conv(x, p, k=1) * s)
  == Relu(conv(x * s, enlarge(p, 3)))
identity filter, then enlarged | x=1x3x5x7 p=5x3x1x1
  conv(Relu(conv(x, {_ICONV})), p, k=1)
  == conv(Relu(x), enlarge(p, 3))
a convolution and its multiple | {_W} s=()
  conv(x, u) + conv(x, u) * s
  == conv(x + x * s, u)
a convolution and its multiple, in the filter | {_W} s=()
  conv(x, u) + conv(x, u) * s
  == conv(x, u + u * s)
averages and their multiple | x=1x3x5x7 s=()
  avgpool(x, 3) + avgpool(x, 3) * s
  == avgpool(x + x * s, 3)
scale of a product | x=1x3x5x7 y=1x3x5x7 u=5x3x3x3 s=()
  conv(x * y, u) * s
  == conv(x * (y * s), u)
scale of a product of filters | {_W} s=()
  conv(x, u * v) * s
  == conv(x, v * (u * s))
scale of a product of filters, relu | {_W} s=()
  Relu(conv(x * s, u * v))
  == Relu(conv(x, u * (v * s)))
scale of a residual | {_W} s=()
  (x + conv(x, u)) * s
  == x * s + conv(x * s, u)
scale of a gate | x=1x3x5x7 y=1x3x5x7 u=3x3x3x3 s=()
  (y * conv(x, u)) * s
  == y * conv(x * s, u)
scale of a gate, in the filter | x=1x3x5x7 y=1x3x5x7 u=3x3x3x3 s=()
  (y * conv(x, u)) * s
  == y * conv(x, u * s)
scale of two convolutions | x=1x3x5x7 u=3x3x3x3 p=3x3x1x1 s=()
  conv(conv(x, u), p, k=1) * s
  == conv(conv(x * s, u), p, k=1)
scale of two convolutions, in a filter | x=1x3x5x7 u=3x3x3x3 p=3x3x1x1 s=()
  conv(conv(x, p, k=1), u) * s
  == conv(conv(x, p * s, k=1), u)
scale of two convolutions, relu | x=1x3x5x7 u=3x3x3x3 p=3x3x1x1 s=()
  Relu(conv(conv(x, u), p * s, k=1))
  == Relu(conv(conv(x * s, u), p, k=1))
scale of two convolutions, three by three | {_W} s=()
  conv(conv(x, u), v) * s
  == conv(conv(x * s, u), v)
scale of averages of a convolution | {_W} s=()
  avgpool(conv(x, u), 3) * s
  == avgpool(conv(x * s, u), 3)
scale of averages, in the filter | {_W} s=()
  avgpool(conv(x, u), 3) * s
  == avgpool(conv(x, u * s), 3)
scale of joined channels | {_W} s=()
  cat(1, x, conv(x, u)) * s
  == cat(1, x * s, conv(x * s, u))
scale of a joined batch | {_W} s=()
  cat(0, x, conv(x, u)) * s
  == cat(0, x * s, conv(x * s, u))
scale of averages | x=1x3x5x7 s=()
  (x + avgpool(x, 3)) * s
  == x * s + avgpool(x * s, 3)
scale of gated averages | x=1x3x5x7 y=1x3x5x7 s=()
  (y * avgpool(x, 3)) * s
  == y * avgpool(x * s, 3)
scale of convolved averages | {_W} s=()
  conv(avgpool(x, 3), u) * s
  == conv(avgpool(x * s, 3), u)
scale of convolved averages, relu | {_W} s=()
  Relu(conv(avgpool(x, 3), u * s))
  == Relu(conv(avgpool(x * s, 3), u))
scale of averages twice | x=1x3x5x7 s=()
  avgpool(avgpool(x, 3), 3) * s
  == avgpool(avgpool(x * s, 3), 3)
scale of averages by a filter | x=1x3x5x7 s=()
  avgpool(x, 3) * s
  == conv(x * s, {_CPOOL})
scale of an averaged filter | {_W} s=()
  conv(x, avgpool(u, 3)) * s
  == conv(x, avgpool(u * s, 3))
scale of an averaged filter, relu | {_W} s=()
  Relu(conv(x * s, avgpool(u, 3)))
  == Relu(conv(x, avgpool(u * s, 3)))
two scales | {_W} s=()
  (conv(x, u) * s) * s
  == conv(x * s, u * s)
two scales of the image | {_W} s=()
  (conv(x, u) * s) * s
  == conv((x * s) * s, u)
two scales of averages | x=1x3x5x7 s=()
  (avgpool(x, 3) * s) * s
  == avgpool((x * s) * s, 3)
a batch with its multiple | {_W} s=()
  cat(0, conv(x, u), conv(x, u) * s)
  == conv(cat(0, x, x * s), u)
channels with their multiple | {_W} s=()
  cat(1, conv(x, u), conv(x, u) * s)
  == conv(x, cat(0, u, u * s))
averages with their multiple | x=1x3x5x7 s=()
  cat(0, avgpool(x, 3), avgpool(x, 3) * s)
  == avgpool(cat(0, x, x * s), 3)
averages of a scaled product | x=1x3x5x7 y=1x3x5x7 s=()
  avgpool(x * y, 3) * s
  == avgpool(x * (y * s), 3)
relu of joined channels | x=1x3x5x7 y=1x3x5x7 u=5x3x3x3
  Relu(cat(1, x, conv(y, u)))
  == cat(1, Relu(x), Relu(conv(y, u)))
relu of a joined batch | x=1x3x5x7 y=1x3x5x7 u=3x3x3x3
  Relu(cat(0, x, conv(y, u)))
  == cat(0, Relu(x), Relu(conv(y, u)))
relu of a batch by the identity filter | x=1x3x5x7 y=1x3x5x7
  Relu(conv(cat(0, x, y), {_ICONV}))
  == cat(0, Relu(x), Relu(y))
channels in any order | x=3x3x3x3 y=3x3x3x3 z=3x3x3x3
  conv(cat(1, z, cat(1, x, y)), cat(1, z, cat(1, x, y)))
  == conv(cat(1, y, cat(1, x, z)), cat(1, y, cat(1, x, z)))
channels in any order, relu | x=3x3x3x3 y=3x3x3x3 z=3x3x3x3
  Relu(conv(cat(1, z, cat(1, x, y)), cat(1, z, cat(1, x, y))))
  == Relu(conv(cat(1, x, cat(1, y, z)), cat(1, x, cat(1, y, z))))
convolutions with an identity filter | {_W}
  conv(x, u + v + {_ICONV})
  == conv(x, v) + x + conv(x, u)
merge by splitting a batch | x=1x3x5x7 y=3x3x5x7 u=5x3x3x3
  conv(x, u)
  == Split(conv(cat(0, x, y), u), [1, 3], axis=0)[0]
merge by splitting channels | x=1x3x5x7 u=3x3x3x3 v=5x3x3x3
  conv(x, v)
  == Split(conv(x, cat(0, u, v)), [3, 5], axis=1)[1]
merge by splitting channels, relu | x=1x3x5x7 u=3x3x3x3 v=5x3x3x3
  Relu(conv(x, u))
  == Split(Relu(conv(x, cat(0, u, v))), [3, 5], axis=1)[0]
maximum of a joined batch | x=1x3x5x7 y=1x3x5x7
  cat(0, maxpool(x, 3), maxpool(y, 3))
  == maxpool(cat(0, x, y), 3)
"""

EQUATIONS: tuple[Equation, ...] = (
    *table("tensat matmul", _MATMUL),
    *table("tensat scale", _SCALE),
    *table("tensat elementwise", _ELEMENTWISE),
    *table("tensat movement", _MOVEMENT),
    *table("tensat conv", _CONV),
)
