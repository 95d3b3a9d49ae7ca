"""The memory of the process itself: judged before anything large is allocated, with a labelled way out."""

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import ops, spec
from eqsat.check import check
from eqsat.demand import Demanded, everything
from eqsat.errors import CheckFailed, InputError
from eqsat.ir import Program
from eqsat.memory_limit import in_use, memory_limit

RNG = np.random.default_rng(2)
THIN = [RNG.standard_normal((512, 512)).astype(np.float32) for _ in range(2)]


def test_the_default_is_a_share_of_the_machine() -> None:
    assert memory_limit(None) > 1 << 26
    assert memory_limit(5) == 5
    assert in_use() >= 0


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
    assert check(source, result, memory=whole - 1).parts["sampled"] == 1
    with pytest.raises(CheckFailed, match="memory limit"):
        check(source, result, memory=1000)


def test_values_live_as_long_as_they_are_read() -> None:
    x = ops.input("x", (1000,), "float32")
    y = x
    for _ in range(50):
        y = ops.exp(y)
    assert Demanded({y: (None,)}).peak_bytes() == 2 * 8 * 1000
