"""Elementwise identities: constants gathered, units and zeros, broadcasts inward."""

from __future__ import annotations

import numpy as np

import eqsat
from support.migraphx_pairs.common import ONE, Row, along, ints, lit, stretch, where

VEC = ((1, 2, 3, 3), "int32")

ALGEBRA: dict[str, Row] = {
    "add1": (lambda x, y: (x + 1) + (y + 2), lambda x, y: (x + y) + 3, (ONE, ONE)),
    "add2": (lambda x, y: (1 + x) + (2 + y), lambda x, y: (x + y) + 3, (ONE, ONE)),
    "add3": (lambda x: (1 + x) + (ints(1) + ints(2)), lambda x: x + (1 + ints(3)), (ONE,)),
    "add4": (lambda x, y: ((1 + x) + y) + 2, lambda x, y: (x + y) + 3, (ONE, ONE)),
    "add_broadcast1": (
        lambda x, y: (x + along(ints(1, 1), 1, (1, 2, 3, 3))) + (y + along(ints(2, 2), 1, (1, 2, 3, 3))),
        lambda x, y: (x + y) + along(ints(3, 3), 1, (1, 2, 3, 3)),
        (VEC, VEC),
    ),
    "add_broadcast1 of other values": (
        lambda x, y: (x + along(ints(1, 4), 1, (1, 2, 3, 3))) + (y + along(ints(2, 5), 1, (1, 2, 3, 3))),
        lambda x, y: (x + y) + along(ints(3, 9), 1, (1, 2, 3, 3)),
        (VEC, VEC),
    ),
    "mul_add": (lambda x: (3 + x) * 2, lambda x: 2 * x + 6, (ONE,)),
    "mul_add of floats": (
        lambda x: (x + lit(64)) * lit(64, seed=1),
        lambda x: x * lit(64, seed=1) + lit(64) * lit(64, seed=1),
        ((32, 64),),
    ),
    "inner_broadcast1": (
        lambda x, y: along(x, 1, (2, 1, 4, 5)) + along(y, 1, (2, 1, 4, 5)),
        lambda x, y: along(x + y, 1, (2, 1, 4, 5)),
        (ONE, ONE),
    ),
    "inner_broadcast2": (
        lambda x, y: stretch(x, (2, 1, 4, 5)) + stretch(y, (2, 1, 4, 5)),
        lambda x, y: stretch(x + y, (2, 1, 4, 5)),
        (((1, 1, 1, 1), "int32"),) * 2,
    ),
    "inner_broadcast_scalar": (
        lambda x, y: stretch(x, (32, 384)) + stretch(y, (32, 384)),
        lambda x, y: stretch(x + stretch(y, (1, 384)), (32, 384)),
        ((1, 384), (1, 1)),
    ),
    "inner_broadcast_different_dims": (
        lambda x, y: stretch(x, (2, 96, 192)) + stretch(y, (2, 96, 192)),
        lambda x, y: stretch(x + y, (2, 96, 192)),
        ((96, 192), (192,)),
    ),
    "inner_broadcast_different_dims_single_element": (
        lambda x, y: stretch(x, (2, 1, 4, 5)) + stretch(y, (2, 1, 4, 5)),
        lambda x, y: stretch(x.reshape(1, 1, 1, 1) + y, (2, 1, 4, 5)),
        ((1, 1, 1), (1, 1, 1, 1)),
    ),
    "inner_broadcast_different_dims_single_element_no_squeeze": (
        lambda x, y, z: where(stretch(x, (2, 1, 4, 5)) > 0, stretch(y, (2, 1, 4, 5)), stretch(z, (2, 1, 4, 5))),
        lambda x, y, z: stretch(where(stretch(x, (5,)) > 0, y.reshape(5), z.reshape(5)), (2, 1, 4, 5)),
        ((1,), (1, 1, 1, 5), (1, 1, 5)),
    ),
    "inner_broadcast_different_dims_broadcasted": (
        lambda x, y: stretch(stretch(x, (96, 192)), (2, 96, 192)) + stretch(y, (2, 96, 192)),
        lambda x, y: stretch(x + y, (2, 96, 192)),
        ((1, 192), (1, 192)),
    ),
    "inner_broadcast_different_dims_broadcasted_scalar": (
        lambda x, y: stretch(stretch(x, (2, 1)), (2, 384)) + stretch(y, (2, 384)),
        lambda x, y: stretch(stretch(x, (1, 384)) + y, (2, 384)),
        ((1,), (1, 384)),
    ),
    "inner_broadcast_different_broadcasts": (
        lambda x, y: along(x, 1, (1, 24, 32, 32)) + stretch(y, (1, 24, 32, 32)),
        lambda x, y: along(x + y.reshape(24), 1, (1, 24, 32, 32)),
        ((24,), (24, 1, 1)),
    ),
    "inner_broadcast_different_broadcasts_scalar_vector": (
        lambda x, y: stretch(x, (1, 24, 32, 32)) + along(y, 1, (1, 24, 32, 32)),
        lambda x, y: along(stretch(x, (24,)) + y, 1, (1, 24, 32, 32)),
        ((1,), (24,)),
    ),
    "inner_broadcast_different_broadcasts_diff_axis": (
        lambda x, y: stretch(x.reshape(1, 64, 1, 1), (1, 64, 32, 32)) + stretch(y, (1, 64, 32, 32)),
        lambda x, y: along(x.reshape(64) + y.reshape(64), 1, (1, 64, 32, 32)),
        ((1, 64), (64, 1, 1)),
    ),
    "inner_broadcast_different_broadcasts_diff_dims": (
        lambda x, y: along(x, 1, (4, 32, 31, 31)) + stretch(y, (4, 32, 31, 31)),
        lambda x, y: stretch(along(x, 0, (32, 31, 31)) + y.reshape(32, 31, 31), (4, 32, 31, 31)),
        ((32,), (1, 32, 31, 31)),
    ),
    "div_const": (lambda x: x / 2.0, lambda x: x * 0.5, ((1,),)),
    "unit_mult_const": (lambda x: x * 1, lambda x: x, (ONE,)),
    "unit_mult_const2": (lambda x: 1 * x, lambda x: x, (ONE,)),
    "unit_mult_const_vec": (lambda x: x * along(ints(1, 1), 1, (1, 2, 3, 3)), lambda x: x, (VEC,)),
    "unit_mult_const_vec2": (lambda x: along(ints(1, 1), 1, (1, 2, 3, 3)) * x, lambda x: x, (VEC,)),
    "unit_div_const": (lambda x: x / 1.0, lambda x: x, ((1,),)),
    "unit_div_const_vec": (
        lambda x: x / along(np.ones(2, np.float32), 1, (1, 2, 3, 3)),
        lambda x: x,
        ((1, 2, 3, 3),),
    ),
    "neg_unit_mult_const": (lambda x: x * np.full((1, 6), -1, np.int32), lambda x: -x, (((1, 6), "int32"),)),
    "neg_unit_mult_const2": (lambda x: -1 * x, lambda x: -x, (ONE,)),
    "neg_unit_mult_const_add": (lambda x: (-1 * x) + (-1 * x), lambda x: -x + -x, (ONE,)),
    "neg_unit_mul_const_vec": (lambda x: x * along(ints(-1, -1), 1, (1, 2, 3, 3)), lambda x: -x, (VEC,)),
    "neg_unit_mul_const_vec2": (lambda x: along(ints(-1, -1), 1, (1, 2, 3, 3)) * x, lambda x: -x, (VEC,)),
    "neg_unit_div_const": (lambda x: x / -1.0, lambda x: -x, ((1,),)),
    "neg_unit_div_const_vec": (
        lambda x: x / along(-np.ones(2, np.float32), 1, (1, 2, 3, 3)),
        lambda x: -x,
        ((1, 2, 3, 3),),
    ),
    "sub_zero_const": (lambda x: x - 0, lambda x: x, (ONE,)),
    "sub_zero_const_vec": (lambda x: x - along(ints(0, 0), 1, (1, 2, 3, 3)), lambda x: x, (VEC,)),
    "sub_neg_zero_const": (lambda x: 0 - x, lambda x: -x, (ONE,)),
    "sub_neg_zero_const_vec": (lambda x: along(ints(0, 0), 1, (1, 2, 3, 3)) - x, lambda x: -x, (VEC,)),
    "sub_zero of floats": (lambda x: x - 0.0, lambda x: x, ((64, 8),)),
    "zero_sub of floats": (lambda x: 0.0 - x, lambda x: -x, ((64, 8),)),
    "sub_const": (lambda x: x - 2, lambda x: x + -2, (ONE,)),
    "zero_mult_const": (lambda x: x * 0, lambda x: ints(0), (ONE,)),
    "zero_mult_const2": (lambda x: 0 * x, lambda x: ints(0), (ONE,)),
    "zero_mul_const_vec": (
        lambda x: x * along(ints(0, 0), 1, (1, 2, 3, 3)),
        lambda x: along(ints(0, 0), 1, (1, 2, 3, 3)),
        (VEC,),
    ),
    "zero_mul_const_vec2": (
        lambda x: along(ints(0, 0), 1, (1, 2, 3, 3)) * x,
        lambda x: along(ints(0, 0), 1, (1, 2, 3, 3)),
        (VEC,),
    ),
    "rsqrt": (lambda x: eqsat.reciprocal(eqsat.sqrt(x)), lambda x: eqsat.rsqrt(x), ((1,),)),
    "rsqrt_multi_use": (
        lambda x: eqsat.reciprocal(eqsat.sqrt(x)) + (eqsat.sqrt(x) + eqsat.sqrt(x)),
        lambda x: eqsat.rsqrt(x) + (eqsat.sqrt(x) + eqsat.sqrt(x)),
        ((1,),),
    ),
    "pow2": (lambda x: eqsat.power(x, np.float32(2)), lambda x: x * x, ((4, 8),)),
    "log_exp": (lambda x: eqsat.log(eqsat.exp(x)), lambda x: x, ((4, 8),)),
    "log_div": (lambda x, y: eqsat.log(x / y), lambda x, y: eqsat.log(x) - eqsat.log(y), ((4, 8), (4, 8))),
}
