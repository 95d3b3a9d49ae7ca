"""Random programs: of all element types, for every device, under every policy, with special values, dims of 1 and of 0.

Half come from `eqsat.testing`. The other half is difficult on purpose: constants with NaN, infinities and subnormals,
composites of broadcast rows, poles and cancellation. Requirements:

    no fallback, and no error except an InputError where the program as written cannot run either
    the same plan and program again from the same input (two of eight seeds)
    under `exact` the bits of the source, unless the value depends on a sum of values that vary; for constants under any
        policy, except sums that take more memory than their operands
    otherwise the source's values, in float64 and in its own types, within the tolerance of its types or its own noise
    for every eighth seed, the values that onnxruntime computes from the result, written as ONNX
    for every sixteenth, the values that the plan's own kernels compute in the checker of kernels
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ml_dtypes import finfo

import eqsat
from eqsat.base.numerics import is_float, itemsize, np_dtype
from eqsat.check.demand import Demanded
from eqsat.check.rounding import Rounding
from eqsat.check.wanted import everything
from eqsat.errors import EqsatError, InputError
from eqsat.evidence.reference import same_bits
from eqsat.extract.device.table import DEVICES
from eqsat.fuzzing.kinds import Fault
from eqsat.fuzzing.oracle import by_onnxruntime
from eqsat.gpu.launch.streams import NO_STREAM
from eqsat.language.rule import Policy
from eqsat.program import composites, ops
from eqsat.program.fold import ADDING
from eqsat.program.ir import Program
from eqsat.program.term import Term, topological
from eqsat.runs.task import Tell
from eqsat.testing import STEPS, Builder, random_inputs, shapes, weights

SECONDS = 60.0
BYTES = 6_000_000_000

POLICIES: tuple[Policy, ...] = ("exact", "reassociate", "fast")

MIXES: tuple[tuple[str, ...], ...] = (
    *(("float32",), ("float16",), ("bfloat16",), ("float64",), ("int32", "int64", "bool")),
    *(("float32", "float64", "int64", "bool"), ("float32", "float16", "bfloat16", "int32", "bool")),
)

BLOCK = 2 * len(MIXES)
"""Seeds in a row that have one policy and one device, and the element types in turns, twice."""

DTYPES = ("float64", "float32", "float16", "bfloat16", "int32", "int64", "bool")

TOLERANCE = {"float64": 1e-7, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest error as a share of an output's scale, by the narrowest float of the program."""

NOISE = 16.0
"""Largest error as a multiple of the source's own, where that allows more."""

DRAWS = 16
"""Random inputs on which an output may prove to be noise: on many, halves overflow."""

SEARCH_SECONDS = 10.0

EVERY = 8
"""One of this many seeds is judged by onnxruntime too: its sessions take longer than all other checks."""

CHECKER = 16
"""One of this many seeds has its kernels run in the checker: to compile them takes longer than all other checks."""

TWICE = 8
"""Two of this many seeds are optimised twice."""

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 1e-8, 1e8, 1 / 3, np.inf, -np.inf, np.nan, 65504.0, 1e-40)
TAME = SPECIAL[:7]

SHAPES = ((4, 3), (4, 1), (1, 3), (3,), (1,), (), (2, 4, 3), (1, 1), (4, 4), (0, 3), (4, 0))

LARGEST = 5000
"""Most elements of a value that is used as an operand."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program to optimise, under which policy and for which device; the seed draws its inputs."""

    seed: int
    program: Program
    policy: Policy
    device: str


# Cases


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str] = ()) -> Case:
    """The program of a seed; `kept` picks among its steps."""
    mix = MIXES[seed // 2 % len(MIXES)]
    with np.errstate(all="ignore"):
        made = drawn(seed, mix, kept) if seed % 2 else awkward(seed, mix, kept)
    return Case(seed, made, policy(seed), device_of(seed))


def policy(seed: int) -> Policy:
    """The policy of a seed: the same for a block."""
    return POLICIES[seed // BLOCK % len(POLICIES)]


def device_of(seed: int) -> str:
    """The device of a seed: the same for a block, and the default for half of them."""
    rng = random.Random(f"device {seed // BLOCK}")
    return "mi300x" if rng.random() < 0.5 else rng.choice(sorted(DEVICES))


def drawn(seed: int, dtypes: Sequence[str], kept: Any) -> Program:
    """A program of `eqsat.testing`, every fifth with dims of 0."""
    maker = Drawn(random.Random(seed), dtypes, 0 if seed % 5 == 0 else 1)
    maker.take(seed, range(steps(seed)) if kept is None else kept)
    return maker.program()


class Drawn(Builder):
    """Draws from a generator, because Hypothesis's draws depend on the modules that are loaded."""

    def __init__(self, rng: random.Random, dtypes: Sequence[str], least: int) -> None:
        super().__init__(lambda strategy: None, tuple(dtypes), shapes())
        self.rng, self.least = rng, least

    def take(self, seed: int, steps: Iterable[int]) -> None:
        """Take these steps of a seed."""
        names = weights(sorted(STEPS))
        for step in steps:
            self.rng = random.Random(f"{seed} {step}")
            self.step(self.choose(names))

    def choose(self, options: Iterable[Any]) -> Any:
        return self.rng.choice(list(options))

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def shape(self, among: Any = None) -> tuple[int, ...]:
        return tuple(self.rng.randint(self.least, 4) for _ in range(self.rng.randint(0 if among is None else 1, 4)))

    def permutation(self, count: int) -> list[int]:
        return self.rng.sample(range(count), count)

    def subset(self, count: int, most: int) -> list[int]:
        return sorted(self.rng.sample(range(count), self.rng.randint(1, most)))


def steps(seed: int) -> int:
    """How many operators are tried."""
    return 3 + seed // 2 % 9


def awkward(seed: int, dtypes: Sequence[str], kept: Any) -> Program:
    """A program of operators that read earlier values or new leaves; operators that do not fit are left out."""
    maker = Awkward(np.random.default_rng([seed]), dtypes)
    for step in range(steps(seed)) if kept is None else kept:
        maker.rng = np.random.default_rng([seed, step + 1])
        try:
            with np.errstate(all="ignore"):
                made = maker.step()
        except (EqsatError, ValueError):
            continue
        if made.size <= LARGEST:
            maker.terms.append(made)
    last = maker.terms[-1]
    outputs = {"y": last, "z": maker.pick()} if maker.rng.random() < 0.3 else {"y": last}
    used = set(Program(tuple(maker.inputs), outputs).terms())
    return Program(tuple(t for t in maker.inputs if t in used), outputs)


class Awkward:
    """A program in the making."""

    def __init__(self, rng: np.random.Generator, dtypes: Sequence[str]) -> None:
        self.rng, self.dtypes = rng, dtypes
        self.inputs: list[Term] = []
        shapes = SHAPES if rng.random() < 0.2 else SHAPES[:-2]
        self.terms = [self.leaf(self.one(shapes), self.one(dtypes)) for _ in range(rng.integers(1, 4))]

    def one(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def pick(self) -> Term:
        return self.one(self.terms)

    def leaf(self, shape: Sequence[int], dtype: str) -> Term:
        kind = self.rng.random()
        if kind < 0.4:
            self.inputs.append(ops.input(f"x{len(self.inputs)}", shape, dtype))
            return self.inputs[-1]
        if kind < 0.7:
            values = self.rng.standard_normal(shape)
            if self.rng.random() < 0.5:
                values = self.rng.choice(SPECIAL if is_float(dtype) else TAME, shape)
            return ops.constant(np.asarray(values).astype(np_dtype(dtype)))
        value = float(self.one(SPECIAL if self.rng.random() < 0.2 else SPECIAL[:10]))
        return ops.full(value if is_float(dtype) else 1, shape, dtype)

    def step(self) -> Term:
        x = self.pick() if self.rng.random() < 0.6 else self.terms[-1]
        return self.one(AWKWARD)(self, x)

    def like(self, x: Term) -> Term:
        """A term or a new leaf, broadcast to the shape of another."""
        fits = [t for t in self.terms if t.dtype == x.dtype and _spreads(t.shape, x.shape)]
        if fits and self.rng.random() < 0.6:
            return ops.broadcast(self.one(fits), x.shape)
        return ops.broadcast(self.leaf(x.shape[int(self.rng.integers(x.ndim + 1)) :], x.dtype), x.shape)

    def axis(self, x: Term) -> int:
        return int(self.rng.integers(x.ndim))


def _spreads(shape: Sequence[int], wide: Sequence[int]) -> bool:
    pairs = zip(shape[::-1], wide[::-1], strict=False)
    return len(shape) <= len(wide) and all(n in (1, m) for n, m in pairs)


def _unary(b: Awkward, x: Term) -> Term:
    return ops.elementwise(b.one(list(ops.UNARY)), x)


def _binary(b: Awkward, x: Term) -> Term:
    pair = [x, b.like(x)]
    return ops.elementwise(b.one(list(ops.BINARY)), *(pair if b.rng.random() < 0.5 else pair[::-1]))


def _chosen(b: Awkward, x: Term) -> Term:
    y = b.like(x)
    return ops.where(ops.elementwise(b.one(list(ops.COMPARE)), x, y), x, y)


def _broadcast(b: Awkward, x: Term) -> Term:
    return ops.broadcast(x, b.one([s for s in SHAPES if _spreads(x.shape, s)] or [x.shape]))


def _reduce(b: Awkward, x: Term) -> Term:
    return ops.reduce(b.one(("sum", "max", "min", "prod")), x, (b.axis(x),), bool(b.rng.random() < 0.6))


def _composite(b: Awkward, x: Term) -> Term:
    return getattr(composites, b.one(("softmax", "log_softmax", "layernorm")))(x)


def _matmul(b: Awkward, x: Term) -> Term:
    w = b.leaf((*x.shape[-1:], int(b.rng.integers(1, 4))), x.dtype)
    return ops.matmul(x, ops.broadcast(w, (*x.shape[:-2], *w.shape)))


def _view(b: Awkward, x: Term) -> Term:
    axis = b.axis(x)
    views = (
        lambda: ops.transpose(x),
        lambda: ops.reshape(x, (x.size,)),
        lambda: ops.reshape(x, (1, *x.shape)),
        lambda: ops.concat([x, x], axis),
        lambda: ops.slice_(x, [None] * x.ndim, [None] * x.ndim, None, [-1] * x.ndim),
        lambda: ops.pad(x, [1] * x.ndim, [0] * x.ndim, 0),
    )
    return b.one(views)()


def _cast(b: Awkward, x: Term) -> Term:
    return ops.cast(x, b.one(b.dtypes))


AWKWARD: tuple[Callable[[Awkward, Term], Term], ...] = (
    *(_unary, _unary, _binary, _binary, _binary, _chosen, _broadcast, _broadcast),
    *(_reduce, _reduce, _composite, _matmul, _view, _view, _cast),
)


# The oracle


def _stopped(found: eqsat.Result) -> bool:
    """Whether a search reached a limit, so that its plan may be another one the next time."""
    return found.report["egraph"]["stop"] != "saturated"


def judge(made: Case, tell: Tell) -> str:
    """Optimise a program, some twice, and compare the result with the source."""
    seed, program, policy = made.seed, made.program, made.policy
    inputs = random_inputs(program, seed)
    wanted = values(program, inputs)
    if wanted is None:
        return "refused"
    best = optimized(made, vague=True)
    stopped = _stopped(best)
    if seed % TWICE < 2 and not stopped:
        again = optimized(made, vague=True)
        if not _stopped(again) and _untimed(best) != _untimed(again):
            raise Fault(f"another plan the second time, {policy}\n{program}")
    for how, found in (("program", best.program.run(inputs)), ("plan", best.compile()(inputs))):
        compare(program, policy, how, inputs, wanted, found)
    if seed % EVERY == 0:
        compare_with_onnxruntime(made, best.program, inputs, wanted, tell)
    word = "result, stopped early" if stopped else "result"
    if seed % CHECKER == 1 and made.device != "cpu":
        found = _in_checker(best, inputs)
        if found is None:
            return word
        compare(program, "fast", "checker", inputs, wanted, found)
        return f"{word}, kernels checked"
    return word


def values(program: Program, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The outputs of a program as it is written; None if it cannot run."""
    try:
        return program.run(inputs)
    except InputError:
        return None


def optimized(made: Case, vague: bool = False) -> Any:
    """The result for a program.

    Raises:
        Fault: a part of it stays as written, because its result was refused; with `vague`, not if the program
            `says_nothing`. Or a kernel was priced as a stream and is none.
    """
    options: dict[str, Any] = {"time_limit": SEARCH_SECONDS, "explain_time": 0.0, "measure": False}
    best = eqsat.optimize(made.program, device=made.device, numerics=made.policy, **options)
    if best.report.get("fallback") and not (vague and says_nothing(made)):
        raise Fault(f"fallback: {best.report['fallback']['refused'][:1]} {made.policy}\n{made.program}")
    lines = (line for kernel in best.report["kernels"] for line in kernel.get("why", ()))
    no_stream = next((line for line in lines if line.startswith(NO_STREAM)), None)
    if no_stream is not None:
        raise Fault(f"{no_stream} {made.policy}\n{made.program}")
    return best


def _in_checker(best: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The outputs by the kernels of a plan in the checker; None where it has none for the plan, or no compiler."""
    try:
        return best.compile(on="simt")(inputs)
    except InputError:
        return None


def _untimed(best: Any) -> tuple[str, str]:
    """The program and the kernels of a result, without seconds."""
    report = {k: v for k, v in best.report.items() if k in ("kernels", "result", "rules", "lower_bound_us")}
    return str(best.program), repr(report)


def compare(program: Program, policy: str, how: str, inputs: Any, wanted: Any, found: Any) -> None:
    """Raise Fault where values differ in their bits, or by more than rounding."""
    varies, plain, settled = _facts(program)
    wide: dict[str, Any] = {}
    for name, term in program.outputs.items():
        want, got = wanted[name], np.asarray(found[name])
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            raise Fault(f"{how}: {got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}\n{program}")
        kept = settled[term] or (policy == "exact" and (plain[term] or not varies[term]))
        bitwise = kept and how not in ("onnxruntime", "checker")
        if bitwise:
            if not same_bits(got, want):
                raise Fault(f"{how}: other bits, {policy}: {got.ravel()[:4]} for {want.ravel()[:4]}\n{program}")
            continue
        wide = wide or program.run(inputs, "float64")
        error, allowed = _error(got, want, wide[name], _tolerance(program))
        if error > allowed and not _is_noise(term, inputs, got):
            raise Fault(f"{how}: off, {policy}: by {error:.1e}, {allowed:.1e} allowed\n{program}")


def says_nothing(made: Case) -> bool:
    """Whether an output is noise on one of some random inputs: nobody can tell whether another one is right."""
    drawn = (random_inputs(made.program, made.seed + draw) for draw in range(DRAWS))
    return any(_is_noise(term, inputs) for inputs in drawn for term in made.program.outputs.values())


def _is_noise(term: Term, inputs: Mapping[str, Any], found: Any = None) -> bool:
    """Whether a value has cancelled, so that it is its own rounding error, and whether `found` differs by no more.

    In float64 that shows only once every value is moved by its last place: the reference rounds as the source does.
    Types of the program that round more than float64 may make that much more of it.
    """
    rounding = Rounding((term, term), everything(term), inputs)
    (wide,) = Demanded({term: everything(term)}).run(inputs)
    types = {t.dtype for t in topological([term]) if is_float(t.dtype)}
    coarsest = max((float(finfo(np_dtype(dtype)).eps) for dtype in types), default=1.0)
    off = 0.0 if found is None else np.asarray(found).astype(np.float64) - wide
    return rounding.is_noise(wide, wide + off * float(finfo(np.float64).eps) / coarsest)


def _facts(program: Program) -> tuple[dict[Term, bool], dict[Term, bool], dict[Term, bool]]:
    """Three facts about each term: whether it depends on an input; whether its bits are independent of the order of
    additions; whether it is computed ahead of time as written, under every policy. (A sum of constants that takes more
    memory than its operands may be computed in another order, see `eqsat.program.fold`.)
    """
    varies: dict[Term, bool] = {}
    plain: dict[Term, bool] = {}
    settled: dict[Term, bool] = {}
    held: dict[Term, int] = {}
    for t in program.terms():
        varies[t] = t.op in ("input", "opaque") or any(varies[a] for a in t.args)
        plain[t] = t.op not in ADDING and all(plain[a] for a in t.args)
        own = 1 if t.op == "full" else t.size * itemsize(t.dtype)
        read = sum(held[a] for a in dict.fromkeys(t.args)) if t.args else own
        grows = t.op in ADDING and own > read
        settled[t] = not varies[t] and not grows and all(settled[a] for a in t.args)
        held[t] = min(own, read)
    return varies, plain, settled


def _tolerance(program: Program) -> float:
    return max((TOLERANCE[t.dtype] for t in program.terms() if is_float(t.dtype)), default=0.0)


def _error(got: Any, want: Any, wide: Any, tolerance: float) -> tuple[float, float]:
    """The largest difference, and how much the source's own rounding allows.

    Elements that are not finite in the source, in its own types or in float64, are ignored: the policy decides that.
    """
    got, want, wide = (np.asarray(a).astype(np.float64) for a in (got, want, wide))
    sure = np.isfinite(want) & np.isfinite(wide)
    if not sure.any():
        return 0.0, 0.0
    got, want, wide = got[sure], want[sure], wide[sure]
    with np.errstate(all="ignore"):
        scale, own = float(np.abs(wide).max()), float(np.abs(want - wide).max())
        error = np.minimum(np.abs(got - want), np.abs(got - wide)).max()
    return float(np.nan_to_num(error, nan=np.inf)), max(tolerance * scale, NOISE * own, 1e-6 * tolerance)


def compare_with_onnxruntime(made: Case, result: Program, inputs: Any, wanted: Any, tell: Tell) -> None:
    """Raise Fault where onnxruntime computes other values from a result than its source has."""
    tell("foreign")
    found = _by_onnxruntime(result, inputs)
    tell("")
    if found is not None:
        compare(made.program, "fast", "onnxruntime", inputs, wanted, found)


def _by_onnxruntime(program: Program, inputs: dict[str, Any]) -> dict[str, Any] | None:
    """onnxruntime's outputs of a program; None where ONNX or onnxruntime cannot express it."""
    if any(map(_open, program.terms())):
        return None
    try:
        data = eqsat.to_onnx(program).SerializeToString()
    except InputError:
        return None
    return by_onnxruntime(data, program, inputs)


def _open(term: Term) -> bool:
    """Whether ONNX leaves a value open: integers divided by zero, to negative powers, cast from floats out of range."""
    if is_float(term.dtype):
        return False
    return term.op in ("pow", "div", "mod") or (term.op == "cast" and is_float(term.args[0].dtype))


def files(made: Case) -> dict[str, bytes]:
    """A case as text, and as ONNX where that can express it."""
    text = f"{made.policy}, {made.device}\n{made.program}\n".encode()
    try:
        return {".txt": text, ".onnx": eqsat.to_onnx(made.program).SerializeToString()}
    except InputError:
        return {".txt": text}
