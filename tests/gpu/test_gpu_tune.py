"""Tuning with a stand-in for CuPy: the variants proposed, wrong ones refused, the best kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import InputError
from eqsat.extract.plan.plan import Plan
from eqsat.gpu.build import compilers
from eqsat.gpu.families.base import Choice
from eqsat.gpu.launch.lower import Launch, LibraryProduct
from eqsat.gpu.run import choices, tune
from eqsat.gpu.run.choices import Chooser
from eqsat.gpu.run.cupy_runtime import GpuPlan
from eqsat.gpu.run.timing import Timed, random_arrays
from eqsat.gpu.table.targets import TARGETS
from eqsat.layout.arithmetic import strided
from eqsat.program.core import Node, make
from support.fake_cupy import FakeCupy
from support.gpu_programs import PROGRAMS, assert_program_results, inputs_of, one_kernel_each, plan_of

CHOOSER = Chooser("a machine", TARGETS["gfx942"], 304)


def array(name: str, size: int, dtype: str = "float32") -> Node:
    return make("In", (name, size, dtype))


def product(m: int, k: int, n: int, dtype: str = "float32") -> Node:
    return make("MM", (1, m, k, n), (array("x", m * k, dtype), array("w", k * n, dtype)))


KERNELS = {
    "product": product(96, 64, 96),
    "reduced product": make("Red", ("sum", 96), (product(96, 64, 96),)),
    "matrix times vector": product(64, 512, 1),
    "rows": make("Red", ("sum", 512), (array("x", 8 * 512),)),
    "pointwise": make("Un", ("relu",), (array("x", 4096),)),
}


def plan_for(node: Node) -> Plan:
    return one_kernel_each(("kernel", node), roots=(node,))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of tuning results, beside compiled kernels that tests share."""

    def keep(kind: str, name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    def kept(kind: str, name: str) -> str | None:
        return (tmp_path / name).read_text() if (tmp_path / name).exists() else None

    monkeypatch.setattr(choices, "keep_text", keep)
    monkeypatch.setattr(choices, "kept_text", kept)
    monkeypatch.setattr(compilers, "keep_text", keep)
    return tmp_path


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    fake.cost_us = lambda code, blocks: 300.0
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


# What is proposed


@pytest.mark.parametrize("name", KERNELS)
def test_proposals_are_distinct_and_begin_with_the_cost_models(name: str) -> None:
    (kernel,) = plan_for(KERNELS[name]).kernels
    proposed = CHOOSER.proposals(kernel)
    assert proposed[0] == Choice()
    assert 3 <= len(proposed) <= choices.MOST_TRIED
    texts = {tuple((k.source, k.blocks) for k in CHOOSER._chain(kernel, c).kernels) for c in proposed}
    assert len(texts) == len(proposed)


def test_products_are_offered_wide_fragments_where_the_matrix_unit_has_them() -> None:
    (kernel,) = plan_for(product(4096, 64, 4096)).kernels
    for arch, wide in (("gfx942", True), ("gfx1201", False)):
        tiles = [c.tile or "" for c in replace(CHOOSER, target=TARGETS[arch]).proposals(kernel)]
        assert any(tile.startswith("matrix32_") for tile in tiles) == wide


def test_products_of_halves_are_offered_warpgroups_where_the_target_has_them() -> None:
    (kernel,) = plan_for(product(4096, 64, 4096, "float16")).kernels
    for arch, grouped in (("sm_90", True), ("sm_80", False)):
        tiles = [c.tile or "" for c in replace(CHOOSER, target=TARGETS[arch], units=132).proposals(kernel)]
        assert any(tile.startswith("matrix_wgmma_") for tile in tiles) == grouped


def test_products_of_warpgroups_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compiled for an instruction set that CuPy does not name, and take LDS that the launch gives."""
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy("sm_90"))
    plan = plan_for(product(96, 72, 136, "float16"))
    (kernel,) = plan.kernels
    env = {a.attrs[0]: np.random.default_rng(0).standard_normal(a.size).astype(np.float16) for a in kernel.inputs}
    compiled = GpuPlan(plan, choices={kernel.body: Choice(tile="matrix_wgmma_64x128x64")})
    (made,) = compiled.launches.kernels.values()
    assert made.launch_lds > 48 << 10
    np.testing.assert_allclose(compiled.run_host(env)[0], plan.run_numpy(env)[0], rtol=0, atol=5e-2)


def test_a_refused_product_of_warpgroups_is_saved_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy("sm_90")
    cupy.refuses = lambda code: "eq_wgmma_commit();" in code
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    plan = plan_for(product(96, 72, 144, "float16"))
    (kernel,) = plan.kernels
    with pytest.raises(compilers.CompileFailed, match="refused"):
        GpuPlan(plan, choices={kernel.body: Choice(tile="matrix_wgmma_64x128x64")})


def test_an_exact_plan_is_offered_no_atomics() -> None:
    (kernel,) = plan_for(KERNELS["reduced product"]).kernels
    assert {c.combine for c in CHOOSER.proposals(kernel)} >= {"atomic", "lds", "wave"}
    exact = Chooser("a machine", TARGETS["gfx942"], 304, exact=True)
    assert {c.combine for c in exact.proposals(kernel)} <= {None, "two-pass"}


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("name", KERNELS)
def test_every_proposal_computes_the_kernel(name: str) -> None:
    plan = plan_for(KERNELS[name])
    (kernel,) = plan.kernels
    env = {a.attrs[0]: np.random.default_rng(0).standard_normal(a.size).astype(np.float32) for a in kernel.inputs}
    for choice in CHOOSER.proposals(kernel):
        got = GpuPlan(plan, choices={kernel.body: choice}).run_host(env)
        np.testing.assert_allclose(got[0], plan.run_numpy(env)[0], rtol=0, atol=2e-3, err_msg=str(choice))


# What is measured


def fastest(*words: str) -> Callable[[str, int], float]:
    """A device on which kernels with these words in their text take a third of the time."""
    return lambda code, blocks: 300.0 if all(w in code for w in words) else 900.0


def test_the_fastest_variant_is_remembered_and_used(cupy: FakeCupy, cache: Path) -> None:
    plan = plan_for(KERNELS["product"])
    (kernel,) = plan.kernels
    wanted = next(c for c in CHOOSER.proposals(kernel)[1:] if c.slices is None)
    (entry,) = [k.entry for k in CHOOSER._chain(kernel, wanted).kernels]
    cupy.cost_us = fastest(entry)
    (tuned,) = tune.tune(plan, seconds=1e9).kernels
    assert tuned.record is not None
    assert (tuned.record.choice, tuned.record.us, tuned.record.untuned_us) == (wanted, 300.0, 900.0)
    assert (tuned.record.left, tuned.record.refused) == (0, ())
    assert [k.entry for k in GpuPlan(plan).launches.kernels.values()] == [entry]
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["machine"].startswith("A GPU as mi300x (gfx942), driver 70000")


def test_what_was_tuned_before_takes_no_time(cupy: FakeCupy) -> None:
    plan = plan_for(KERNELS["pointwise"])
    first = tune.tune(plan, seconds=1e9)
    launches = cupy.launches
    again = tune.tune(plan, seconds=1e9)
    assert cupy.launches == launches
    assert again == first
    assert again.stop == "done"


def test_another_driver_starts_afresh(cupy: FakeCupy) -> None:
    plan = plan_for(KERNELS["pointwise"])
    tune.tune(plan, seconds=1e9)
    launches = cupy.launches
    cupy.cuda.runtime.driverGetVersion = lambda: 70001
    tune.tune(plan, seconds=1e9)
    assert cupy.launches > launches


def test_a_gain_within_the_noise_changes_nothing(cupy: FakeCupy) -> None:
    plan = plan_for(KERNELS["pointwise"])
    cupy.cost_us = lambda code, blocks: 300.0 - blocks / 10
    (tuned,) = tune.tune(plan, seconds=1e9).kernels
    assert tuned.record is not None
    assert tuned.record.choice == Choice()


def test_a_wrong_variant_is_refused_however_fast(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(KERNELS["pointwise"])
    cupy.cost_us = lambda code, blocks: 300.0 if "chunk * 4" in code else 900.0
    right = GpuPlan.run_host

    def broken(self: GpuPlan, inputs: Any) -> list[Any]:
        results = right(self, inputs)
        return [r + 1 for r in results] if "chunk * 4" in next(iter(self.launches.kernels.values())).source else results

    monkeypatch.setattr(GpuPlan, "run_host", broken)
    (tuned,) = tune.tune(plan, seconds=1e9).kernels
    assert tuned.record is not None
    assert tuned.record.choice == Choice()
    (refused,) = tuned.record.refused
    assert refused.startswith("width 4: wrong by ")


def test_a_variant_that_does_not_compile_is_refused(cupy: FakeCupy) -> None:
    cupy.refuses = lambda code: "chunk * 4" in code
    (tuned,) = tune.tune(plan_for(KERNELS["pointwise"]), seconds=1e9).kernels
    assert tuned.record is not None
    assert len(tuned.record.refused) == 1
    assert tuned.record.refused[0].startswith("width 4: a kernel does not compile")


def test_where_the_cost_models_choice_fails_another_takes_its_place(cupy: FakeCupy) -> None:
    plan = plan_for(KERNELS["pointwise"])
    (untuned,) = GpuPlan(plan).launches.kernels.values()
    cupy.refuses = lambda code: f" {untuned.entry}(" in code
    tuning = tune.tune(plan, seconds=1e9)
    (record,) = [k.record for k in tuning.kernels]
    assert tuning.stop == "done"
    assert record is not None
    assert (record.us, record.untuned_us) == (300.0, None)
    assert [k.entry for k in GpuPlan(plan).launches.kernels.values()] != [untuned.entry]


def test_a_kernel_of_which_nothing_works_is_left_as_it_is(cupy: FakeCupy) -> None:
    plan = plan_for(KERNELS["pointwise"])
    cupy.refuses = lambda code: True
    tuning = tune.tune(plan, seconds=1e9)
    (record,) = [k.record for k in tuning.kernels]
    assert tuning.stop == "done"
    assert record is not None
    assert (record.choice, record.us, len(record.refused)) == (Choice(), None, record.tried)


def test_places_are_drawn_among_the_rows_that_they_choose_from(cupy: FakeCupy) -> None:
    x, places = array("x", 2 * 64), array("i", 16, "int64")
    rows = make("Gather", (1, 2, 64), (x, make("V", (strided(15, ((16, -1),)),), (places,))))
    (tuned,) = tune.tune(one_kernel_each(("copy", rows), roots=(rows,))).kernels
    assert tuned.record is not None
    assert tuned.record.tried > 1
    assert tuned.record.refused == ()


def test_kernels_that_compute_places_are_left_alone(cupy: FakeCupy) -> None:
    x, places = array("x", 64), array("i", 16, "int64")
    gathered = make("Gather", (1, 64, 1), (x, make("Un", ("neg",), (places,))))
    assert tune.tune(one_kernel_each(("pointwise", gathered), roots=(gathered,))).kernels == ()
    assert cupy.launches == 0


@pytest.mark.parametrize(("ours", "wins"), [(60.0, True), (900.0, False)])
def test_the_library_keeps_a_product_only_where_it_is_faster(ours: float, wins: bool, cupy: FakeCupy) -> None:
    plan = one_kernel_each(("library-gemm", KERNELS["product"]), roots=(KERNELS["product"],))
    cupy.cost_us, cupy.matmul_us = lambda code, blocks: ours, 200.0  # short ones would be launched again and again
    (tuned,) = tune.tune(plan, seconds=1e9).kernels
    assert tuned.record is not None
    assert (tuned.record.untuned_us, tuned.record.us) == (200.0, min(ours, 200.0))
    (step,) = GpuPlan(plan).launches.steps
    assert isinstance(step, Launch if wins else LibraryProduct)


# Time


def test_short_kernels_are_launched_again_until_events_resolve_them(cupy: FakeCupy) -> None:
    plan = GpuPlan(plan_for(KERNELS["pointwise"]))
    for cost, times in ((3.0, 64), (60.0, 3), (900.0, 1)):
        cupy.cost_us = lambda code, blocks, cost=cost: cost
        timed = Timed(plan, random_arrays(plan))
        before = cupy.launches
        assert (timed.times, timed.sample()) == (times, cost)
        assert cupy.launches - before == times


class Ticking:
    """A clock that moves by one at each look."""

    def __init__(self, interrupt_at: float = float("inf")) -> None:
        self.now, self.interrupt_at = 0.0, interrupt_at

    def __call__(self) -> float:
        self.now += 1
        if self.now >= self.interrupt_at:
            raise KeyboardInterrupt
        return self.now


def test_a_short_time_keeps_what_is_known_and_goes_on_the_next_time(cupy: FakeCupy) -> None:
    plan = plan_for(KERNELS["product"])
    short = tune.tune(plan, seconds=5, clock=Ticking())
    (tuned,) = short.kernels
    assert short.stop == "time"
    assert tuned.record is not None
    assert 1 <= tuned.record.tried < choices.MOST_TRIED
    assert tuned.record.left > 0
    launches = cupy.launches
    assert tune.tune(plan, seconds=1e9).stop == "done"
    assert cupy.launches > launches


def test_no_time_measures_nothing(cupy: FakeCupy) -> None:
    tuning = tune.tune(plan_of(PROGRAMS["mlp"]), seconds=0)
    assert (tuning.stop, cupy.launches) == ("time", 0)
    assert {k.record for k in tuning.kernels} == {None}


def test_ctrl_c_keeps_what_is_known(cupy: FakeCupy, cache: Path) -> None:
    tuning = tune.tune(plan_of(PROGRAMS["mlp"]), seconds=1e9, clock=Ticking(interrupt_at=8))
    assert tuning.stop == "interrupted"
    known = [k.record for k in tuning.kernels if k.record is not None]
    assert len(known) == len(list(cache.iterdir())) == 1
    assert cupy.launches > 0


# What users call


def test_a_tuned_program_computes_the_same(cupy: FakeCupy) -> None:
    program = PROGRAMS["statistics"]
    inputs = inputs_of(program)
    best = eqsat.optimize(program, rules=[])
    cupy.cost_us = lambda code, blocks: 300.0 + blocks
    compiled = best.compile(device="auto", tune=1e9)
    assert_program_results(list(compiled(inputs).values()), program, inputs)


@pytest.mark.parametrize("on", ["simt", "numpy"])
def test_times_of_the_checker_are_refused(on: str) -> None:
    best = eqsat.optimize(PROGRAMS["statistics"], rules=[])
    with pytest.raises(InputError, match=f"tuning and capturing are for a GPU, not for '{on}'"):
        best.compile(on=on, tune=1.0)


def test_a_driver_that_records_no_graphs_is_timed_launch_by_launch(cupy: FakeCupy) -> None:
    cupy.records = False
    (tuned,) = tune.tune(plan_for(KERNELS["pointwise"]), seconds=1e9).kernels
    assert tuned.record is not None
    assert tuned.record.us == 300.0


@pytest.mark.usefixtures("cupy")
def test_results_beyond_a_type_are_infinite_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of squares is any number where a kernel is tuned alone: halves hold no reciprocal of a small one."""
    plan = one_kernel_each(
        ("pointwise", out := make("Un", ("reciprocal",), (array("x", 64, "float16"),))), roots=(out,)
    )
    small = np.full(64, 2**-20, np.float16)
    monkeypatch.setattr(tune, "random_inputs", lambda kernel: {kernel.params[0].attrs[0]: small})
    (found,) = tune.tune(plan, "mi300x").kernels
    assert found.record is not None
    assert not found.record.refused
