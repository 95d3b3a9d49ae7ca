"""Programs into ONNX: compact nodes, names kept, values equal in onnxruntime."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import example, given, settings

from eqsat.base.numerics import ELEMENTWISE
from eqsat.errors import InputError
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write import form
from eqsat.frontends.onnx.write import save as onnx_save
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.program import composites, ops
from eqsat.program.composites import COMPOSITES, Composite
from eqsat.program.ir import Program
from eqsat.program.ops import OPS
from eqsat.program.term import Term, rebuilt, topological
from eqsat.testing import assert_equivalent, programs, random_inputs

onnxruntime.set_default_logger_severity(4)

X = ops.input("x", (2, 3, 4))
M = ops.input("m", (5, 6))
IMAGE = ops.input("image", (1, 2, 8, 8))
HALF = ops.input("half", (2, 6), "float16")
FLAG = ops.input("flag", (2, 3, 4), "bool")
BIAS = ops.input("bias", (3,))


def weight(*shape: int, dtype: str = "float32") -> Term:
    return ops.constant(np.random.default_rng(0).standard_normal(shape), dtype)


def program_of(**outputs: Term) -> Program:
    inputs = [term for term in topological(outputs.values()) if term.op == "input"]
    return Program(tuple(inputs), outputs)


def nodes_of(model: onnx.ModelProto) -> str:
    return " ".join(node.op_type for node in model.graph.node)


def run(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {name: np.asarray(array) for name, array in inputs.items()}))


def assert_runs_the_same(program: Program, model: onnx.ModelProto) -> None:
    inputs = random_inputs(program)
    for wanted, got in zip(program.run(inputs).values(), run(model, inputs), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        tolerance = 1e-2 if wanted.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(got, wanted, tolerance, tolerance)


def part(start: int) -> Term:
    return ops.slice_(X, [start], [start + 1], [2])


def attention() -> Term:
    """Twelve nodes for three heads, one of them the split of a fused projection."""
    x = ops.input("tokens", (1, 4, 6))
    fused = composites.matmul(x, weight(6, 18))
    heads = [ops.transpose(ops.reshape(part, (1, 4, 3, 2)), (0, 2, 1, 3)) for part in ops.split(fused, [6, 6, 6], 2)]
    scores = composites.scaled(ops.matmul(heads[0], ops.swap_last(heads[1])), 0.5)
    mixed = ops.matmul(composites.softmax(scores), heads[2])
    return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (1, 4, 6))


def padded_conv() -> Term:
    padded = ops.pad(IMAGE, (0, 0, 1, 2), (0, 0, 2, 1))
    out = ops.conv(padded, weight(4, 2, 3, 3), strides=(2, 2), pads_lo=(1, 0), pads_hi=(0, 0))
    return composites.add(out, ops.reshape(weight(4), (4, 1, 1)))


def mean_pool(counted: bool) -> Term:
    pads = (1, 1)
    share = (pads, pads) if counted else (None, None)
    return composites.avg_pool(IMAGE, (3, 3), (2, 2), pads, pads, None, *share)


# What a term is written as, at opset 17 unless the name ends in another one.
FORMS: dict[str, tuple[Callable[[], Term], str]] = {
    # broadcasting is left to ONNX, and uniform tensors are scalars
    "bias": (lambda: composites.add(X, weight(4)), "Add"),
    "scale": (lambda: composites.scaled(X, 3.0), "Mul"),
    "column": (lambda: composites.mul(X, ops.reshape(BIAS, (3, 1))), "Reshape Mul"),
    "both broadcast": (lambda: composites.add(ops.reshape(BIAS, (3, 1)), BIAS), "Reshape Add"),
    "positions": (lambda: ops.add(X, ops.iota(X.shape, 1, "float32")), "Add"),
    "a scalar gives the rank": (lambda: ops.div(ops.broadcast(M, (1, 5, 6)), ops.full(2.0, (1, 5, 6))), "Div"),
    "uniform view": (lambda: ops.mul(M, ops.transpose(ops.broadcast(ops.full(2.0, (1, 5)), (6, 5)))), "Mul"),
    "where": (lambda: ops.where(FLAG, X, ops.full_like(0, X)), "Where"),
    "boolean where": (lambda: ops.where(FLAG, FLAG, ops.not_(FLAG)), "Not And Not And Or"),
    "explicit broadcast": (lambda: ops.broadcast(BIAS, (4, 3)), "Expand"),
    "broadcast that adds a dim": (lambda: ops.broadcast(BIAS, (1, 3)), "Reshape"),
    "large uniform": (lambda: ops.concat([M, ops.full(1.0, (50, 6))]), "Expand Concat"),
    "small uniform": (lambda: ops.concat([M, ops.full(1.0, (1, 6))]), "Concat"),
    # views
    "reshapes": (lambda: ops.reshape(ops.reshape(X, (6, 4)), (24,)), "Reshape"),
    "transposes": (lambda: ops.transpose(ops.transpose(X, (1, 0, 2)), (0, 2, 1)), "Transpose"),
    "reshaped constant": (lambda: composites.add(X, ops.reshape(weight(3), (3, 1))), "Add"),
    "slice": (lambda: ops.slice_(X, [1], [None], [2], [2]), "Slice"),
    "flip": (lambda: ops.flip(X, 1), "Slice"),
    "parts in another order": (lambda: ops.concat(ops.split(X, [1, 3], 2)[::-1], 2), "Split Concat"),
    "parts with a gap": (
        lambda: ops.add(ops.slice_(X, [0], [1], [2]), ops.slice_(X, [3], [4], [2])),
        "Slice Slice Add",
    ),
    "pad": (lambda: ops.pad(M, (1, 0), (0, 2), 1.5), "Pad"),
    # products
    "product": (lambda: ops.matmul(M, weight(6, 7)), "MatMul"),
    "shared weight": (lambda: composites.matmul(X, weight(4, 5)), "MatMul"),
    "flattened product": (
        lambda: ops.reshape(ops.matmul(ops.reshape(X, (6, 4)), weight(4, 5)), (2, 3, 5)),
        "MatMul",
    ),
    "vector": (lambda: composites.matmul(X, weight(4)), "MatMul"),
    "attention": (
        attention,
        "MatMul Split Reshape Transpose Reshape Transpose MatMul Mul Softmax Reshape Transpose MatMul "
        "Transpose Reshape",
    ),
    # windows
    "conv": (padded_conv, "Conv"),
    "grouped conv": (lambda: ops.conv(IMAGE, weight(4, 1, 3, 3), groups=2, dilations=(2, 1)), "Conv"),
    "max pool": (lambda: composites.max_pool(IMAGE, (2, 2), (2, 2), (1, 1), (0, 0)), "MaxPool"),
    "mean pool": (lambda: mean_pool(False), "AveragePool"),
    "mean pool with padding": (lambda: mean_pool(True), "AveragePool"),
    "sum pool": (lambda: ops.pool("sum", IMAGE, (2, 2)), "AveragePool Mul"),
    "large pads": (lambda: ops.pool("max", IMAGE, (2, 2), None, (3, 0), (0, 0)), "Pad MaxPool"),
    "global mean pool": (lambda: composites.global_avg_pool(IMAGE), "ReduceMean"),
    # reductions
    "sum": (lambda: ops.sum_(X, (0, 2)), "ReduceSum"),
    "mean": (lambda: composites.mean(X, 1, True), "ReduceMean"),
    "mean of halves": (lambda: composites.mean(HALF, 1), "ReduceMean"),
    "norm": (lambda: composites.norm2(X, (1,)), "ReduceL2"),
    "sum of squares": (lambda: ops.sum_(composites.square(X), 1), "ReduceSumSquare"),
    "sum of sizes": (lambda: ops.sum_(ops.abs_(X), 1), "ReduceL1"),
    "logsumexp": (lambda: composites.logsumexp(X, (2,)), "ReduceLogSumExp"),
    "argmax": (lambda: ops.argmax(X, 1), "ArgMax"),
    # composites
    "softmax": (lambda: composites.softmax(X, 1), "Softmax"),
    "log softmax": (lambda: composites.log_softmax(X), "LogSoftmax"),
    "softmax read inside": (lambda: softmax_and_its_powers(), "ReduceMax Sub Exp ReduceSum Div Add"),
    "layer norm": (lambda: composites.layernorm(X, weight(4), weight(4)), "LayerNormalization"),
    "layer norms that share a scale": (lambda: two_layer_norms(), "LayerNormalization LayerNormalization Add"),
    "layer norm of two axes": (lambda: composites.layernorm(X, None, None, 1), "LayerNormalization"),
    "layer norm of halves": (lambda: composites.layernorm(HALF, weight(6, dtype="float16")), "LayerNormalization"),
    "instance norm": (lambda: instance_norm(), "InstanceNormalization"),
    "batch norm": (
        lambda: composites.batchnorm(IMAGE, weight(2), weight(2), weight(2), ops.abs_(weight(2))),
        "Abs BatchNormalization",
    ),
    "rms norm 23": (lambda: composites.rmsnorm(X, weight(4)), "RMSNormalization"),
    "gelu 20": (lambda: composites.gelu(X), "Gelu"),
    "tanh gelu 20": (lambda: composites.gelu(X, "tanh"), "Gelu"),
    "gelu of a quotient 20": (lambda: composites.gelu_of_quotient(X), "Gelu"),
    "gelu": (lambda: composites.gelu(X), "Mul Mul Erf Add Mul"),
    "silu": (lambda: composites.silu(X), "Sigmoid Mul"),
    "softplus": (lambda: composites.softplus(X), "Softplus"),
    "elu": (lambda: composites.elu(X, 0.5), "Elu"),
    "leaky relu": (lambda: composites.leaky_relu(X, 0.1), "LeakyRelu"),
    "steep leaky relu": (lambda: composites.leaky_relu(X, 3.0), "LeakyRelu"),
    "hard sigmoid": (lambda: composites.hard_sigmoid(X), "HardSigmoid"),
    "clip": (lambda: composites.clip(X, -1.0, 1.0), "Clip"),
    "remainder": (lambda: composites.fmod(X, ops.full_like(0.7, X)), "Mod"),
    # operators that ONNX spells differently
    "rsqrt": (lambda: ops.rsqrt(ops.abs_(X)), "Abs Sqrt Reciprocal"),
    "log1p": (lambda: ops.log1p(ops.abs_(X)), "Abs Add Add Equal Log Sub Div Add Where"),
    "cast": (lambda: ops.cast(X, "float16"), "Cast"),
    "gather": (lambda: ops.gather(M, ops.constant(np.array([[0, -1]])), 1), "Gather"),
}


def softmax_and_its_powers() -> Term:
    """A softmax whose exponentials are read elsewhere: one node for it would compute them twice."""
    powers = ops.exp(composites.sub(X, ops.amax(X, -1, True)))
    return ops.add(composites.softmax(X), powers)


def two_layer_norms() -> Term:
    first = composites.layernorm(X, weight(4))
    return ops.add(first, composites.layernorm(first, weight(4)))


def instance_norm() -> Term:
    unit = composites.layernorm(IMAGE, None, None, 2)
    scale, bias = ops.reshape(ops.input("s", (2,)), (2, 1, 1)), ops.reshape(ops.input("b", (2,)), (2, 1, 1))
    return composites.add(composites.mul(unit, scale), bias)


@pytest.mark.parametrize("name", FORMS)
def test_terms_have_their_shortest_form(name: str) -> None:
    build, wanted = FORMS[name]
    program = program_of(y=build())
    opset = int(name.split()[-1]) if name.split()[-1].isdigit() else 17
    model = to_onnx(program, opset=opset)
    assert nodes_of(model) == wanted
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == opset
    assert_runs_the_same(program, model)


@pytest.mark.parametrize("name", FORMS)
def test_exports_come_back_as_the_same_terms(name: str) -> None:
    """Or, where ONNX says it otherwise, as terms that compute the same."""
    program = program_of(y=FORMS[name][0]())
    back = from_onnx(to_onnx(program))
    if name not in OTHERWISE:
        assert back.outputs["y"] is program.outputs["y"]
    assert_equivalent(program, back, rtol=1e-6)


OTHERWISE = {
    "boolean where", "broadcast that adds a dim", "conv", "flattened product", "large pads",
    "layer norm of two axes", "positions", "reshaped constant", "reshapes", "rsqrt", "small uniform",
    "sum pool", "transposes", "uniform view",
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_written_log1p_keeps_all_digits(dtype: str) -> None:
    """Over all magnitudes, where its result is that of its operand too, and where it is infinite or NaN."""
    limits = np.finfo(dtype)
    powers = np.logspace(np.log10(float(limits.tiny)), np.log10(float(limits.max)) - 1, 10_000).astype(dtype)
    near = (-1 + np.geomspace(float(limits.eps), 1, 1000)).astype(dtype)
    special = [0, -0.0, -1, -2, np.inf, -np.inf, np.nan, limits.eps / 2, -limits.eps / 4, limits.max, limits.tiny / 2]
    x = np.concatenate([powers, -powers[powers < 1], near, np.array(special, dtype)])
    (found,) = run(to_onnx(program_of(y=ops.log1p(ops.input("x", x.shape, dtype)))), {"x": x})
    with np.errstate(all="ignore"):
        wanted = np.log1p(x.astype(np.longdouble)).astype(dtype)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    np.testing.assert_array_max_ulp(found[finite], wanted[finite], maxulp=4)


def test_a_written_log1p_of_a_view_comes_back() -> None:
    y = ops.log1p(ops.broadcast(ops.input("x", (3,)), (2, 3)))
    assert from_onnx(to_onnx(program_of(y=y))).outputs["y"] is y


# Names and constants


NODES = [row for row in COMPOSITES if row.onnx]

SPELLINGS: dict[Any, Callable[..., Term]] = {
    composites.gelu_of_quotient: composites.gelu,
    composites.gelu_of_halves: composites.gelu,
    composites.rmsnorm_by_reciprocal: composites.rmsnorm,
}
"""Composites that exporters write, and those that their operators are read as."""


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("row", NODES, ids=[f"{i} {row.onnx}" for i, row in enumerate(NODES)])
def test_every_composite_is_written_as_its_operator(row: Composite, dtype: str) -> None:
    root = row.example(dtype)
    model = to_onnx(program_of(y=root), opset=max(18, row.since))
    assert nodes_of(model) == row.onnx
    if row.build in SPELLINGS:  # comes back as the operator spells it
        operands = {name: ops.input(name, shape, dtype) for name, shape in row.operands.items()}
        assert from_onnx(model).outputs["y"] is SPELLINGS[row.build](**operands, **row.numbers)
    elif row.onnx != "LayerNormalization" or "scale" in row.operands:  # else it comes back with a scale of ones
        assert from_onnx(model).outputs["y"] is root


@pytest.mark.parametrize("row", NODES, ids=[f"{i} {row.onnx}" for i, row in enumerate(NODES)])
def test_every_composite_is_written_as_its_operator_with_operands_either_way_round(row: Composite) -> None:
    root = row.example()
    for seed in range(4):
        turned = either_way(root, random.Random(seed))
        assert nodes_of(to_onnx(program_of(y=turned), opset=max(18, row.since))) == row.onnx


def either_way(root: Term, rng: random.Random) -> Term:
    """The same with the operands of some sums, products and extremes exchanged, and 1 / x for some reciprocals."""
    made: dict[Term, Term] = {}
    for t in topological([root]):
        args = [made[a] for a in t.args]
        if t.op == "reciprocal" and rng.random() < 0.5:
            made[t] = ops.div(ops.full(1.0, t.shape, t.dtype), *args)
            continue
        commutes = t.op in ELEMENTWISE and "commutative" in ELEMENTWISE[t.op].traits
        made[t] = rebuilt(t, args[::-1] if commutes and rng.random() < 0.7 else args)
    return made[root]


def test_an_operator_is_not_found_where_an_operand_differs() -> None:
    """Of (x - mean(x)) * (y - mean(x)), which is no square."""
    x, other = ops.input("x", (2, 4)), ops.input("other", (2, 4))
    mean = composites.mean(x, (1,), True)
    away = [ops.sub(t, ops.broadcast(mean, t.shape)) for t in (x, other)]
    for a, b in (away, away[::-1]):
        variance = composites.mean(ops.mul(a, b), (1,), True)
        root = ops.sqrt(ops.add(variance, ops.full(1e-5, variance.shape)))
        norm = ops.div(away[0], ops.broadcast(root, x.shape))
        assert "LayerNormalization" not in nodes_of(to_onnx(program_of(y=norm)))


def test_names_of_inputs_and_outputs_are_kept_in_order() -> None:
    unused = ops.input("unused", (1,))
    y = ops.exp(X)
    program = Program((unused, X), {"second": y, "first": ops.neg(y), "again": y, "same": X})
    model = to_onnx(program)
    assert [value.name for value in model.graph.input] == ["unused", "x"]
    assert [value.name for value in model.graph.output] == ["second", "first", "again", "same"]
    assert nodes_of(model) == "Exp Neg Identity Identity"
    onnx.checker.check_model(model, full_check=True)
    assert_runs_the_same(program, model)


def test_names_that_would_collide_are_avoided() -> None:
    """Inputs and outputs called as the exporter would call its own values."""
    x = ops.input("exp_0", (2,))
    program = program_of(neg_0=ops.exp(ops.neg(ops.exp(x))), constant_0=ops.add(x, weight(2)))
    model = to_onnx(program)
    onnx.checker.check_model(model, full_check=True)
    assert_runs_the_same(program, model)


def test_a_constant_output_is_written() -> None:
    model = to_onnx(program_of(y=weight(3), z=ops.full(2.0, (2,))))
    assert [out.shape for out in run(model, {})] == [(3,), (2,)]


def test_equal_constants_are_stored_once() -> None:
    a, b = ops.matmul(M, weight(6, 6)), ops.input("other", (6, 6))
    model = to_onnx(program_of(y=ops.matmul(a, weight(6, 6)), z=ops.add(b, weight(6, 6))))
    assert len(model.graph.initializer) == 1


def test_every_value_has_its_type_written_down() -> None:
    model = to_onnx(program_of(y=attention(), z=ops.log1p(ops.abs_(X))))
    typed = {value.name for value in [*model.graph.value_info, *model.graph.output]}
    assert typed == {name for node in model.graph.node for name in node.output}
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    assert len(inferred.graph.value_info) == len(model.graph.value_info)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_keep_their_bits(dtype: str) -> None:
    values = weight(3, 4, dtype=dtype)
    x = ops.input("x", (2, 3), dtype)
    model = to_onnx(program_of(y=ops.matmul(x, values)))
    assert from_onnx(model).outputs["y"] is ops.matmul(x, values)
    assert model.graph.initializer[0].data_type == model.graph.input[0].type.tensor_type.elem_type


def test_bfloat16_convolutions_raise_the_opset() -> None:
    x = ops.input("x", (1, 1, 4), "bfloat16")
    model = to_onnx(program_of(y=ops.conv(x, weight(1, 1, 2, dtype="bfloat16"))))
    assert model.opset_import[0].version == 22
    onnx.checker.check_model(model, full_check=True)


# Files


def test_a_written_file_is_the_returned_model(tmp_path: Path) -> None:
    program = program_of(y=attention(), z=padded_conv())
    model = to_onnx(program, tmp_path / "model.onnx")
    assert onnx.load(tmp_path / "model.onnx") == model
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_large_constants_go_to_a_file_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not shapes and axes, which onnxruntime reads before it opens other files."""
    monkeypatch.setattr(onnx_save, "EMBEDDED_BYTES", 100)
    product = ops.matmul(M, weight(6, 300))
    program = program_of(
        y=ops.reduce("sum", ops.reshape(product, (M.shape[0], 3, 100)), (1,)), z=composites.add(M, weight(6))
    )
    path = tmp_path / "model.onnx"
    model = to_onnx(program, path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert [t.data_location for t in model.graph.initializer if t.dims == [6, 300]] == [onnx.TensorProto.EXTERNAL]
    onnx.checker.check_model(path, full_check=True)
    assert from_onnx(path).outputs == program.outputs
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = random_inputs(program)
    np.testing.assert_allclose(session.run(["y"], inputs)[0], program.run(inputs)["y"], 1e-4, 1e-4)  # type: ignore[arg-type]


def test_a_file_can_be_optimised_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its external data is mapped while it is replaced."""
    monkeypatch.setattr(onnx_save, "EMBEDDED_BYTES", 100)
    path = tmp_path / "model.onnx"
    program = program_of(y=ops.matmul(M, weight(6, 300)))
    to_onnx(program, path)
    to_onnx(from_onnx(path), path)
    assert from_onnx(path).outputs == program.outputs


# Random programs


def _pools_padding_alone(program: Program) -> bool:
    """Whether some window of a max pool holds nothing but padding: onnxruntime gives it the lowest finite number."""
    pools = {str(i): term for i, term in enumerate(program.terms()) if term.op == "pool"}
    values = Program(program.inputs, pools or program.outputs).run(random_inputs(program))
    return any(np.isneginf(value).any() for value in values.values())


def _casts_out_of_range(program: Program) -> bool:
    """Whether a number is cast to integers that do not hold it. ONNX leaves open what a float gives there; of a cast to
    int64 and one to int32, onnxruntime makes one."""
    casts = [term for term in program.terms() if term.op == "cast" and term.dtype in ("int32", "int64")]
    operands = {str(i): term.args[0] for i, term in enumerate(casts) if term.args[0].dtype != "bool"}
    values = Program(program.inputs, operands or program.outputs).run(random_inputs(program))
    held = {name: np.iinfo(casts[int(name)].dtype) for name in operands}
    return not all(((values[name] >= of.min) & (values[name] <= of.max)).all() for name, of in held.items())


@settings(max_examples=120)
@example(program_of(y=ops.cast(ops.cast(composites.scaled(BIAS, 1e20), "int64"), "int32")))
@given(programs(only=OPS.keys() - {"opaque", "conv", "pool"}, dtypes=("float32", "int64", "int32", "bool")))
def test_random_programs_survive_the_round_trip(program: Program) -> None:
    model = to_onnx(program)
    onnx.checker.check_model(model, full_check=True)
    assert_equivalent(program, from_onnx(model))
    if not _casts_out_of_range(program):
        assert_runs_the_same(program, model)


@settings(max_examples=60)
@given(programs(only={"conv", "pool", "pad", "add", "mul", "reshape", "slice", "transpose"}, dtypes=("float32",)))
def test_random_windows_survive_the_round_trip(program: Program) -> None:
    model = to_onnx(program)
    assert_equivalent(program, from_onnx(model), rtol=1e-6)
    if not _pools_padding_alone(program):
        assert_runs_the_same(program, model)


@pytest.mark.parametrize(("shape", "said"), [((1,) * 33, "33 dims"), ((1 << 31,), "elements; at most")])
def test_values_that_are_too_large_are_refused(shape: tuple[int, ...], said: str) -> None:
    x = ops.input("x", shape, "float32")
    with pytest.raises(InputError, match=said):
        to_onnx(Program((x,), {"y": ops.tanh(x)}))


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
@pytest.mark.parametrize(("shape", "axis"), [((50,), 0), ((2, 50, 3), 1), ((1, 50, 1), 1), ((0, 5), 1)])
def test_a_long_ramp_is_computed_by_the_model(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axis: int, dtype: str
) -> None:
    monkeypatch.setattr(form, "MOST_STORED", 8)
    x = ops.input("x", shape, dtype)
    program = Program((x,), {"y": ops.add(x, ops.iota(shape, axis, dtype)), "z": ops.iota(shape, axis, dtype)})
    model = to_onnx(program)
    assert all(np.prod(tensor.dims) <= 8 for tensor in model.graph.initializer)
    assert_runs_the_same(program, model)
