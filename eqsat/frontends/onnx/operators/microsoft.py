"""onnxruntime's own operators (domain com.microsoft) that have a simple definition in known ones.

Definitions: ContribOperators.md of onnxruntime. Uses that are not covered are declined and carried as opaque terms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from eqsat.errors import ShapeError
from eqsat.frontends.onnx.operators.elementwise import ACTIVATIONS, PARAMETERS
from eqsat.frontends.onnx.operators.layers import conv, gemm, layer_normalization, rms_normalization, scaled
from eqsat.frontends.onnx.operators.node import Node, Row, of_operands, row
from eqsat.frontends.terms.declined import Declined
from eqsat.program import composites, ops
from eqsat.program.term import Term

_MASKED = 1 << 24  # elements of a causal mask, at most

# Activations


def _biased_gelu(approximate: Literal["none", "tanh"], node: Node) -> Term:
    bias = node.optional(1)
    x = node.input(0) if bias is None else composites.add(node.input(0), bias)
    return composites.gelu(x, approximate)


def _quick_gelu(node: Node) -> Term:
    x = node.input(0)
    return ops.mul(x, ops.sigmoid(composites.scaled(x, node.attr("alpha", 1.702))))


def _activated(node: Node, x: Term, parameters: list[float]) -> Term:
    name = node.attr("activation", "")
    if name == "Clip":
        return composites.clip(x, *parameters)
    if name and name not in ACTIVATIONS:
        raise Declined(f"activation {name}")
    return ACTIVATIONS[name](x, *parameters[: len(PARAMETERS.get(name, ()))]) if name else x


# Products


def _fused_matmul(node: Node) -> Term:
    """alpha a' b', with a' and b' transposed as asked."""
    a, b = node.input(0), node.input(1)
    if node.attr("transBatchA", 0) or node.attr("transBatchB", 0):
        raise Declined("batch dims inside")
    a = ops.swap_last(a) if node.attr("transA", 0) and a.ndim > 1 else a
    b = ops.swap_last(b) if node.attr("transB", 0) and b.ndim > 1 else b
    return scaled(composites.matmul(a, b), node.attr("alpha", 1.0))


def _fused_gemm(node: Node) -> Term:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return _activated(node, gemm(node), [node.attr(name) for name in names if node.attr(name) is not None])


def _fused_conv(node: Node) -> Term:
    """A convolution, then the addend z, then the activation."""
    out, z = conv(node), node.optional(3)
    out = out if z is None else ops.add(out, z)
    return _activated(node, out, list(node.attr("activation_params", ())))


# Normalisation


def _simplified_norm(node: Node) -> list[Term]:
    """An RMSNorm, and the factor of each row."""
    x, epsilon = node.input(0), node.attr("epsilon", 1e-5)
    outputs = [rms_normalization(node)]
    if node.wants(1):
        axes = tuple(range(ops.axis_of(node.attr("axis", -1), x.ndim), x.ndim))
        wide = ops.cast(x, "float32") if node.attr("stash_type", 1) == 1 else x
        squares = composites.mean(composites.square(wide), axes, True)
        outputs.append(ops.reciprocal(ops.sqrt(composites.shifted(squares, epsilon))))
    return outputs


def _skip_norm(normalise: Callable[..., Term], bias_at: int, node: Node) -> list[Term | None]:
    """Normalises input + skip (+ bias); that sum is output 3."""
    x, skip, bias = node.input(0), node.input(1), node.optional(bias_at)
    total = composites.add(x, skip) if skip.ndim <= x.ndim else composites.add(skip, x)
    if total.shape != x.shape:
        raise ShapeError(f"{node.op} takes a skip that broadcasts to {x.shape}, got {skip.shape}")
    total = total if bias is None else composites.add(total, bias)
    scales = [node.input(2)] + ([node.optional(3)] if bias_at == 4 else [])
    return [normalise(total, *scales, axis=-1, epsilon=node.attr("epsilon", 1e-12)), None, None, total]


def _embed_layer_normalization(node: Node) -> list[Term | None]:
    """The sum of word, position and segment embeddings, normalised; the mask's row sums; the sum itself."""
    ids, segments, mask, given = node.input(0), node.optional(1), node.optional(7), node.optional(8)
    if node.attr("mask_index_type", 1 if mask is not None else 0) not in (0, 1):
        raise Declined("another mask index")
    batch, steps = ids.shape
    places = ops.iota((batch, steps), 1) if given is None else ops.cast(given, "int64")
    total = ops.gather(node.input(2), ids, 0)
    positions = ops.gather(node.input(3), places, 0)
    total = composites.add(total, positions)
    if segments is not None:
        total = ops.add(total, ops.gather(node.input(4), segments, 0))
    out = composites.layernorm(total, node.input(5), node.input(6), -1, node.attr("epsilon", 1e-12))
    kept = ops.full(0, (batch,), "int32") if mask is None else ops.sum_(mask, 1)
    return [out, kept, total]


# Attention


def _heads(x: Term, heads: int) -> Term:
    """x[b, t, n h] to [b, n, t, h]."""
    b, t, width = x.shape
    if width % heads:
        raise ShapeError(f"attention takes a width that {heads} heads divide, got {x.shape}")
    return ops.transpose(ops.reshape(x, (b, t, heads, width // heads)), (0, 2, 1, 3))


def _attended(node: Node, q: Term, k: Term, v: Term) -> Term:
    """softmax(scale q k' + bias) v with the node's scale and bias, heads side by side: [b, t, n h]."""
    scale, bias = node.attr("scale", 0.0) or q.shape[-1] ** -0.5, node.optional(5)
    scores = composites.scaled(composites.matmul(q, ops.swap_last(k)), scale)
    if bias is not None:
        scores = composites.add(scores, bias)
    if node.attr("unidirectional", 0):
        t, s = scores.shape[-2:]
        if t * s > _MASKED:
            raise Declined("a large causal mask")
        if t not in (1, s):  # runtimes differ in which end of the keys the mask begins at
            raise Declined("a causal mask that is not square")
        seen = ops.broadcast(ops.constant(np.tri(t, s, s - t, np.bool_)), scores.shape)
        scores = ops.where(seen, scores, ops.full_like(-np.inf, scores))
    out = ops.transpose(composites.matmul(composites.softmax(scores), v), (0, 2, 1, 3))
    return ops.reshape(out, (*out.shape[:2], out.shape[2] * out.shape[3]))


def _require_bare(node: Node, *indices: int) -> None:
    if any(node.optional(i) is not None for i in indices) or any(node.wants(i) for i in (1, 2, 3)):
        raise Declined("masks, past keys or further outputs")


def _multi_head_attention(node: Node) -> Term:
    q, k, v, bias = node.input(0), node.optional(1), node.optional(2), node.optional(3)
    _require_bare(node, 4, 6, 7, 8, 9)
    if k is None or v is None or not q.ndim == k.ndim == v.ndim == 3:
        raise Declined("packed or split heads")
    if bias is not None:
        widths = [q.shape[-1], k.shape[-1], v.shape[-1]]
        q, k, v = (composites.add(x, b) for x, b in zip((q, k, v), ops.split(bias, widths, 0), strict=True))
    heads = node.required("num_heads")
    return _attended(node, *(_heads(x, heads) for x in (q, k, v)))


def _attention(node: Node) -> Term:
    """q, k and v are one product of the input."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    _require_bare(node, 3, 4, 6)
    if node.attr("do_rotary", 0) or node.attr("past_present_share_buffer", 0) or x.ndim != 3:
        raise Declined("rotation, or shared buffers")
    product = composites.matmul(x, w)
    product = product if bias is None else composites.add(product, bias)
    sizes = node.attr("qkv_hidden_sizes") or [product.shape[-1] // 3] * 3
    heads = node.required("num_heads")
    return _attended(node, *(_heads(part, heads) for part in ops.split(product, sizes, -1)))


MICROSOFT: dict[str, Row] = {
    "Attention": row(_attention, 1, unless="masks, past keys, rotation"),
    "BiasGelu": row(partial(_biased_gelu, "none"), 1),
    "EmbedLayerNormalization": row(_embed_layer_normalization, 1, unless="other mask indices"),
    "FastGelu": row(partial(_biased_gelu, "tanh"), 1),
    "FusedConv": row(_fused_conv, 1, unless="other activations"),
    "FusedGemm": row(_fused_gemm, 1, unless="other activations"),
    "FusedMatMul": row(_fused_matmul, 1, unless="batch dims inside"),
    "Gelu": row(of_operands(composites.gelu), 1),
    "LayerNormalization": row(layer_normalization, 1),
    "MultiHeadAttention": row(
        _multi_head_attention, 1, unless="masks, past keys, packed operands, causal masks that are not square"
    ),
    "QuickGelu": row(_quick_gelu, 1),
    "SimplifiedLayerNormalization": row(_simplified_norm, 1),
    "SkipLayerNormalization": row(partial(_skip_norm, composites.layernorm, 4), 1, unless="mean or deviation are used"),
    "SkipSimplifiedLayerNormalization": row(partial(_skip_norm, composites.rmsnorm, 3), 1),
    "TransposeMatMul": row(_fused_matmul, 1, unless="batch dims inside"),
}
"""One row per operator of the domain; all are of version 1."""

UNVERSIONED: dict[str, Row] = {name: MICROSOFT[name] for name in ("LayerNormalization", "SimplifiedLayerNormalization")}
"""Operators that onnxruntime's optimiser writes into the main domain at any opset."""
