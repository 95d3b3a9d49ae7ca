"""A busy machine does not change what is found while limits are far away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.base.time_budget import TimeBudget
from eqsat.egraph.saturate import _next_end
from eqsat.search import form, search
from eqsat.search.asked import judged
from eqsat.search.runner import Runner

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("device", ["mi300x", "cpu"])
def test_a_slow_first_cover_leaves_as_many_e_nodes_and_kernels(device: str) -> None:
    w = RNG.standard_normal((48, 48)).astype(np.float32)
    program = eqsat.trace(lambda x: eqsat.softmax((x @ w) @ w + 1), spec((64, 48)))
    run = Runner(TimeBudget.of(60))
    given = None, None, 1.0, 1, "latency", None, None, False, 1
    problem = search.partition(program, judged(program, device, "reassociate", *given), run)
    sought = problem.sought(next(iter(problem.sizes())))
    written = form.cover_written(sought, 5.0, run)
    seconds = {stage: 1000 * s for stage, s in written.cover.stats["seconds"].items()}
    slow = replace(written, cover=replace(written.cover, stats={**written.cover.stats, "seconds": seconds}))
    assert form._affordable(slow, 20.0) == form._affordable(written, 20.0)
    assert form._at_first(run.deadline(20.0), sought, slow, written.snapshot) is form._at_first(
        run.deadline(20.0), sought, written, written.snapshot
    )


def test_an_iteration_that_was_held_up_does_not_foretell_a_much_longer_one() -> None:
    assert _next_end([0.0, 0.01, 2.01], [100, 100, 100]) == pytest.approx(4.01)
    assert _next_end([0.0, 0.01, 2.01], [100, 150, 300]) == pytest.approx(10.01)
    assert _next_end([0.0, 1.0, 3.0], [100, 150, 300]) == 7.0, "as the one before"
    assert _next_end([0.0, 1.0, 2.0], [100, 150, 300]) == 4.0, "as the e-nodes"
