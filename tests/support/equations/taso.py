"""The axioms of TASO (Jia et al., SOSP 2019; `verify/verify.py` of its repository) and their published lemmas.

TASO states them for every stride, padding and activation; each is here at some of these. A convolution with an
activation is one followed by Relu. What TASO calls constants (the identity matrix and filter, the averaging filter)
are written out as such.
"""

from __future__ import annotations

from .notation import Equation, table

_M = "x=3x5 y=3x5 z=3x5"
_ELEMENTWISE = f"""
sum associates | {_M}
  x + (y + z)
  == (x + y) + z
sum associates, rank 3 | x=3x5x7 y=3x5x7 z=3x5x7
  x + (y + z)
  == (x + y) + z
sum associates, rank 4 | x=1x3x5x7 y=1x3x5x7 z=1x3x5x7
  x + (y + z)
  == (x + y) + z
sum commutes | {_M}
  x + y
  == y + x
product associates | {_M}
  x * (y * z)
  == (x * y) * z
product associates, rank 3 | x=3x5x7 y=3x5x7 z=3x5x7
  x * (y * z)
  == (x * y) * z
product commutes | {_M}
  x * y
  == y * x
product distributes | {_M}
  (x + y) * z
  == x * z + y * z
product distributes, rank 4 | x=1x3x5x7 y=1x3x5x7 z=1x3x5x7
  (x + y) * z
  == x * z + y * z
scaling associates | x=3x5 y=() w=()
  (x * y) * w
  == x * (y * w)
scaling distributes over sum | x=3x5 y=3x5 w=()
  (x + y) * w
  == x * w + y * w
scaling commutes with product | x=3x5 y=3x5 w=()
  (x * y) * w
  == x * (y * w)
scaling commutes with transpose | x=3x5 w=()
  t(x) * w
  == t(x * w)
scaling commutes with matmul | x=3x5 y=5x7 w=()
  (x @ y) * w
  == x @ (y * w)
scaling commutes with concat | x=3x5 y=3x7 w=()
  cat(1, x, y) * w
  == cat(1, x * w, y * w)
scaling commutes with concat of rows | x=3x5 y=7x5 w=()
  cat(0, x, y) * w
  == cat(0, x * w, y * w)
scaling commutes with concat, rank 4 | x=1x3x5x7 y=1x3x5x3 w=()
  cat(3, x, y) * w
  == cat(3, x * w, y * w)
relu commutes with transpose | x=3x5
  Relu(t(x))
  == t(Relu(x))
relu commutes with concat | x=3x5 y=3x7
  Relu(cat(1, x, y))
  == cat(1, Relu(x), Relu(y))
relu commutes with concat, rank 3 | x=3x5x7 y=3x3x7
  Relu(cat(1, x, y))
  == cat(1, Relu(x), Relu(y))
product with ones | x=3x5
  x * Expand(1.0, [3, 5])
  == x
"""

_MATMUL = """
matmul associates | x=3x5 y=5x7 z=7x3
  x @ (y @ z)
  == (x @ y) @ z
matmul distributes | x=3x5 y=5x7 z=5x7
  x @ (y + z)
  == x @ y + x @ z
matmul distributes on the left | x=3x5 y=3x5 z=5x7
  (x + y) @ z
  == x @ z + y @ z
transpose of a matmul | x=3x5 y=5x7
  t(x @ y)
  == t(y) @ t(x)
matmul and concat along k | x=3x5 y=5x7 z=3x7 w=7x7
  x @ y + z @ w
  == cat(1, x, z) @ cat(0, y, w)
matmul and concat of columns | x=3x5 y=5x7 z=5x3
  x @ cat(1, y, z)
  == cat(1, x @ y, x @ z)
matmul and concat of rows | x=3x5 y=7x5 z=5x7
  cat(0, x, y) @ z
  == cat(0, x @ z, y @ z)
identity matrix | x=3x5
  x @ EyeLike(Expand(0.0, [5, 5]))
  == x
identity matrix on the left | x=3x5
  EyeLike(Expand(0.0, [3, 3])) @ x
  == x
transposed identity | x=3x5
  x @ t(EyeLike(Expand(0.0, [5, 5])))
  == x
batched matmul associates | x=3x5x7 y=3x7x5 z=3x5x3
  x @ (y @ z)
  == (x @ y) @ z
"""

_MOVEMENT = """
transpose twice | x=3x5
  t(t(x))
  == x
transpose of a sum | x=3x5 y=3x5
  t(x + y)
  == t(x) + t(y)
transpose of a product | x=3x5 y=3x5
  t(x * y)
  == t(x) * t(y)
transpose of a concat | x=3x5 y=7x5
  t(cat(0, x, y))
  == cat(1, t(x), t(y))
transpose of a concat of columns | x=3x5 y=3x7
  t(cat(1, x, y))
  == cat(0, t(x), t(y))
first of a split | x=3x5 y=3x7
  Split(cat(1, x, y), [5, 7], axis=1)[0]
  == x
second of a split | x=3x5 y=3x7
  Split(cat(1, x, y), [5, 7], axis=1)[1]
  == y
first of a split of rows | x=3x5 y=7x5
  Split(cat(0, x, y), [3, 7], axis=0)[0]
  == x
second of a split, rank 4 | x=1x3x5x7 y=1x5x5x7
  Split(cat(1, x, y), [3, 5], axis=1)[1]
  == y
concat of sums | x=3x5 y=3x5 z=3x7 w=3x7
  cat(1, x + y, z + w)
  == cat(1, x, z) + cat(1, y, w)
concat of products | x=3x5 y=3x5 z=7x5 w=7x5
  cat(0, x * y, z * w)
  == cat(0, x, z) * cat(0, y, w)
concat of products, rank 4 | x=1x3x5x7 y=1x3x5x7 z=1x5x5x7 w=1x5x5x7
  cat(1, x * y, z * w)
  == cat(1, x, z) * cat(1, y, w)
concat in two orders | x=3x5 y=3x7 z=7x5 w=7x7
  cat(0, cat(1, x, y), cat(1, z, w))
  == cat(1, cat(0, x, z), cat(0, y, w))
concat in two orders, rank 4 | x=1x3x5x7 y=1x5x5x7 z=3x3x5x7 w=3x5x5x7
  cat(0, cat(1, x, y), cat(1, z, w))
  == cat(1, cat(0, x, z), cat(0, y, w))
"""

_I = "x=1x3x5x7 y=3x3x3x3"
_CONV = f"""
scale of input or filter | {_I} w=()
  conv(x * w, y)
  == conv(x, y * w)
scale of input or filter, strided | {_I} w=()
  conv(x * w, y, stride=2, pad=0)
  == conv(x, y * w, stride=2, pad=0)
scale of input or filter, relu | {_I} w=()
  Relu(conv(x * w, y))
  == Relu(conv(x, y * w))
scale of output | {_I} w=()
  conv(x, y) * w
  == conv(x * w, y)
scale of output, valid | {_I} w=()
  conv(x, y, pad=0) * w
  == conv(x * w, y, pad=0)
scale of output, strided | {_I} w=()
  conv(x, y, stride=2) * w
  == conv(x * w, y, stride=2)
sum of filters | {_I} z=3x3x3x3
  conv(x, y + z)
  == conv(x, y) + conv(x, z)
sum of filters, valid, strided | {_I} z=3x3x3x3
  conv(x, y + z, stride=2, pad=0)
  == conv(x, y, stride=2, pad=0) + conv(x, z, stride=2, pad=0)
sum of filters, one by one | x=1x3x5x7 y=5x3x1x1 z=5x3x1x1
  conv(x, y + z, k=1)
  == conv(x, y, k=1) + conv(x, z, k=1)
sum of images | x=1x3x5x7 y=1x3x5x7 z=5x3x3x3
  conv(x + y, z)
  == conv(x, z) + conv(y, z)
sum of images, valid | x=1x3x5x7 y=1x3x5x7 z=5x3x3x3
  conv(x + y, z, pad=0)
  == conv(x, z, pad=0) + conv(y, z, pad=0)
concat of channels | x=1x3x5x7 y=5x3x3x3 z=1x5x5x7 w=5x5x3x3
  conv(x, y) + conv(z, w)
  == conv(cat(1, x, z), cat(1, y, w))
concat of channels, strided | x=1x3x5x7 y=5x3x3x3 z=1x2x5x7 w=5x2x3x3
  conv(x, y, stride=2) + conv(z, w, stride=2)
  == conv(cat(1, x, z), cat(1, y, w), stride=2)
concat of a batch | x=1x3x5x7 y=3x3x5x7 z=5x3x3x3
  cat(0, conv(x, z), conv(y, z))
  == conv(cat(0, x, y), z)
concat of a batch, relu | x=1x3x5x7 y=1x3x5x7 z=5x3x3x3
  cat(0, Relu(conv(x, z)), Relu(conv(y, z)))
  == Relu(conv(cat(0, x, y), z))
concat of filters | x=1x3x5x7 y=3x3x3x3 z=5x3x3x3
  cat(1, conv(x, y), conv(x, z))
  == conv(x, cat(0, y, z))
concat of filters, relu, strided | x=1x3x5x7 y=3x3x3x3 z=5x3x3x3
  cat(1, Relu(conv(x, y, stride=2, pad=0)), Relu(conv(x, z, stride=2, pad=0)))
  == Relu(conv(x, cat(0, y, z), stride=2, pad=0))
identity filter | x=1x3x5x7
  conv(x, Pad(Expand(1.0, [3, 1, 1, 1]), [0, 0, 1, 1, 0, 0, 1, 1]), group=3)
  == x
identity filter over all channels | x=1x3x5x7
  conv(x, Pad(Reshape(EyeLike(Expand(0.0, [3, 3])), [3, 3, 1, 1]), [0, 0, 1, 1, 0, 0, 1, 1]))
  == x
enlarge a one-by-one filter | x=1x3x5x7 y=5x3x1x1
  conv(x, y, k=1)
  == conv(x, enlarge(y, 3))
enlarge a wide filter | x=1x3x5x7 y=5x3x1x3
  conv(x, y, k=(1, 3))
  == conv(x, enlarge(y, 3, size=(1, 3)))
enlarge a tall filter, strided | x=1x3x5x7 y=5x3x3x1
  conv(x, y, k=(3, 1), stride=2)
  == conv(x, enlarge(y, 3, size=(3, 1)), stride=2)
enlarge, relu | x=1x3x5x7 y=5x3x1x1
  Relu(conv(x, y, k=1))
  == Relu(conv(x, enlarge(y, 3)))
enlarge to five by five | x=1x3x7x7 y=3x3x3x3
  conv(x, y)
  == conv(x, enlarge(y, 5, size=3), k=5)
enlarge a sum | y=5x3x1x1 z=5x3x1x1
  enlarge(y + z, 3)
  == enlarge(y, 3) + enlarge(z, 3)
enlarge a product | y=5x3x1x1 z=5x3x1x1
  enlarge(y * z, 3)
  == enlarge(y, 3) * enlarge(z, 3)
enlarge a scaled filter | y=5x3x1x3 w=()
  enlarge(y * w, 3, size=(1, 3))
  == enlarge(y, 3, size=(1, 3)) * w
enlarge a concat | y=5x3x1x1 z=7x3x1x1
  enlarge(cat(0, y, z), 3)
  == cat(0, enlarge(y, 3), enlarge(z, 3))
enlarge a concat of channels | y=5x3x1x1 z=5x7x1x1
  enlarge(cat(1, y, z), 3)
  == cat(1, enlarge(y, 3), enlarge(z, 3))
enlarge a relu | y=5x3x1x1
  enlarge(Relu(y), 3)
  == Relu(enlarge(y, 3))
"""

_POOL = """
average pool of a concat of channels | x=1x3x5x7 y=1x5x5x7
  cat(1, avgpool(x, 3), avgpool(y, 3))
  == avgpool(cat(1, x, y), 3)
average pool of a concat, strided, valid | x=1x3x5x7 y=1x5x5x7
  cat(1, avgpool(x, 3, stride=2, pad=0), avgpool(y, 3, stride=2, pad=0))
  == avgpool(cat(1, x, y), 3, stride=2, pad=0)
average pool of a concat of a batch | x=1x3x5x7 y=3x3x5x7
  cat(0, avgpool(x, 3), avgpool(y, 3))
  == avgpool(cat(0, x, y), 3)
maximum pool of a concat of a batch | x=1x3x5x7 y=3x3x5x7
  cat(0, maxpool(x, 3), maxpool(y, 3))
  == maxpool(cat(0, x, y), 3)
maximum pool of a concat of channels | x=1x3x5x7 y=1x5x5x7
  cat(1, maxpool(x, 3), maxpool(y, 3))
  == maxpool(cat(1, x, y), 3)
maximum pool of a concat, strided, valid | x=1x3x5x7 y=1x5x5x7
  cat(1, maxpool(x, 3, stride=2, pad=0), maxpool(y, 3, stride=2, pad=0))
  == maxpool(cat(1, x, y), 3, stride=2, pad=0)
average pool is a convolution | x=1x3x5x7
  conv(x, Expand(1.0, [3, 1, 3, 3]) / 9.0, group=3)
  == avgpool(x, 3)
average pool is a convolution, strided | x=1x3x5x7
  conv(x, Expand(1.0, [3, 1, 3, 3]) / 9.0, group=3, stride=2)
  == avgpool(x, 3, stride=2)
average pool is a convolution, valid | x=1x3x5x7
  conv(x, Expand(1.0, [3, 1, 3, 3]) / 9.0, group=3, pad=0)
  == avgpool(x, 3, pad=0)
average pool of the identity filter | x=1x3x5x7
  conv(x, avgpool(Pad(Expand(1.0, [3, 1, 1, 1]), [0, 0, 1, 1, 0, 0, 1, 1]), 3), group=3)
  == avgpool(x, 3)
average pool of a sum | x=1x3x5x7 y=1x3x5x7
  avgpool(x + y, 3)
  == avgpool(x, 3) + avgpool(y, 3)
average pool of a scaled image | x=1x3x5x7 w=()
  avgpool(x, 3) * w
  == avgpool(x * w, 3)
maximum pool of relu | x=1x3x5x7
  maxpool(Relu(x), 3)
  == Relu(maxpool(x, 3))
"""

EQUATIONS: tuple[Equation, ...] = (
    *table("taso elementwise", _ELEMENTWISE),
    *table("taso matmul", _MATMUL),
    *table("taso movement", _MOVEMENT),
    *table("taso conv", _CONV),
    *table("taso pool", _POOL),
)
