"""Kernel prices: a roofline model in which each effect changes the price in the right direction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.extract.device.table import DEVICES, Figure
from eqsat.extract.kernels.cost import COMBINE_LAUNCH, LONE_WAVE, SECTOR, STRIDED, Prices, read_bytes, write_order
from eqsat.gpu.table import occupancy
from eqsat.gpu.table.targets import TARGETS
from eqsat.gpu.table.tiles import choose_tile, legal_tiles
from eqsat.layout import arithmetic as lay

MI300X = Prices(DEVICES["mi300x"])
GPUS = [name for name in DEVICES if name != "cpu"]
SIZES = st.integers(1, 4096)


def product(prices: Prices, b: int, m: int, k: int, n: int, dtype: str = "float32") -> int:
    """A kernel of one product and nothing else."""
    gemm = prices.gemm(b, m, k, n, dtype)
    return prices.kernel(4.0 * b * (m * k + k * n + m * n), gemm.time, gemm.groups)


def test_an_empty_kernel_costs_a_launch() -> None:
    assert MI300X.kernel(0, 0, 1) == MI300X.launch == 2_000_000


def test_large_copies_run_at_the_achieved_bandwidth() -> None:
    row = DEVICES["mi300x"]
    seconds = (MI300X.pointwise(2**28, 2.0**31, 0) - MI300X.launch) * 1e-12
    np.testing.assert_allclose(2**31 / seconds, row.bandwidth.value * row.achieved.value * 1e9, rtol=1e-6)


def test_large_products_run_near_the_peak_of_the_matrix_units() -> None:
    gemm = MI300X.gemm(1, 8192, 8192, 8192, "float16")
    share = 2 * 8192**3 / (gemm.time * 1e-12) / (DEVICES["mi300x"].matrix["float16"].value * 1e12)
    assert 0.5 < share < 0.75


@given(SIZES, SIZES, SIZES)
def test_products_never_beat_the_peak(m: int, k: int, n: int) -> None:
    time = MI300X.gemm(1, m, k, n, "float32").time * 1e-12
    assert 2 * m * k * n / time <= DEVICES["mi300x"].matrix["float32"].value * 1e12 * (1 + 1e-9)


@given(SIZES, st.integers(1, 480), SIZES, st.integers(1, 64))
def test_more_work_never_costs_less(m: int, k: int, n: int, b: int) -> None:
    """Where k is too short to be cut into slices."""
    time = MI300X.gemm(b, m, k, n, "float32").time * (1 - 1e-9)
    assert MI300X.gemm(b, m, k + 16, n, "float32").time >= time
    assert MI300X.gemm(b + 1, m, k, n, "float32").time >= time


def test_a_product_with_few_tiles_and_long_k_is_cut_into_slices_of_k() -> None:
    short, long = (MI300X.gemm(1, 64, k, 64, "float32") for k in (256, 65536))
    assert short.extra == 0
    assert long.extra > COMBINE_LAUNCH * MI300X.launch
    assert long.groups > 4 * short.groups
    assert long.time < 64 * short.time


@pytest.mark.parametrize("name", GPUS)
def test_a_merged_kernel_beats_its_parts_where_parts_are_small(name: str) -> None:
    prices = Prices(DEVICES[name])
    assert product(prices, 6, 64, 256, 128) < 6 * product(prices, 1, 64, 256, 128)


FOLDS = [
    ("a wide middle: fold", 348, 768, 768, 768, True),
    ("a narrow middle: keep", 348, 768, 64, 768, False),
]


@pytest.mark.parametrize(("m", "k", "n", "p", "fold"), [row[1:] for row in FOLDS], ids=[row[0] for row in FOLDS])
@pytest.mark.parametrize("name", ["mi300x", "mi250x", "h100", "cpu"])
def test_folding_x_a_c_depends_on_its_middle(name: str, m: int, k: int, n: int, p: int, fold: bool) -> None:
    prices = Prices(DEVICES[name])
    folded = product(prices, 1, m, k, p)
    chain = product(prices, 1, m, k, n) + product(prices, 1, m, n, p)
    assert (folded < chain) == fold


def test_the_same_choice_differs_between_devices() -> None:
    """One launch less for 1.5 times the arithmetic pays where launches are dear and arithmetic is fast."""
    one = {name: product(Prices(DEVICES[name]), 1, 96, 768, 256) for name in ("mi355x", "cpu")}
    two = {name: 2 * product(Prices(DEVICES[name]), 1, 96, 256, 256) for name in ("mi355x", "cpu")}
    assert one["mi355x"] < two["mi355x"]
    assert one["cpu"] > two["cpu"]


def test_a_dtype_without_matrix_units_runs_on_the_vector_units() -> None:
    navi = Prices(DEVICES["rx7900xtx"])
    assert navi.gemm(1, 1024, 1024, 1024, "float32").time > 1.5 * navi.gemm(1, 1024, 1024, 1024, "float16").time


def test_float64_functions_run_at_the_rate_of_float64() -> None:
    navi = Prices(DEVICES["rx7900xtx"])
    work, size = 2.0**36, 2**24
    plain, wide = (navi.pointwise(size, 0.0, work, dtype) - navi.launch for dtype in ("float32", "float64"))
    np.testing.assert_allclose(wide / plain, 61.4 / 1.92, rtol=1e-3)


def test_a_long_row_is_shared_by_workgroups_only_where_it_is_not_held_on_chip() -> None:
    moved = 4.0 * 2**22
    assert MI300X.rows(1, 2**22, moved, 2**22, on_chip=True) > 4 * MI300X.rows(1, 2**22, moved, 2**22, on_chip=False)
    assert MI300X.row_fits(16384, 4)
    assert not MI300X.row_fits(16385, 4)


READS = [
    ("whole array", lay.identity(4096), False, 4096 * 4),
    ("one element", lay.strided(7, ((64, 0),)), False, SECTOR),
    ("a broadcast row", lay.strided(0, ((64, 0), (256, 1))), False, 256 * 4),
    ("a slice of rows", lay.of_slice((64, 64), (8, 0), (16, 64), (1, 1)), False, 8 * 64 * 4),
    ("a transpose, element by element", lay.of_transpose((64, 64), (1, 0)), False, STRIDED * 4096 * 4),
    ("a transpose, staged", lay.of_transpose((64, 64), (1, 0)), True, 4096 * 4),
    ("one column: a sector each", lay.strided(3, ((64, 64),)), False, STRIDED * 64 * SECTOR),
    ("every other element: all sectors", lay.strided(1, ((2048, 2),)), False, 1.1 * 4096 * 4),
    ("one of 15: all sectors", lay.strided(0, ((64, 15),)), True, 1.1 * 64 * 15 * 4),
    ("every other pixel: every other row", lay.strided(0, ((32, 128), (32, 2))), True, 1.1 * 32 * 64 * 4),
    ("rows with short gaps", lay.of_slice((64, 20), (0, 0), (64, 17), (1, 1)), False, 1.1 * 64 * 20 * 4),
    ("rows with long gaps", lay.of_slice((64, 48), (0, 0), (64, 16), (1, 1)), False, 64 * 16 * 4),
    ("overlapping windows", lay.strided(0, ((62, 1), (3, 1))), False, 64 * 4),
    ("a padded image", lay.of_pad((64, 64), (1, 1), (1, 1), 0.0), True, 4096 * 4),
]


@pytest.mark.parametrize(("layout", "any_order", "expected"), [r[1:] for r in READS], ids=[r[0] for r in READS])
def test_reads_cost_the_sectors_that_they_touch(layout: lay.Layout, any_order: bool, expected: float) -> None:
    np.testing.assert_allclose(read_bytes(layout, 4, any_order), expected, rtol=0.11)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("any_order", [False, True])
def test_a_part_of_an_array_costs_hardly_more_than_all_of_it(size: int, any_order: bool) -> None:
    """However the elements of an array are taken by steps shorter than a sector, no sector counts twice."""
    whole = read_bytes(lay.identity(64 * 96), size, any_order)
    for step in (2, 3, 4):
        for start in range(step):
            layout = lay.of_slice((64, 96), (0, start), (64, 96), (1, step))
            assert read_bytes(layout, size, any_order) <= 1.1 * whole


WRITES = [
    ("as computed", lay.identity(12 * 34), 1.0),
    ("heads first", lay.of_transpose((12, 2, 17), (1, 0, 2)), 1.0),
    ("transposed", lay.of_transpose((12, 34), (1, 0)), 1.1),
    ("batch innermost", lay.of_transpose((4, 3, 34), (1, 2, 0)), 1.5),
]


@pytest.mark.parametrize(("layout", "expected"), [row[1:] for row in WRITES], ids=[row[0] for row in WRITES])
def test_writes_along_a_tile_are_cheap(layout: lay.Layout, expected: float) -> None:
    assert write_order(layout, 34) == expected


def test_a_tile_that_leaves_a_simd_one_wave_is_slower() -> None:
    narrow, wide = (choose_tile(TARGETS["gfx942"], (1, m, 64, 100_000), "float32", 304) for m in (1, 1000))
    assert (narrow.unit, occupancy.waves("gfx942", narrow, "float32")) == ("vector", 1)
    assert (occupancy.waves("gfx942", wide, "float32") or 0) > 1
    same = Prices(replace(MI300X.device, arch="gfx950"))  # whose SIMDs hold more waves of every tile
    slow, fast = (prices.tiled(1, 1, 64, 100_000, "float32").time for prices in (MI300X, same))
    np.testing.assert_allclose(slow * LONE_WAVE, fast)


def test_wide_fragments_are_for_tuning_to_choose() -> None:
    target = TARGETS["gfx942"]
    assert any(tile.fragment == 32 for tile in legal_tiles(target, "float16"))
    for m in (16, 100, 1000, 8192):
        assert choose_tile(target, (1, m, 1024, 4096), "float16", 304).fragment == 16


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_warpgroups_take_the_products_of_halves_that_have_rows_for_them(dtype: str) -> None:
    target = TARGETS["sm_90"]
    for kind in ("grouped", "boxed", "deep"):
        assert any(getattr(tile, kind) for tile in legal_tiles(target, dtype))
    for m in (100, 1000, 8192):
        assert choose_tile(target, (1, m, 1024, 4096), dtype, 132).boxed
    assert not choose_tile(target, (1, 8, 1024, 4096), dtype, 132).at_launch


def test_blocks_wait_for_operands_where_a_device_says_how_long() -> None:
    row = DEVICES["h200"]
    rows = {us: row.with_figures({"step_us.vector": Figure(us, "a test")}) for us in (0.0, 0.5, 1.0)}
    times = {us: Prices(each).tiled(1, 64, 256, 256, "float32").time for us, each in rows.items()}
    steps = 256 / choose_tile(TARGETS[row.arch], (1, 64, 256, 256), "float32", 132).depth
    np.testing.assert_allclose([times[0.5] - times[0.0], times[1.0] - times[0.0]], [steps * 5e5, steps * 1e6])
    slices = {us: Prices(each).gemm(1, 348, 768, 768, "float32").slices for us, each in rows.items()}
    assert slices[1.0] > slices[0.0]


def test_halves_on_vector_units_are_measured_as_float() -> None:
    tiles = {tile.unit: tile for tile in legal_tiles(TARGETS["gfx942"], "bfloat16")}
    measured = {unit: occupancy.measured_as(tile, "bfloat16") for unit, tile in tiles.items()}
    assert measured == {"matrix": "float16", "vector": "float32"}
