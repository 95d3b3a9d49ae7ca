"""Numbers and constants of models at several sizes, as forms of named dims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from eqsat.frontends.onnx.dims.arithmetic import Arithmetic
from eqsat.frontends.onnx.dims.constants import Varying
from eqsat.frontends.onnx.dims.forms import Form, Point, dim, fit
from eqsat.frontends.onnx.file.load import CODE_OF_DTYPE

POINTS = [{"b": 5, "s": 12}, {"b": 7, "s": 12}, {"b": 5, "s": 10}, {"b": 8, "s": 16}]
OTHERS = [{"b": 1, "s": 1}, {"b": 2, "s": 9}, {"b": 8, "s": 3}]


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (lambda b, s: 7, "7"),
        (lambda b, s: s, "s"),
        (lambda b, s: 2 * s - 1, "2*s + -1"),
        (lambda b, s: 16 - s, "-1*s + 16"),
        (lambda b, s: b * s, "b*s"),
        (lambda b, s: 3 * b * s + 4, "3*b*s + 4"),
        (lambda b, s: s * s, "s*s"),
        (lambda b, s: b + 2 * s, "b + 2*s"),
        (lambda b, s: s // 2 + b % 2, "None"),
    ],
)
def test_a_number_is_fitted(number: Callable[[int, int], int], shown: str) -> None:
    found = fit([number(point["b"], point["s"]) for point in POINTS], POINTS)
    assert str(found) == shown
    if found is not None:
        assert [found.at(point) for point in OTHERS] == [number(point["b"], point["s"]) for point in OTHERS]


TABLE = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)

CONSTANTS: dict[str, Callable[[int, int], np.ndarray]] = {
    "one over a dim": lambda b, s: np.array(1 / s, np.float32),
    "scaled": lambda b, s: (TABLE[:2] * b).astype(np.float32),
    "first rows": lambda b, s: TABLE[:s],
    "last rows": lambda b, s: TABLE[16 - s :],
    "rows for each of a batch": lambda b, s: np.broadcast_to(TABLE[:s], (b, s, 3)),
    "mask": lambda b, s: np.tril(np.ones((s, s), bool)),
    "positions": lambda b, s: np.arange(s).reshape(1, s),
    "flat positions": lambda b, s: np.arange(b * s).reshape(b, 1, s),
    "distances": lambda b, s: np.arange(s)[:, None] - np.arange(s)[None, :],
    "numbers": lambda b, s: np.full((b, s), 3, np.int64),
}


def values(name: str, point: Point) -> np.ndarray:
    return np.ascontiguousarray(CONSTANTS[name](point["b"], point["s"]))


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_computed_at_other_sizes(name: str) -> None:
    to = Arithmetic({"b": ("x", 0, dim("b")), "s": ("x", 1, Form(((2, ("s",)),), 1))})
    arrays = [values(name, point) for point in POINTS]
    found = Varying(arrays, POINTS, True, lambda axis: False).written(to)
    assert found is not None
    x = helper.make_tensor_value_info("x", CODE_OF_DTYPE["bool"], ["b", "t"])
    y = helper.make_tensor_value_info(found, CODE_OF_DTYPE[arrays[0].dtype.name], None)
    stored = [numpy_helper.from_array(array, own) for own, array in to.constants.items()]
    graph = helper.make_graph(to.nodes, "g", [x], [y], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for point in [*POINTS, *OTHERS]:
        [out] = session.run(None, {"x": np.zeros((point["b"], 2 * point["s"] + 1), bool)})
        made, wanted = np.asarray(out), values(name, point)
        assert (made.shape, made.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(made, wanted, 1e-6)


@pytest.mark.parametrize("kind", ["noise", "noise in the rows"])
def test_a_constant_without_a_form_is_none(kind: str) -> None:
    rng = np.random.default_rng(0)
    shape = (lambda s: (s, 3)) if kind == "noise" else lambda s: (3,)
    arrays = [rng.standard_normal(shape(point["s"])).astype(np.float32) for point in POINTS]
    assert Varying(arrays, POINTS, True, lambda axis: False).written(Arithmetic({})) is None


def test_sizes_take_no_name_of_the_model() -> None:
    """A model that was written so has names of this kind, and keeps them."""
    to = Arithmetic({"b": ("x", 0, dim("b"))}, taken=["sizes/number_0", "sizes/concat_4"])
    found = to.vector([dim("b"), Form((), 3)])
    assert found not in {"sizes/number_0", "sizes/concat_4"}
    names = [*to.constants, *(each.name for each in to.nodes)]
    assert len(set(names)) == len(names)
    assert not {"sizes/number_0", "sizes/concat_4"} & set(names)
