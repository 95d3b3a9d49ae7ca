"""Weights stay in their files: they are mapped, hashed and written in streams, and their pages released."""

from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.base import mapped
from eqsat.errors import InputError
from eqsat.frontends.onnx.file import wire as onnx_wire
from eqsat.frontends.onnx.write import save as onnx_save
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import ConstArray

WEIGHT = np.random.default_rng(5).standard_normal((96, 512)).astype(np.float32)


def model(path: Path, weight: np.ndarray = WEIGHT) -> onnx.ModelProto:
    """relu(x @ weight) with a weight in the file itself."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, weight.shape[0]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, weight.shape[1]])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, path)
    return made


def constants(program: Program) -> list[np.ndarray]:
    return [t.attr("value").array for t in program.terms() if t.op == "constant"]


def is_mapped(array: np.ndarray) -> bool:
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    return type(base).__name__ == "mmap"


def test_weights_of_a_large_file_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    made = model(path)
    assert not is_mapped(constants(eqsat.from_onnx(path))[0])
    monkeypatch.setattr(onnx_wire, "MAPPED_BYTES", 1)
    (found,) = constants(eqsat.from_onnx(path))
    assert is_mapped(found)
    np.testing.assert_array_equal(found, WEIGHT)
    stripped = onnx_wire.without_weights(path)
    assert stripped is not None
    assert len(stripped.SerializeToString()) < 1000
    stripped.graph.initializer[0].CopyFrom(made.graph.initializer[0])
    assert stripped == made


@pytest.mark.parametrize("cut", [1, 100, WEIGHT.nbytes // 2])
def test_a_truncated_large_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    path = tmp_path / "m.onnx"
    model(path)
    path.write_bytes(path.read_bytes()[:-cut])
    monkeypatch.setattr(onnx_wire, "MAPPED_BYTES", 1)
    with pytest.raises(InputError, match="truncated or damaged"):
        eqsat.from_onnx(path)


def test_a_link_to_another_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blobs").mkdir()
    model(tmp_path / "blobs" / "m")
    (tmp_path / "m.onnx").symlink_to(tmp_path / "blobs" / "m")
    monkeypatch.setattr(onnx_wire, "MAPPED_BYTES", 1)
    np.testing.assert_array_equal(constants(eqsat.from_onnx(tmp_path / "m.onnx"))[0], WEIGHT)


@pytest.mark.parametrize("embedded", [True, False])
def test_large_constants_are_written_once_and_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedded: bool
) -> None:
    x = ops.input("x", (4, 96), "float32")
    program = Program((x,), {"y": ops.matmul(x, ops.constant(WEIGHT))})
    monkeypatch.setattr(onnx_save, "RETURNED_BYTES", 1000)
    monkeypatch.setattr(mapped, "BLOCK_BYTES", 1 << 16)
    if not embedded:
        monkeypatch.setattr(onnx_save, "EMBEDDED_BYTES", 1000)
    returned = eqsat.to_onnx(program, tmp_path / "m.onnx")
    assert returned.ByteSize() < 1000
    onnx.load_external_data_for_model(returned, str(tmp_path))
    np.testing.assert_array_equal(numpy_helper.to_array(returned.graph.initializer[0]), WEIGHT)
    np.testing.assert_array_equal(constants(eqsat.from_onnx(tmp_path / "m.onnx"))[0], WEIGHT)
    names = ["m.onnx"] if embedded else ["m.onnx", "m.onnx.data"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_a_model_can_take_the_place_of_that_it_was_mapped_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    model(path)
    monkeypatch.setattr(onnx_wire, "MAPPED_BYTES", 1)
    program = eqsat.from_onnx(path)
    eqsat.to_onnx(program, path)
    np.testing.assert_array_equal(constants(program)[0], WEIGHT)
    np.testing.assert_array_equal(constants(eqsat.from_onnx(path))[0], WEIGHT)


def test_digests_of_shared_memory_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(1 << 16, dtype=np.float32)
    array.flags.writeable = False
    first = ConstArray(array).digest
    monkeypatch.setattr("eqsat.program.term.blocks", lambda _: pytest.fail("read again"))
    assert ConstArray(array.reshape(256, 256)).digest == first
    monkeypatch.undo()
    del array
    other = np.arange(1, (1 << 16) + 1, dtype=np.float32)
    other.flags.writeable = False
    assert ConstArray(other).digest != first


def test_pages_are_let_go_of_and_come_back(tmp_path: Path) -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    values.tofile(tmp_path / "w")
    array = mapped.map_file(tmp_path / "w", np.dtype(np.float32), 12, (1 << 19,))
    mapped.release(array)
    np.testing.assert_array_equal(array, values[3 : 3 + (1 << 19)])
    mapped.release(values)
    np.testing.assert_array_equal(values, np.arange(1 << 20, dtype=np.float32))
    assert b"".join(mapped.blocks(array)) == array.tobytes()


@pytest.mark.parametrize("mode", ["c", "r+"])
@pytest.mark.parametrize("frozen", [False, True])
def test_what_was_written_to_a_mapped_array_is_kept(tmp_path: Path, mode: Literal["c", "r+"], frozen: bool) -> None:
    """Copied on writing, its pages are all there is of it."""
    np.save(tmp_path / "x.npy", np.zeros((1 << 18, 2), np.float16))
    x = np.load(tmp_path / "x.npy", mmap_mode=mode)
    x[:] = 3
    x.flags.writeable = not frozen
    mapped.release(x)
    assert (x == 3).all()
    program = eqsat.trace(lambda x: eqsat.relu(x[:, ::-1] * 2 + 1), eqsat.spec(x.shape, "float16"))
    eqsat.optimize(program, inputs={"x": x}, time_limit=3)  # also looked at for overflow
    weight = ops.constant(x)
    assert eqsat.to_onnx(Program((), {"y": ops.add(weight, weight)})).graph.output
    assert (x == 3).all()
