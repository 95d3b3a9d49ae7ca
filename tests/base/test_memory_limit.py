"""The memory limit of the process: checked before large allocations; the report names the fallback."""

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.base.memory_limit import _group_files, collector_paused, in_use, memory_limit
from eqsat.check.check import check
from eqsat.check.demand import Demanded
from eqsat.check.means import Means
from eqsat.check.wanted import everything
from eqsat.errors import CheckFailed, InputError
from eqsat.program import constants, fold, ops
from eqsat.program.ir import Program

RNG = np.random.default_rng(2)
THIN = [RNG.standard_normal((512, 512)).astype(np.float32) for _ in range(2)]


def test_the_default_is_a_share_of_the_machine() -> None:
    assert memory_limit(None) > 1 << 26
    assert memory_limit(5) == 5
    assert in_use() >= 0


def test_the_collector_pauses_until_the_last_thread_is_done() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collector_paused():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with collector_paused():
        thread.start()
        entered.wait()
        assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_paused_collector_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_search_leaves_hardly_any_cyclic_garbage() -> None:
    """The collector is paused meanwhile: what it would find is kept until the end."""
    w = [RNG.standard_normal((64, 64)).astype(np.float32) for _ in range(4)]
    program = eqsat.trace(lambda x: eqsat.softmax((x @ w[0]) @ (x @ w[1]).T) @ (x @ w[2] + 1) @ w[3], spec((96, 64)))
    eqsat.optimize(program, time_limit=20)
    gc.collect()
    gc.disable()
    try:
        eqsat.optimize(program, time_limit=20)
        assert gc.collect() < 10_000
    finally:
        gc.enable()


def test_the_default_is_no_more_than_the_address_space_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda which: (mapped + (1 << 28), resource.RLIM_INFINITY))
    assert 0 < memory_limit(None) <= in_use() + (1 << 28)


def test_the_groups_of_a_process_limit_it() -> None:
    found = [str(path) for path in _group_files("1:cpu:/a\n2:memory:/a/b\n0::/\n")]
    root = "/sys/fs/cgroup"
    v1 = [f"{root}/memory{group}/memory.limit_in_bytes" for group in ("/a/b", "/a", "")]
    assert found == [*v1, f"{root}/memory.max"]


def test_a_part_of_what_is_too_much_work_ahead_of_time_is_not_computed_either(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (constants, fold):
        monkeypatch.setattr(module, "FOLDED_WORK", 1000)
    monkeypatch.setattr(fold, "WORK", 1000)
    product = ops.matmul(*(ops.constant(array) for array in THIN))
    row = ops.slice_(product, (3, 0), (4, 512))
    best = eqsat.optimize(Program((), {"y": row}), rules=[])
    assert {array.size for array in best.plan.constants.values()} == {512 * 512}, "the operands, not the row"
    np.testing.assert_allclose(best.compile()(), (THIN[0] @ THIN[1])[3:4], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "4G"])
def test_a_limit_is_a_number_of_bytes(given: Any) -> None:
    with pytest.raises(InputError, match="memory_limit"):
        memory_limit(given)


def chain() -> Program:
    """(x @ a) @ b, for which a @ b is computed ahead."""
    return eqsat.trace(lambda x: (x @ THIN[0]) @ THIN[1], spec((64, 512)))


def test_constants_that_do_not_fit_are_not_computed() -> None:
    source = chain()
    free = eqsat.optimize(source)
    assert free.report["result"]["matmul_flops"] < source.stats()["matmul_flops"]
    assert "memory" not in free.report
    tight = eqsat.optimize(source, memory_limit=1)
    assert tight.report["result"]["matmul_flops"] == source.stats()["matmul_flops"]
    assert tight.report["memory"] == {"limit": 1, "parts": 1, "of": 1}
    x = RNG.standard_normal((64, 512)).astype(np.float32)
    np.testing.assert_allclose(tight.compile()(x), x @ THIN[0] @ THIN[1], rtol=1e-3, atol=1e-2)


def test_values_that_do_not_fit_are_checked_by_samples() -> None:
    x = ops.input("x", (512, 512), "float32")
    w = ops.constant(THIN[0])
    source = Program((x,), {"y": ops.relu(ops.matmul(x, w))})
    turned = ops.transpose(ops.matmul(ops.constant(THIN[0].T.copy()), ops.transpose(x)))
    result = Program((x,), {"y": ops.relu(turned)})
    whole = Demanded({p.outputs["y"]: everything(p.outputs["y"]) for p in (source, result)}).peak_bytes()
    assert whole >= 3 * 8 * x.size
    assert check(source, result).parts["full"] == 1
    assert check(source, result, means=Means(memory=whole - 1)).parts["sampled"] == 1
    with pytest.raises(CheckFailed, match="memory limit"):
        check(source, result, means=Means(memory=1000))


def test_values_live_as_long_as_they_are_read() -> None:
    x = ops.input("x", (1000,), "float32")
    y = x
    for _ in range(50):
        y = ops.exp(y)
    assert Demanded({y: (None,)}).peak_bytes() == 2 * 8 * 1000
