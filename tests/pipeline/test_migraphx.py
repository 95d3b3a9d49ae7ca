"""MIGraphX's own tests: each of its rewrites is proved, and `optimize` finds a result at no higher price."""

from __future__ import annotations

from typing import Any

import pytest

import eqsat
from eqsat.program.core import lower
from support.migraphx_pairs import PAIRS, build

FAST = {"algebra: log_exp"}
"""Equal only where nothing overflows: for the policy `fast`."""

TIE = 5e-4
"""Relative difference in predicted time that is none: a sector of memory, an operator in a prologue."""


@pytest.mark.parametrize("name", PAIRS)
def test_before_and_after_are_proved_equal(name: str):
    before, after, inputs = PAIRS[name]
    proof = eqsat.prove(build(before, inputs), build(after, inputs), time_limit=5)
    assert proof.verdict == "proved", str(proof)


def cost(side: dict[str, Any]) -> tuple[float, int, int]:
    """(predicted microseconds, kernels, matmul FLOPs) of the source or the result of a report."""
    return side["predicted_us"], side["kernels"], side["matmul_flops"]


@pytest.mark.parametrize("name", PAIRS)
def test_the_result_is_no_costlier_than_what_the_pass_makes(name: str):
    before, after, inputs = PAIRS[name]
    numerics = "fast" if name in FAST else "reassociate"
    found = eqsat.optimize(build(before, inputs), numerics=numerics).report
    theirs = eqsat.optimize(build(after, inputs), numerics=numerics).report
    time, kernels, flops = cost(found["result"])
    for other in (theirs["source"], theirs["result"]):
        their_time, their_kernels, their_flops = cost(other)
        assert time <= their_time * (1 + TIE)
        assert kernels <= their_kernels
        assert flops <= their_flops or time < their_time * (1 - TIE)  # less time may be bought with more arithmetic


# name of a rewrite in MIGraphX's simplify_algebra: the pairs that show it
REWRITES = {
    "mul-dot": ["products: dot_mul_a", "products: dot_mul_b"],
    "dot-mul": ["products: mul_dot_a", "products: mul_dot_b"],
    "dot-add": ["products: dot_add"],
    "dot-slice": ["products: dot_slice"],
    "dot-broadcast": ["products: dot_broadcast_different_rank", "products: dot_broadcast_unsqueezed_input"],
    "horizontal: dots that share an input": ["products: dot_horiz", "products: dot_fusion_reshape"],
    "horizontal: convs that share an input": ["convolutions: conv_horiz", "convolutions: conv_horiz_grouped"],
    "splits": ["slices: split_add_relu", "slices: split_add_relu_concat_same_axis"],
    "split-concat": ["slices: slice_concat", "slices: slice_concat_non_uniform"],
    "split-reshape": ["slices: reorder_reshape_slice 4", "slices: split_add_relu_reshape"],
    "split-transpose": ["slices: reorder_slice_trans 8"],
    "concat of equal operators": ["concats: concat_add_relu", "concats: concat_convert_fusion"],
    "concat of one input": ["concats: concat_of_one"],
    "concat-conv": ["convolutions: conv_concat", "convolutions: conv_concat_group"],
    "mul-conv": ["convolutions: mul_conv1", "convolutions: mul_conv2"],
    "mul-slice-conv": ["convolutions: mul_slice_conv1", "convolutions: mul_slice_conv_horiz_fusion"],
    "conv-add": ["convolutions: conv_add"],
    "add-convs": ["convolutions: add_conv1", "convolutions: add_conv_1x1_diff_strides1"],
    "conv-broadcast": ["convolutions: conv_broadcast"],
    "mul-add": ["algebra: mul_add", "algebra: mul_add of floats"],
    "add-lit-broadcast": ["algebra: add_broadcast1"],
    "double-add-lit-broadcast": ["algebra: add1", "algebra: add4", "algebra: add_broadcast1 of other values"],
    "inner-broadcast": ["algebra: inner_broadcast1", "algebra: inner_broadcast_different_dims"],
    "div by k -> mul": ["algebra: div_const"],
    "sub k -> add": ["algebra: sub_const"],
    "unit ops": ["algebra: unit_mult_const", "algebra: unit_div_const_vec"],
    "neg-unit ops": ["algebra: neg_unit_mult_const", "algebra: neg_unit_div_const"],
    "zero ops": ["algebra: sub_zero_const", "algebra: zero_mult_const", "algebra: sub_neg_zero_const"],
    "rsqrt": ["algebra: rsqrt", "algebra: rsqrt_multi_use"],
    "log-exp": ["algebra: log_exp"],
    "log-div": ["algebra: log_div"],
    "pow2": ["algebra: pow2"],
    "zero points": ["convolutions: zero_point"],
}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_every_rewrite_of_simplify_algebra_is_among_the_pairs(rewrite: str):
    assert REWRITES[rewrite]
    assert set(REWRITES[rewrite]) <= PAIRS.keys()


# What a pass of MIGraphX moves about is one value in the core: no rule is needed.
SAME_IN_THE_CORE = """
    slices: reorder_reshape_slice 4, slices: reorder_reshape_slice_move_axis1 4, slices: reorder_slice_trans 8,
    slices: reorder_reshape_slice_multi_rsp, slices: reorder_reshape_slice_partial, slices: double_slice1,
    slices: reorder_reshape_slice_diff_dims 4, slices: double_slice_multi_axes, slices: transpose_slice,
    slices: transpose_slice_unsqueeze, slices: transpose_slice_diff_perm, slices: transpose_slice_non_packed_axis,
    convolutions: transpose_contiguous_reshape_binary_packed, products: reshape_reshape_dot, products: reshape_dot,
    products: reshape_dot_flipped, products: reshape_dot_broadcast, reshapes: broadcast_transpose,
    reshapes: broadcast_transpose_scalar_multi_use, reshapes: transpose_partial2, reshapes: nested_reshape,
    reshapes: nested_squeeze_reshape, reshapes: multibroadcast_unsqueeze_scalar, reshapes: optimize_resize,
    reshapes: reshape_cont, reshapes: reshape_unary_transpose, reshapes: pointwise_reshape_unary,
    concats: concat_transpose1, concats: concat_transpose2, concats: concat_transpose3,
    reductions: reduce_reshape_pointwise1, reductions: reduce_contiguous_reshape_pointwise,
    reductions: reduce_reshape_reduce
""".replace("\n", " ").split(",")


@pytest.mark.parametrize("name", [name.strip() for name in SAME_IN_THE_CORE])
def test_movements_of_data_are_identities_of_the_core(name: str):
    before, after, inputs = PAIRS[name]
    assert lower(build(before, inputs)).roots == lower(build(after, inputs)).roots
