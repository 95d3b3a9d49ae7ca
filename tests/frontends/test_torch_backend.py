"""The backend of torch.compile: what is rewritten, what passes through, and that results stay the same."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eqsat.frontends.torch import backend as backend_module
from eqsat.frontends.torch.backend import backend

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Dynamo remembers what it compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Compiler:
    """`torch.compile` with the backend, without code generation, which keeps the graphs that it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.graphs: list[Any] = []
        self.given: list[Any] = []
        inner = backend_module._compiled

        def kept(module: Any, *rest: Any, **how: Any) -> Callable[..., Any]:
            self.graphs.append(module)
            return inner(module, *rest, **how)

        monkeypatch.setattr(backend_module, "_compiled", kept)

    def __call__(self, model: Any, **options: Any) -> Any:
        def given(module: Any, inputs: Any) -> Any:
            self.given.append(module)
            return backend(module, inputs, options={"codegen": "eager", **options})

        return torch.compile(model, backend=given)

    @property
    def untouched(self) -> bool:
        """Whether every graph went on as Dynamo traced it."""
        return all(a is b for a, b in zip(self.graphs, self.given, strict=True))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(monkeypatch)


class Chain(torch.nn.Module):
    """x @ (y @ a + b) @ c"""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = (torch.nn.Parameter(torch.randn(n, m) / n**0.5) for n, m in ((64, 512), (512, 16)))
        self.b = torch.nn.Parameter(torch.randn(512))

    def forward(self, x: Any, y: Any) -> Any:
        return x @ (y @ self.a + self.b) @ self.c


class RowSum(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(256, 256) / 16)

    def forward(self, x: Any) -> Any:
        return (x @ self.w).sum(-1)


class Towers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.towers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Linear(8, 64)) for _ in "123"
        )

    def forward(self, x: Any) -> Any:
        return torch.cat([tower(x) for tower in self.towers], -1)


MOTIVATING = [
    ("chain", Chain, ((256, 64), (64, 64)), True),
    ("row-sum", RowSum, ((256, 256),), False),
    ("towers", Towers, ((256, 64),), True),
]


@pytest.mark.parametrize(("model", "shapes", "freeze"), [row[1:] for row in MOTIVATING], ids=[r[0] for r in MOTIVATING])
def test_motivating_programs_are_rewritten(compiler: Compiler, model: Any, shapes: Any, freeze: bool) -> None:
    module, inputs = model(), [torch.randn(shape) for shape in shapes]
    with torch.no_grad():
        got = compiler(module, freeze=freeze)(*inputs)
        torch.testing.assert_close(got, module(*inputs), rtol=1e-3, atol=1e-3)
    assert not compiler.untouched


def test_parameters_are_inputs_unless_frozen(compiler: Compiler) -> None:
    module, x = RowSum(), torch.randn(256, 256)
    with torch.no_grad():
        compiled = compiler(module)
        compiled(x)
        module.w.mul_(2)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-3, atol=1e-3)
        frozen = compiler(RowSum(), freeze=True)
        frozen(x)
    given = [len(graph.graph.find_nodes(op="placeholder")) for graph in compiler.graphs]
    assert given == [2, 1]


def test_only_what_modules_hold_is_frozen(compiler: Compiler) -> None:
    cache, norm = torch.ones(256, 4, 4), torch.nn.BatchNorm2d(256).eval()
    torch._dynamo.mark_static_address(cache)
    with torch.no_grad():
        compiled = compiler(lambda x: (norm(x) + cache).sum(-1), freeze=True)
        x = torch.randn(2, 256, 4, 4)
        compiled(x)
        cache += 1
        torch.testing.assert_close(compiled(x), (norm(x) + cache).sum(-1))
    assert len(compiler.graphs[0].graph.find_nodes(op="placeholder")) == 2


def test_attention_stays_whole_between_rewritten_parts(compiler: Compiler) -> None:
    def function(x: Any, w: Any) -> Any:
        mixed = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        return (mixed @ w).sum(-1)

    x, w = torch.randn(1, 2, 64, 64), torch.randn(64, 256)
    with torch.no_grad():
        torch.testing.assert_close(compiler(function)(x, w), function(x, w), rtol=1e-3, atol=1e-3)
    assert not compiler.untouched
    assert any("attention" in str(node.target) for node in compiler.graphs[0].graph.nodes)


PASSING = [
    ("training", lambda: RowSum(), True, {}),
    ("nothing-pays", lambda: torch.nn.ReLU(), False, {}),
    ("random", lambda: lambda x: (x @ x).sum(-1) + torch.rand(256), False, {}),
    ("in-place", lambda: lambda x: x.add_((x @ x).sum(-1)), False, {}),
    ("no-work-saved", lambda: torch.nn.LSTMCell(256, 64), False, {}),
    ("vmap", lambda: lambda x: torch.vmap(lambda row: (row @ x).sum(-1))(x), False, {}),
    ("grad", lambda: lambda x: torch.func.grad(lambda y: (y @ y).sin().sum())(x), False, {}),
    ("jvp", lambda: lambda x: torch.func.jvp(lambda y: (y @ y).sum(-1), (x,), (x,))[1], False, {}),
    ("no-row", lambda: lambda x: torch.linalg.inv(x), False, {}),
    ("exact", lambda: RowSum(), False, {"numerics": "exact"}),
]


@pytest.mark.parametrize(("make", "grad", "options"), [row[1:] for row in PASSING], ids=[row[0] for row in PASSING])
def test_graphs_that_go_on_untouched(
    compiler: Compiler, make: Any, grad: bool, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eqsat")
    with torch.set_grad_enabled(grad):
        found = compiler(make(), **options)(torch.randn(256, 256))
    assert compiler.graphs
    assert compiler.untouched
    assert "a graph stays as it is: " in caplog.text
    assert (found[0] if isinstance(found, tuple) else found).requires_grad == grad


def test_gradients_are_those_of_torch(compiler: Compiler) -> None:
    module, x = RowSum(), torch.randn(256, 256)
    compiler(module)(x).sum().backward()
    got, module.w.grad = module.w.grad, None
    module(x).sum().backward()
    torch.testing.assert_close(got, module.w.grad)


def test_symbolic_sizes_go_on_untouched(compiler: Compiler) -> None:
    with torch.no_grad():
        module = RowSum()
        compiled = compiler(module)
        for rows in (256, 128, 64):
            x = torch.randn(rows, 256)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-3, atol=1e-3)
    assert compiler.graphs[0] is not compiler.given[0]
    assert compiler.graphs[1] is compiler.given[1]


def test_what_is_not_known_stays_between_rewritten_parts(compiler: Compiler) -> None:
    def function(x: Any, w: Any) -> Any:
        ordered = torch.sort((x @ w).sum(-1, keepdim=True) * x).values
        return (ordered @ w).sum(-1), ordered.T

    with torch.no_grad():
        x, w = torch.randn(256, 256), torch.randn(256, 256)
        got = compiler(function)(x, w)
    for found, wanted in zip(got, function(x, w), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-2)
        assert found.stride() == wanted.stride()
    called = [str(node.target) for node in compiler.graphs[0].graph.nodes]
    assert called.count("aten.sort.default") == 1
    assert not compiler.untouched


def test_branches_stay_behind_rewritten_parts(compiler: Compiler) -> None:
    def function(x: Any, w: Any) -> Any:
        sums = (x @ w).sum(-1)
        return torch.cond(sums.sum() > 0, lambda y: y + 1, lambda y: y - 1, (sums,))

    with torch.no_grad():
        x, w = torch.randn(256, 256), torch.randn(256, 256)
        torch.testing.assert_close(compiler(function)(x, w), function(x, w), rtol=1e-3, atol=1e-2)
    assert not compiler.untouched


def test_results_share_memory_as_before(compiler: Compiler) -> None:
    def function(x: Any, w: Any) -> Any:
        return (x @ w).sum(-1), x.T, x * 1.0

    with torch.no_grad():
        x, w = torch.randn(256, 256), torch.randn(256, 256)
        _, turned, copied = compiler(function)(x, w)
    assert not compiler.untouched
    assert turned.data_ptr() == x.data_ptr()
    assert copied.data_ptr() != x.data_ptr()


def test_autocast_is_part_of_the_graph(compiler: Compiler) -> None:
    module, x = RowSum(), torch.randn(256, 256)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got, wanted = compiler(module)(x), module(x)
    assert got.dtype == wanted.dtype
    torch.testing.assert_close(got, wanted, rtol=5e-2, atol=0.3)


def test_inductor_compiles_what_is_written() -> None:
    module, x = RowSum(), torch.randn(256, 256)
    with torch.no_grad():
        compiled = torch.compile(module, backend="eqsat", options={"freeze": True})
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"freezing": True}, "no option 'freezing'; use codegen, freeze, device"),
        ({"codegen": "triton"}, "codegen 'triton' is none of inductor, eager, eqsat"),
        ({"freeze": 1}, "True or False"),
        ({"device": "abacus"}, "there is no 'abacus'"),
        ({"time_limit": -1}, "expected seconds"),
        ({"numerics": "loose"}, "none of exact, reassociate, fast"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        torch.compile(torch.nn.ReLU(), backend="eqsat", options=options)(torch.ones(2))
