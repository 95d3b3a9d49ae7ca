"""Small models of operators that runtimes execute as one, and in which no rewriting pays there."""

from __future__ import annotations

import re

import numpy as np
import onnx
from onnx import numpy_helper, parser

_CNN = """
c1 = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, f32_16_3_3_3, f32_16)
r1 = Relu(c1)
p1 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r1)
c2 = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(p1, f32_16_16_3_3, f32_b_16)
s2 = Add(c2, p1)
r2 = Relu(s2)
g = GlobalAveragePool(r2)
f = Flatten(g)
y = Gemm<transB = 1>(f, f32_10_16, f32_10)
"""

_MLP = """
n1 = LayerNormalization<axis = -1, epsilon = 1e-5>(x, f32_64, f32_b_64)
h1 = MatMul(n1, f32_64_256)
b1 = Add(h1, f32_256)
t1 = Tanh(b1)
h2 = MatMul(t1, f32_256_64)
s = Add(h2, x)
y = LayerNormalization<axis = -1, epsilon = 1e-5>(s, f32_c_64, f32_d_64)
"""

_TRANSFORMER = """
n = LayerNormalization<axis = -1, epsilon = 1e-5>(x, f32_64, f32_b_64)
q = MatMul(n, f32_64_64)
q4 = Reshape(q, i64_1_32_4_16)
qt = Transpose<perm = [0, 2, 1, 3]>(q4)
k, v = Split<axis = -1, num_outputs = 2>(cache)
kt = Transpose<perm = [0, 1, 3, 2]>(k)
scores = MatMul(qt, kt)
p = Softmax<axis = -1>(scores)
o = MatMul(p, v)
ot = Transpose<perm = [0, 2, 1, 3]>(o)
o3 = Reshape(ot, i64_1_32_64)
op = MatMul(o3, f32_b_64_64)
a = Add(op, x)
m = LayerNormalization<axis = -1, epsilon = 1e-5>(a, f32_c_64, f32_d_64)
u = MatMul(m, f32_64_256)
ub = Add(u, f32_256)
g = Gelu(ub)
d = MatMul(g, f32_256_64)
y = Add(d, a)
"""

_DEPTHWISE = """
e = Conv<kernel_shape = [1, 1]>(x, f32_96_16_1_1, f32_96)
es = Sigmoid(e)
e1 = Mul(e, es)
w = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 96>(e1, f32_96_1_3_3, f32_b_96)
ws = Sigmoid(w)
w1 = Mul(w, ws)
a = GlobalAveragePool(w1)
s1 = Conv<kernel_shape = [1, 1]>(a, f32_4_96_1_1, f32_4)
s2 = Relu(s1)
s3 = Conv<kernel_shape = [1, 1]>(s2, f32_96_4_1_1, f32_c_96)
s4 = Sigmoid(s3)
m = Mul(w1, s4)
o = Conv<kernel_shape = [1, 1]>(m, f32_16_96_1_1, f32_16)
y = Add(o, x)
"""

_POOLS = """
c = Conv<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x, f32_8_3_3_3, f32_8)
n = InstanceNormalization(c, f32_b_8, f32_c_8)
r = Relu(n)
p = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(r)
z = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(p, , f32_s_4)
j = Concat<axis = 1>(z, r)
y = Conv<kernel_shape = [1, 1]>(j, f32_4_16_1_1, f32_4)
"""

NODES = {
    "convolutions": ("1,3,16,16] x", _CNN),
    "layer-norms": ("32,64] x", _MLP),
    "transformer": ("1,32,64] x, float[1,4,32,32] cache", _TRANSFORMER),
    "depthwise": ("1,16,14,14] x", _DEPTHWISE),
    "pools": ("1,3,16,16] x", _POOLS),
}


def runtime_model(name: str) -> onnx.ModelProto:
    """One of the models, with weights of a fixed seed. A constant is called by its type, an optional letter that
    tells it from others, and its shape; integers are shapes themselves, `f32_s_4` the scales of a resize."""
    inputs, nodes = NODES[name]
    opset = '<ir_version: 10, opset_import: ["" : 20]>'
    model = parser.parse_model(f"{opset} {name.replace('-', '_')} (float[{inputs}) => (float[] y) {{{nodes}}}")
    rng = np.random.default_rng(0)
    for constant in dict.fromkeys(re.findall(r"(?:f32|i64)_\w+", nodes)):
        kind, *dims = constant.split("_")
        letter, sizes = (dims[0], dims[1:]) if dims[0].isalpha() else ("", dims)
        if kind == "i64":
            array = np.array(sizes, np.int64)
        elif letter == "s":
            array = np.array([1, 1, 2, 2], np.float32)
        else:
            array = rng.normal(0, 0.1, [int(n) for n in sizes]).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, constant))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for at, node in enumerate(model.graph.node):
        node.name = f"node {at}"
    return model
