"""Public functions with one wrong argument. Right answers: a result, an InputError or a TypeError."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from eqsat.base.arguments import shown
from eqsat.fuzzing.kinds import Fault, one_piece
from eqsat.runs.task import Tell

SECONDS = 30.0
BYTES = 6_000_000_000

steps = one_piece

Call = tuple[str, Callable[..., Any], list[Any], dict[str, Any]]
"""A name, the callable, and its arguments by position and by name."""


def _wrong() -> tuple[Any, ...]:
    import eqsat
    from eqsat.tracing.tracer import Tracer

    return (
        *(None, "", "x", "mi300x", b"x", -1, 0, 1, 3, 1.5, -0.5, float("nan"), float("inf"), 10**30, -(10**30), True),
        *((), [], [[]], [1, [2, 3]], (1.5,), (-1,), ("a",), (None,), (0, 0), (10**12, 10**12)),
        *({}, {"x": 1}, {1: 2}, {"a"}),
        *("\ud800", 10**400, _nested(5000), {1: 1.0, "1": 2.0}, {"n": (2, 10**400)}, {"\ud800": (2, 9)}),
        *(object(), int, len, lambda: None, range(3), slice(1), ..., 1 + 2j, np.float32(1), np.int64(2)),
        *(np.array(1.0), np.zeros((0, 3)), np.zeros((2, 0)), np.array([None, 1], object), np.array(["a"])),
        *(np.zeros(3, np.complex64), np.zeros((2, 3)), np.zeros((2, 3), np.uint64), np.array("2020", "datetime64[D]")),
        *(eqsat.spec((2, 3)), Tracer(_term((2, 3))), Tracer(_term(())), _term((2, 3)), _program()),
    )


def _nested(depth: int) -> list[Any]:
    """A list in a list, and so on: its `repr` fails."""
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    return deep


def _term(shape: tuple[int, ...]) -> Any:
    from eqsat.program import ops

    return ops.input("x", shape, "float32")


def _program() -> Any:
    import eqsat

    return eqsat.trace(lambda x, w: eqsat.relu(x @ w), eqsat.spec((2, 3)), eqsat.spec((3, 4)))


def _sized(sizes: Any) -> Any:
    import eqsat

    return eqsat.trace(lambda x: x + x, eqsat.spec((sizes["n"], 3)))


def _result() -> Any:
    import eqsat

    return eqsat.optimize(_program(), time_limit=0.5, explain_time=0.0)


def _jitted(*args: Any, **options: Any) -> Any:
    import eqsat

    return eqsat.jit(lambda x: x + 1, **options)(*args)


def _calls() -> list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """A target: a name, the callable, right arguments by position and by name."""
    import eqsat
    from eqsat import testing
    from eqsat.evidence.judge import judge
    from eqsat.extract.device import table as devices
    from eqsat.extract.solver import serialized
    from eqsat.inspection import explore
    from eqsat.inspection.why_not import why_not
    from eqsat.language.equation import rule
    from eqsat.tracing import expression
    from eqsat.tracing.functions import FUNCTIONS
    from eqsat.tracing.tracer import Tracer

    x, v = Tracer(_term((4, 6))), Tracer(_term((6,)))
    special: dict[str, tuple[Any, ...]] = {
        "where": (True, x, x), "matmul": (x, x.T), "dot": (x, x.T), "einsum": ("ij,ij->i", x, x), "clip": (x, 0.0, 1.0),
        "reshape": (x, (6, 4)), "transpose": (x, (1, 0)), "swapaxes": (x, 0, 1), "moveaxis": (x, 0, 1),
        "broadcast_to": (v, (2, 6)), "squeeze": (Tracer(_term((1, 3))), 0), "expand_dims": (x, 0), "flip": (x, 0),
        "tile": (x, (2, 1)), "concatenate": ([x, x], 0), "concat": ([x, x], 0), "stack": ([x, x], 0),
        "vstack": ([x, x],), "hstack": ([x, x],), "split": (x, 2, 0), "pad": (x, 1, "constant", 0.0),
        "take": (x, np.array([0, 1]), 0),
        "full": ((2, 3), 1.0, "float32"), "full_like": (x, 1.0),
        "zeros": ((2, 3), "float32"), "ones": ((2, 3), "int64"),
        "layernorm": (x, v, v), "rmsnorm": (x, v),
        "conv": (Tracer(_term((1, 2, 5, 5))), Tracer(_term((3, 2, 3, 3)))),
        "max_pool": (Tracer(_term((1, 2, 5, 5))), (2, 2)), "avg_pool": (Tracer(_term((1, 2, 5, 5))), (2, 2)),
        "softmax": (x, 0), "log_softmax": (x, 0), "gelu": (x, "none"), "elu": (x, 1.0), "leaky_relu": (x, 0.1),
        "round": (x, 0),
    }  # fmt: skip
    binary = {
        *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum", "minimum", "outer"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or"),
    }
    reductions = ["sum", "prod", "max", "min", "argmax", "argmin", "mean", "var", "std", "logsumexp"]
    calls: list[Any] = []
    for name, function in FUNCTIONS.items():
        right = special.get(name) or ((x, x) if name in binary else (x, 0) if name in reductions else (x,))
        calls.append((name, function, right, {"keepdims": True} if name in reductions else {}))
    for name in ("reshape", "astype", "sum", "max", "take", "swapaxes", "transpose", "clip", "dot", "mean", "argmax"):
        right = {"reshape": ((6, 4),), "astype": ("int64",), "take": (np.array([0]), 0), "swapaxes": (0, 1)}.get(name)
        calls.append((f"Tracer.{name}", getattr(x, name), right or ((x.T,) if name == "dot" else (0,)), {}))
    calls.append(("Tracer[]", x.__getitem__, ((0, slice(None)),), {}))
    program, result = _program(), _result()
    dynamic = eqsat.optimize_dynamic(_sized, {"n": (2, 9)}, time_limit=0.3, rules=[])
    row = {"numerics": "exact", "source": "s", "why": "w", "when": "", "worth": "", "numbers": ""}
    one = rule("name", "a + b == b + a")
    arrays = {"x": np.ones((2, 3), np.float32), "w": np.ones((3, 4), np.float32)}
    options = {"device": "mi300x", "time_limit": 0.2, "numerics": "exact", "rules": [], "progress": None}
    options |= {"explain_time": 0.0, "top": 1, "objective": "latency", "inputs": arrays}
    calls += [
        ("spec", eqsat.spec, ((2, 3), "float32", "x"), {}),
        ("trace", eqsat.trace, (lambda x: x + 1, eqsat.spec((2, 3))), {}),
        ("trace returning", lambda value: eqsat.trace(lambda x: value, eqsat.spec((2, 3))), (1.0,), {}),
        ("optimize", eqsat.optimize, (program,), options),
        ("prove", eqsat.prove, (program, program, 0.3), {"sizes": {"n": 3}, "certify": False}),
        ("from_onnx", eqsat.from_onnx, (eqsat.to_onnx(program), {}), {}),
        ("to_onnx", eqsat.to_onnx, (program, None), {"opset": 17}),
        ("from_torch", eqsat.from_torch, (None, ()), {}),
        ("jit", _jitted, (np.ones(3, np.float32),), {"on": "numpy", "top": 1}),
        ("jit of", eqsat.jit, (lambda x: x,), {}),
        ("Program", eqsat.Program, (program.inputs, program.outputs), {}),
        ("Program.run", program.run, (arrays, "native"), {}),
        ("Program.run of one", lambda x: program.run(arrays | {"x": x}), (arrays["x"],), {}),
        ("optimize_dynamic", eqsat.optimize_dynamic, (_sized, {"n": (2, 9)}), {"time_limit": 0.3, "rules": []}),
        ("Dynamic.at", dynamic.at, ({"n": 3},), {}),
        ("compile", result.compile, ("numpy", None), {"tune": None, "capture": False, "held": ()}),
        ("compiled", result.compile(), (arrays["x"], arrays["w"]), {}),
        ("compiled by name", result.compile(), (arrays,), {}),
        ("assert_equivalent", testing.assert_equivalent, (program, program), {"seed": 0, "rtol": 1e-5}),
        ("random_inputs", testing.random_inputs, (program, 0), {}),
        ("rule", rule, ("name", "a + b == b + a"), row),
        ("judge", judge, (one, 1, 0), {}),
        ("why_not", why_not, (program, one), {"time_limit": 0.2}),
        ("explore", explore.explore, (program, []), {}),
        ("parse", expression.parse, ("a + b", {"a": "f32[4]", "b": "f32[4]"}), {}),
        ("device", devices.device, ("mi300x",), {}),
        ("extract", serialized.parse, ({"nodes": {}, "root_eclasses": []}, "name"), {}),
    ]
    return calls


@cache
def _all() -> tuple[list[Any], tuple[Any, ...]]:
    return _calls(), _wrong()


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str] = ()) -> Call:
    """A call with one wrong argument, sometimes a missing one or one too many."""
    calls, wrong = _all()
    rng = random.Random(seed)
    name, function, right, named = calls[seed % len(calls)] if seed % 3 else rng.choice(calls)
    args, kwargs = list(right), dict(named)
    place = rng.randrange(len(args) + len(kwargs) + 1)
    value = rng.choice(wrong)
    if place < len(args):
        args[place] = [value, value] if isinstance(args[place], list) and rng.random() < 0.3 else value
    elif place < len(args) + len(kwargs):
        kwargs[list(kwargs)[place - len(args)]] = value
    elif rng.random() < 0.5:
        args.append(value)
    else:
        kwargs["no_such"] = value
    return name, function, args, kwargs


def files(call: Call) -> dict[str, bytes]:
    """The call as text."""
    return {".txt": f"{call[0]}({_given(call)})\n".encode()}


def judge(call: Call, tell: Tell) -> str:
    """Make the call in an empty folder: a wrong argument may be a valid file name."""
    with tempfile.TemporaryDirectory(prefix="eqsat-misuse-") as folder, contextlib.chdir(folder):
        return _judged(call)


def _judged(call: Call) -> str:
    from eqsat.errors import EqsatError, InputError

    name, function, args, kwargs = call
    try:
        made = function(*args, **kwargs)
        str(made)
    except (InputError, TypeError) as error:
        text = str(error)
        if not text.strip() or not text.isprintable():
            raise Fault(f"{name}: no plain line") from error
        return "refused"
    except (EqsatError, AssertionError) as error:
        if name == "assert_equivalent":
            return "refused"
        raise Fault(f"{name}: {type(error).__name__}") from error
    except Exception as error:
        raise Fault(f"{name}: {type(error).__name__} of {_given(call)}") from error
    return "result"


def _given(call: Call) -> str:
    _, _, args, kwargs = call
    return ", ".join([*map(shown, args), *(f"{k}={shown(v)}" for k, v in kwargs.items())])
