"""ATen operators as terms and terms as ATen operators, on the samples that torch's own tests use (`OpInfo`)."""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import pytest

from eqsat.errors import InputError
from eqsat.frontends.torch.capture import captured
from eqsat.frontends.torch.module import from_torch, to_torch
from eqsat.frontends.torch.operators.table import is_known
from eqsat.frontends.torch.operators.tensors import to_numpy
from eqsat.frontends.torch.read import part_of
from eqsat.program import ops

torch = pytest.importorskip("torch")
expecttest = pytest.importorskip("expecttest", reason="torch's samples import it")

OPERATORS = (
    "abs add addmm baddbmm dot bmm mv addr addcmul addcdiv ceil chunk clamp clamp_min cos cross diff true_divide "
    "exp expand eq fmod remainder floor flip log1p ge gradient le log logaddexp logical_not logical_and "
    "logical_xor lt masked_fill matmul maximum minimum var_mean max_binary softmax log_softmax nn.functional.relu "
    "nn.functional.conv1d nn.functional.conv2d nn.functional.group_norm nn.functional.layer_norm "
    "nn.functional.batch_norm nn.functional.pad nn.functional.hardswish nn.functional.leaky_relu "
    "nn.functional.linear nn.functional.glu nn.functional.elu nn.functional.silu nn.functional.gelu "
    "nn.functional.softplus nn.functional.max_pool2d nn.functional.avg_pool1d nn.functional.embedding mean mul ne "
    "neg outer permute pow prod reciprocal repeat reshape roll round rsqrt rsub select sigmoid sign sin split "
    "sqrt square squeeze stack std sub sum tanh tile transpose trapezoid tril unbind unsqueeze where amax amin "
    "any all cat isnan isinf index_select full_like logsumexp einsum cumsum gather take_along_dim diagonal unfold "
    "slice_scatter select_scatter exp2 log2 log10 trunc linalg.vector_norm __getitem__ nn.functional.unfold "
    "nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.upsample_bilinear "
)
"""Names of `OpInfo`, of which the samples below include some that rows cover from end to end."""
SAMPLES = 3
HALVES = "add baddbmm gelu log_softmax mean mul sum where nn.functional.layer_norm nn.functional.gelu"

TOLERANCE = {"float32": (1e-4, 1e-5), "bfloat16": (3e-2, 3e-2)}
"""Relative and absolute."""


def opinfos() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for info in import_module("torch.testing._internal.common_methods_invocations").op_db:
        found.setdefault(info.name, []).append(info)
    return found


@pytest.fixture(scope="module")
def known() -> dict[str, list[Any]]:
    return opinfos()


def over_tensors(operator: Any, sample: Any) -> tuple[Any, list[Any]]:
    """The operator as a function of its tensors alone, which gives a list of tensors; and these tensors."""
    pytree = torch.utils._pytree
    flat, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]

    def function(*tensors: Any) -> list[Any]:
        filled = list(flat)
        for i, x in zip(places, tensors, strict=True):
            filled[i] = x
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return [x for x in pytree.tree_leaves(operator(*args, **kwargs)) if isinstance(x, torch.Tensor)]

    return function, [flat[i] for i in places]


def agrees(operator: Any, sample: Any, dtype: str) -> bool:
    """Compare program and module with torch on one sample; False where a node has no row, or changes an operand."""
    function, tensors = over_tensors(operator, sample)
    try:
        module, _ = captured(function, tensors)
    except InputError:  # it changes its operands
        return False
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    [end] = module.graph.find_nodes(op="output")
    results = [node for node in dict.fromkeys(end.args[0]) if node.op == "call_function"]
    if not results or not all(is_known(node) for node in calls):
        return False
    held = {node: ops.constant(to_numpy(node.meta["val"])) for node in module.graph.find_nodes(op="get_attr")}
    part = part_of(calls, results, held)
    given = dict(zip(module.graph.find_nodes(op="placeholder"), tensors, strict=True))
    inputs = [given[node] for node in part.inputs]
    by_name = dict(zip(part.program.input_names, map(to_numpy, inputs), strict=True))
    again = to_torch(part.program)(*inputs)
    computed = zip(part.program.run(by_name).values(), again if isinstance(again, tuple) else (again,), strict=True)
    wanted = dict(zip(end.args[0], function(*tensors), strict=True))
    for node, (array, tensor) in zip(results, computed, strict=True):
        expected = to_numpy(wanted[node].double())
        np.testing.assert_allclose(array.astype(np.float64), expected, *TOLERANCE[dtype])
        np.testing.assert_allclose(to_numpy(tensor.double()), expected, *TOLERANCE[dtype])
        assert (tensor.shape, tensor.dtype) == (wanted[node].shape, wanted[node].dtype)
    return True


@pytest.mark.parametrize(("dtype", "operators", "least"), [("float32", OPERATORS, 300), ("bfloat16", HALVES, 10)])
def test_samples_of_torch_compute_the_same_as_programs_and_as_modules(
    known: dict[str, list[Any]], dtype: str, operators: str, least: int
) -> None:
    compared = {name: 0 for name in operators.split() if name in known}
    for name in compared:
        for info in known[name]:
            if getattr(torch, dtype) in info.dtypes:
                for sample in islice(info.sample_inputs("cpu", getattr(torch, dtype)), SAMPLES):
                    compared[name] += agrees(info.op, sample, dtype)
    assert [name for name, count in compared.items() if not count] == []
    assert sum(compared.values()) >= least


WHOLE = {
    "cumsum": lambda x: (x > 0).cumsum(-1),
    "cummax": lambda x: x.cummax(2).values,
    "cummin": lambda x: x.cummin(1).values,
    "gather": lambda x: x.gather(2, (x[:, :, :3] > 0).long()),
    "topk": lambda x: x.topk(1).values,
    "smallest": lambda x: x.topk(1, 1, largest=False).values,
    "unfold": lambda x: x.unfold(3, 3, 2),
    "diagonal": lambda x: x.diagonal(-1, 2, 3),
    "nearest": lambda x: torch.nn.functional.interpolate(x, scale_factor=2),
    "nearest by size": lambda x: torch.nn.functional.interpolate(x, size=(18, 16)),
    "nearest-exact": lambda x: torch.nn.functional.interpolate(x, scale_factor=3, mode="nearest-exact"),
    "bilinear": lambda x: torch.nn.functional.interpolate(x, size=(9, 5), mode="bilinear"),
    "bicubic": lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bicubic"),
    "trilinear": lambda x: torch.nn.functional.interpolate(x[None], scale_factor=2, mode="trilinear"),
    "transposed": lambda x: torch.nn.functional.conv_transpose2d(x, torch.ones(3, 2, 3, 3), stride=2),
    "circular": lambda x: torch.nn.functional.pad(x, (1, 2, 2, 1), "circular"),
    "adaptive max": lambda x: torch.nn.functional.adaptive_max_pool2d(x, (3, 4)),
}
"""Of x[1, 3, 6, 8]."""


@pytest.mark.parametrize("name", WHOLE)
def test_what_torch_computes_as_one_operator_is_in_programs_and_back(name: str) -> None:
    function, x = WHOLE[name], torch.randn(1, 3, 6, 8)
    program = from_torch(function, x)
    assert program.opaque() == []
    [found] = program.run({program.input_names[0]: to_numpy(x)}).values()
    np.testing.assert_allclose(found, to_numpy(function(x)), *TOLERANCE["float32"])
    torch.testing.assert_close(to_torch(program)(x), function(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gather", "topk", "nearest", "bilinear", "transposed"])
def test_it_stays_one_operator_where_graphs_of_operators_are_the_result(name: str) -> None:
    module, _ = captured(lambda x: [WHOLE[name](x)], [torch.randn(1, 3, 6, 8)])
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    assert all(map(is_known, calls))
    left = {str(node.target) for node in calls if not is_known(node, but_whole=True)}
    assert len(left - {"<built-in function getitem>"}) == 1


@pytest.mark.parametrize("align_corners", [True, False])
def test_images_of_float64_are_resized_in_float64(align_corners: bool) -> None:
    def resized(x: Any) -> Any:
        return torch.nn.functional.interpolate(x, (70, 7), mode="bilinear", align_corners=align_corners)

    x = torch.rand(2, 3, 30, 5, dtype=torch.float64)
    [found] = from_torch(resized, x, input_names=["x"]).run({"x": to_numpy(x)}).values()
    np.testing.assert_allclose(found, to_numpy(resized(x)), rtol=1e-12, atol=1e-12)


CARRIED = {
    "sort": lambda x: x.sort(-1).values,
    "topk": lambda x: x.topk(3).values,
    "scatter": lambda x: x.scatter(1, torch.zeros(1, 2, 6, 8, dtype=torch.int64), 1.0),
    "index_put": lambda x: x.index_put((torch.tensor([0]),), x),
    "_adaptive_avg_pool2d": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (4, 3)),
    "upsample_nearest2d": lambda x: torch.nn.functional.interpolate(x, size=(7, 5)),
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_no_row_covers_is_carried_by_its_name(name: str) -> None:
    function, x = CARRIED[name], torch.randn(1, 3, 6, 8)
    program = from_torch(function, x)
    assert [called.split(".")[1] for called in program.opaque()] == [name]
    torch.testing.assert_close(to_torch(program)(x), function(x))
