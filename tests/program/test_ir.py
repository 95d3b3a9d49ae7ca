"""Terms are shared, immutable and print well; programs check their inputs and count their cost."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from eqsat.errors import DtypeError, InputError
from eqsat.program import composites, ops
from eqsat.program.fold import fold_constants
from eqsat.program.ir import Program
from eqsat.program.term import ConstArray, Term, digest_all, distinguish, make
from eqsat.testing import programs, random_inputs


def softmax_of_linear() -> Program:
    x = ops.input("x", (8, 4))
    w = ops.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    return Program((x,), {"p": composites.softmax(ops.matmul(x, w))})


# Terms


def test_equal_terms_are_one_object() -> None:
    assert softmax_of_linear().outputs["p"] is softmax_of_linear().outputs["p"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (0.0, -0.0),
        (1.0, 2.0),
        (float("nan"), 0.0),
    ],
)
def test_floats_that_differ_in_bits_differ(a: float, b: float) -> None:
    assert ops.full(a) is not ops.full(b)


def test_one_and_true_are_different_values() -> None:
    assert ops.full(1, (), "int64") is not ops.full(True, (), "bool")
    assert ops.full(float("nan")) is ops.full(float("nan"))


def test_terms_cannot_be_changed() -> None:
    x = ops.input("x", (2,))
    with pytest.raises(AttributeError, match="immutable"):
        x.shape = (3,)
    with pytest.raises(AttributeError, match="immutable"):
        del x.shape
    assert copy.deepcopy(x) is x


def test_terms_that_nobody_holds_are_freed() -> None:
    from eqsat.program.term import _TERMS

    gc.collect()
    before = len(_TERMS)
    x = ops.input("only here", (2,))
    for _ in range(50):
        x = ops.exp(x)
    assert len(_TERMS) == before + 51
    del x
    gc.collect()
    assert len(_TERMS) == before


def test_attributes_arrive_in_one_form() -> None:
    x = ops.input("x", (2, 3))
    assert make("transpose", x, perm=[np.int64(1), 0]) is make("transpose", x, perm=(1, 0))
    assert make("transpose", x, perm=(1, 0)).attr("perm") == (1, 0)
    with pytest.raises(KeyError, match="transpose has no attribute 'axis'"):
        make("transpose", x, perm=(1, 0)).attr("axis")


# Constants


def test_constants_are_compared_by_value() -> None:
    a, b = np.array([1.0, 2.0]), np.array([1.0, 2.0])
    assert ConstArray(a) == ConstArray(b)
    assert ops.constant(a) is ops.constant(b)
    assert ops.constant(a) is not ops.constant(a.reshape(1, 2))
    assert ops.constant(a) is not ops.constant(a.astype(np.float32))
    assert ConstArray(a).digest == ConstArray(a.reshape(2, 1)).digest


@pytest.mark.parametrize("share", [lambda a: a, lambda a: a[:], lambda a: np.broadcast_to(a, (2, 3))])
def test_constants_do_not_follow_the_array_they_were_made_of(share: Any) -> None:
    mine = np.zeros(3)
    value = ConstArray(share(mine))
    mine[0] = 1
    assert not value.array.any()
    assert not value.array.flags.writeable
    assert mine.flags.writeable


def test_large_constants_are_hashed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [np.frombuffer(bytes([i]) * (1 << 23), np.uint8) for i in range(2)]
    digests = [ConstArray(a.copy()).digest for a in arrays]
    both = threading.Barrier(2)

    def waits(array: np.ndarray) -> list[memoryview]:
        both.wait(30)
        return [array.data]

    def refuse(array: np.ndarray) -> list[memoryview]:
        raise AssertionError("hashed already")

    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setattr("eqsat.program.term.blocks", waits)
    digest_all(arrays)
    monkeypatch.setattr("eqsat.program.term.blocks", refuse)
    assert [ConstArray(a).digest for a in arrays] == digests


def test_arrays_over_immutable_bytes_are_not_copied() -> None:
    data = np.frombuffer(bytes(32))
    assert np.shares_memory(ConstArray(data).array, data)


# Printing


def test_a_program_prints_one_line_per_term() -> None:
    assert (
        str(softmax_of_linear())
        == """\
%0: f32[8,4] = input("x")
%1: f32[4,3] = constant(#b9c72869)
%2: f32[8,3] = matmul(%0, %1)
%3: f32[8,1] = max(%2, axes=(1,), keepdims)
%4: f32[8,3] = broadcast(%3, shape=(8, 3))
%5: f32[8,3] = sub(%2, %4)
%6: f32[8,3] = exp(%5)
%7: f32[8,1] = sum(%6, axes=(1,), keepdims)
%8: f32[8,3] = broadcast(%7, shape=(8, 3))
%9: f32[8,3] = div(%6, %8)
return p=%9"""
    )


def test_every_kind_of_attribute_prints() -> None:
    x, unread = ops.input("x", (1, 2, 4), "bfloat16"), ops.input("unread", (), "int64")
    y = ops.conv(x, ops.full(0.5, (2, 2, 3), "bfloat16"), pads_lo=(1,))
    z = ops.gather(y, ops.constant([1, 0]), 1)
    (carried,) = ops.opaque("Mystery", [z], [((3,), "float32")], b"...", lambda a: (a,))
    assert (
        str(Program((x, unread), {"y": y, "z": carried}))
        == """\
%0: bf16[1,2,4] = input("x")
%1: i64[] = input("unread")
%2: bf16[2,2,3] = full(value=0.5, shape=(2, 2, 3))
%3: bf16[1,2,3] = conv(%0, %2, strides=(1,), pads_lo=(1,), pads_hi=(0,), dilations=(1,), groups=1)
%4: i64[2] = constant([1, 0])
%5: bf16[1,2,3] = gather(%3, %4, axis=1)
%6: f32[3] = opaque(%5, name='Mystery', index=0)
return y=%3, z=%6"""
    )


# Programs


X, Y = ops.input("x", (2, 3)), ops.input("y", (2, 3))


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ((X,), {}, "at least one output"),
        ((ops.exp(X),), {"y": X}, "inputs are input terms"),
        ((X, ops.input("x", (1,))), {"y": X}, "two inputs are called 'x'"),
        ((X,), {"y": ops.add(X, Y)}, "input 'y' is used but not listed"),
    ],
)
def test_a_program_that_does_not_hang_together_is_refused(
    inputs: tuple[Term, ...], outputs: dict[str, Term], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Program(inputs, outputs)


GOOD = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"x": GOOD}, InputError, "input 'y' is missing: the program takes x, y"),
        ({"x": GOOD, "y": GOOD, "z": GOOD}, InputError, "no input is called 'z': the program takes x, y"),
        ({"x": GOOD, "y": GOOD.T}, InputError, "input 'y' takes shape (2, 3), got (3, 2)"),
        ({"x": GOOD, "y": GOOD.astype(float)}, DtypeError, "input 'y' takes float32, got float64"),
        ({"x": GOOD, "y": GOOD.astype(complex)}, DtypeError, "unsupported element type complex128"),
    ],
)
def test_a_run_checks_its_inputs(inputs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        Program((X, Y), {"z": ops.add(X, Y)}).run(inputs)
    assert message in str(caught.value)


def test_a_run_in_float64_takes_any_floats() -> None:
    got = Program((X,), {"y": ops.exp(X)}).run({"x": GOOD.astype(np.float16)}, "float64")
    assert got["y"].dtype == np.float64


def test_an_opaque_operator_with_two_results_runs_once_and_is_listed_once() -> None:
    calls: list[tuple[int, ...]] = []

    def halves(a: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        calls.append(a.shape)
        assert a.dtype == np.float32
        return np.split(a, 2)

    left, right = ops.opaque("Halve", [X], [((1, 3), "float32")] * 2, "spec", halves)
    p = Program((X,), {"l": left, "r": ops.neg(right)})
    got = p.run({"x": np.arange(6, dtype=np.float64).reshape(2, 3)}, "float64")
    np.testing.assert_array_equal(got["r"], [[-3, -4, -5]])
    assert got["r"].dtype == np.float64
    assert calls == [(2, 3)]
    assert p.opaque() == ["Halve"]


def test_values_are_freed_after_their_last_reader() -> None:
    import tracemalloc

    x = y = ops.input("x", (1 << 20,))
    for _ in range(20):
        y = ops.neg(y)
    array = np.zeros(1 << 20, np.float32)
    tracemalloc.start()
    Program((x,), {"y": y}).run({"x": array})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * array.nbytes


@given(programs(max_ops=5))
def test_a_program_survives_pickling_as_itself(p: Program) -> None:
    q = pickle.loads(pickle.dumps(p))
    assert list(q.outputs.values()) == list(p.outputs.values())
    assert q.inputs == p.inputs


def test_deep_programs_are_walked_without_recursion() -> None:
    x = y = ops.input("x", ())
    for _ in range(5000):
        y = ops.neg(y)
    p = Program((x,), {"y": y})
    assert pickle.loads(pickle.dumps(p)).run({"x": np.float32(3)})["y"] == 3
    assert len(str(p).splitlines()) == 5002


@given(programs())
def test_running_twice_gives_the_same_bits(p: Program) -> None:
    inputs = random_inputs(p)
    for a, b in zip(p.run(inputs).values(), p.run(inputs).values(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("array", [np.ma.masked_equal(np.ones((2, 2)), 1), np.ones((2, 2)).view(np.matrix)])
def test_arrays_that_compute_in_another_way_are_refused(array: Any) -> None:
    x = ops.input("x", (2, 2), "float64")
    with pytest.raises(InputError, match=r"input 'x' is a (masked array|numpy\.matrix), and its"):
        Program((x,), {"y": ops.neg(x)}).run({"x": array})


def test_outputs_have_memory_of_their_own() -> None:
    x, w = ops.input("x", (2, 2)), ops.constant(np.ones((2, 2), np.float32))
    y = ops.neg(x)
    p = Program((x,), {"x": x, "turned": ops.transpose(x, (1, 0)), "w": w, "row": ops.broadcast(w, (2, 2, 2)), "y": y})
    p = Program(p.inputs, {**p.outputs, "again": y, "flat": ops.reshape(y, (4,))})
    given = {"x": np.ones((2, 2), np.float32)}
    expected = {name: array.copy() for name, array in p.run(given).items()}
    found = p.run(given)
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
        array += 5
    for name, array in p.run(given).items():
        np.testing.assert_array_equal(array, expected[name])


# Costs


def test_stats_count_what_varies_and_no_views() -> None:
    x = ops.input("x", (8, 4))
    w = ops.constant(np.ones((4, 3), np.float32))
    scaled = ops.mul(w, w)  # constant work is free
    y = composites.add(ops.matmul(x, scaled), ops.full(1, (3,)))
    p = Program((x,), {"y": ops.transpose(ops.relu(y))})
    elements = 8 * 3
    matmul_bytes = 4 * (8 * 4 + 4 * 3 + elements)
    assert p.stats() == {
        "flops": 2 * 8 * 4 * 3 + 2 * elements,
        "matmul_flops": 2 * 8 * 4 * 3,
        "bytes": matmul_bytes + 4 * 3 * elements + 4 * 2 * elements,
        "unfused_kernels": 3,
    }


def test_a_program_of_constants_costs_nothing() -> None:
    w = ops.constant(np.ones((4, 4), np.float32))
    assert set(Program((), {"y": ops.matmul(w, w)}).stats().values()) == {0}


def test_large_arrays_are_known_by_the_names_that_they_are_given() -> None:
    """Small ones, which take no time to read, by their contents."""
    large, alike, small, equal = (np.zeros(n, np.int64) for n in (1 << 14, 1 << 14, 8, 8))
    for array, name in ((large, "one"), (alike, "two"), (small, "one"), (equal, "two")):
        array.flags.writeable = False
        distinguish(array, lambda name=name: name)
    again = np.zeros(1 << 14, np.int64)
    again.flags.writeable = False
    distinguish(again, lambda: "one")
    assert ConstArray(large) != ConstArray(alike)
    assert ConstArray(large) == ConstArray(again)
    assert ConstArray(large.reshape(2, -1)).digest == ConstArray(large).digest
    distinguish(large.reshape(2, -1), lambda: "two")
    assert ConstArray(large) == ConstArray(again), "what is known stays known as that"
    assert ConstArray(small) == ConstArray(equal)


def test_a_constant_in_another_order_is_copied_when_its_elements_are_needed_in_a_row() -> None:
    w = np.arange(1 << 16, dtype=np.float32).reshape(256, 256).copy()
    w.flags.writeable = False
    turned = ConstArray.moved(w.T, "w turned round")
    assert np.shares_memory(turned.view, w)
    assert turned == ConstArray.moved(w.T, "w turned round")
    assert turned != ConstArray.moved(w.T, "another one")
    back, _ = fold_constants(Program((), {"w": ops.transpose(ops.constant(turned), (1, 0))}))
    assert np.shares_memory(back.outputs["w"].attr("value").view, w), "turned back, it is the array itself"
    assert turned.array.flags.c_contiguous
    assert not turned.array.flags.writeable
    np.testing.assert_array_equal(turned.array, w.T)
    assert ConstArray(turned.array) == turned
    assert pickle.loads(pickle.dumps(turned)) == turned
    row = ConstArray.moved(w.reshape(-1)[: 1 << 15], "half of it")
    assert pickle.loads(pickle.dumps(row)) == row == ConstArray(row.array)
    assert ops.constant(row, "float16").attr("value").view.dtype == np.float16
