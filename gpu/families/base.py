"""The interface of every family: from a job in core nodes to a kernel as text with its launch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from eqsat.base.graphs import operands_first
from eqsat.gpu.code.cache import HERE
from eqsat.gpu.code.scalar import STORAGE, Leaf
from eqsat.gpu.table.targets import Target
from eqsat.gpu.table.tiles import Tile
from eqsat.program.core import Node, topological

if TYPE_CHECKING:
    from jinja2 import Environment

_INT_LIMIT = 2**31
_ENTRY = "@ENTRY@"


@dataclass(frozen=True)
class Choice:
    """Tuning parameters of one kernel of a plan; the cost model decides what is None.

    Attributes:
        tile: of a product, by name; `slices` is how many its k, or a reduced row, is cut into.
        combine: how blocks combine a reduction of a product.
        width: neighbouring elements a thread, of pointwise and row kernels; `per_row` the threads of a row.
    """

    tile: str | None = None
    slices: int | None = None
    combine: Literal["atomic", "lds", "wave", "two-pass"] | None = None
    width: int | None = None
    per_row: int | None = None

    def planned(self, slices: int) -> Choice:
        """The same, with as many slices as the plan says where it says nothing of them itself."""
        return self if self.slices else replace(self, slices=slices)


Sizes = tuple[int, int, int, int]
"""(batch, m, k, n): what the sizes of a family's examples are made of."""


@dataclass(frozen=True)
class Family:
    """A kernel family, as a row: tests and listings loop over the rows.

    Attributes:
        name: as in `Kernel.family`.
        computes: its meaning.
        choices: every variant for operands of a type on a target, as tuning parameters.
        examples: what it computes, as outputs over arrays, by what is particular about it: each is one kernel (or two,
            where slices or partial results are chosen). They are its reference in tests.
        sizes: at which its kernels are compiled for the gates; vectors divide the first.
    """

    name: str
    computes: str
    choices: Callable[[Target, str], list[Choice]]
    examples: Callable[[Sizes, str], Mapping[str, tuple[Node, ...]]]
    sizes: tuple[Sizes, ...] = ((1, 1024, 1024, 1024), (1, 1021, 1021, 1021))

    def parameters(self, target: Target, dtype: str) -> dict[str, list[str]]:
        """The tuning parameters, each with its legal values."""
        found: dict[str, dict[str, None]] = {}
        for choice in self.choices(target, dtype):
            for name, value in vars(choice).items():
                if value is not None:
                    found.setdefault(name.replace("_", " "), {})[str(value)] = None
        return {name: list(values) for name, values in found.items()}


@dataclass(frozen=True)
class Job:
    """One kernel to generate.

    Attributes:
        outputs: the arrays that it writes.
        inputs: the arrays that it reads; the expressions between are the kernel.
        storage: element types in memory of arrays where they are not the node's own (partial sums are wider).
        units: compute units of the device, for choices of tile and of split; `choice` is what is not left to those.
    """

    outputs: tuple[Node, ...]
    inputs: tuple[Node, ...]
    storage: Mapping[Node, str] = field(default_factory=dict)
    units: int = 1
    choice: Choice = Choice()

    def dtype(self, node: Node) -> str:
        """The element type of a node in memory."""
        return self.storage.get(node, node.dtype)

    @property
    def nodes(self) -> list[Node]:
        """What is computed inside, operands first."""
        return operands_first(self.outputs, self.inputs)

    @property
    def leaves(self) -> dict[Node, Leaf]:
        """Inputs as C pointers."""
        return {node: Leaf(f"in{i}", self.dtype(node)) for i, node in enumerate(self.inputs)}

    @property
    def index_type(self) -> str:
        """The C type of addresses: 'int' unless an array is too long for it."""
        sizes = [node.size for node in (*self.inputs, *self.outputs, *self.nodes)]
        return "int" if max(sizes, default=0) < _INT_LIMIT else "long long"


@dataclass(frozen=True)
class Part:
    """The body of a kernel; one launch may hold several.

    Attributes:
        description: comment lines that say what it computes.
        statements: C++ over `block`, `t` (the thread), `lds`, and the arrays in0, in1, .. and out0, out1, ..
        reads, writes: element types in memory of these arrays.
        lds_bytes: what `lds` holds; 0 where it is not used.
        matrix: whether matrix units are used.
        many_registers: whether it would spill if registers were spared for occupancy.
        prefix: of the arrays' names.
    """

    description: str
    statements: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    lds_bytes: int = 0
    matrix: bool = False
    many_registers: bool = False
    prefix: str = ""

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """(C type, name) of the arrays, in the order of a kernel's arguments."""
        reads = [(f"const {STORAGE[dtype]} *EQ_RESTRICT", f"{self.prefix}in{i}") for i, dtype in enumerate(self.reads)]
        return reads + [
            (f"{STORAGE[dtype]} *EQ_RESTRICT", f"{self.prefix}out{i}") for i, dtype in enumerate(self.writes)
        ]


@dataclass(frozen=True)
class Kernel:
    """A kernel as text, and how it is launched.

    Attributes:
        entry: its extern "C" name, unique to the text.
        family, variant: what made it.
        source: the whole C++ text; it includes prelude.h and nothing of any installation.
        blocks, threads: the one-dimensional launch.
        arguments: the arrays whose addresses it takes, in order.
        fills: arrays that must hold one value everywhere before the launch.
        claims: texts of which each must occur in its assembly, by maker ('amd' or 'nvidia').
        part: what the text was made of; None for a text of another origin.
        tile: of a product.
    """

    entry: str
    family: str
    variant: str
    source: str
    blocks: int
    threads: int
    arguments: tuple[Node, ...]
    fills: Mapping[Node, float | int] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    part: Part | None = None
    tile: Tile | None = None

    @property
    def name(self) -> str:
        """Family and variant, as in listings and in the table of occupancy."""
        return f"{self.family} {self.variant}"


@cache
def environment(folder: Path) -> Environment:
    """The Jinja2 environment of the templates in a folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def part_of(job: Job, title: str, template: str, lds_bytes: int = 0, matrix: bool = False, **fields: Any) -> Part:
    """A job's part: a template filled in."""
    statements = environment(HERE / "families").get_template(template).render(index_type=job.index_type, **fields)
    return Part(
        description=f"// {title}:\n{described(job.outputs, job.inputs)}",
        statements=statements,
        reads=tuple(job.dtype(n) for n in job.inputs),
        writes=tuple(job.dtype(n) for n in job.outputs),
        lds_bytes=lds_bytes,
        matrix=matrix,
    )


def finished(name: str, threads: int, part: Part) -> tuple[str, str]:
    """(entry, source): a part as a whole text, its entry point called by `name` and a digest of the text."""
    template = environment(HERE / "families").get_template("kernel.jinja")
    text = template.render(entry=_ENTRY, threads=threads, part=part)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    entry = f"eq_{name}_{digest}"
    return entry, text.replace(_ENTRY, entry)


def described(outputs: Sequence[Node], inputs: Sequence[Node]) -> str:
    """One line per node: what a kernel computes, for the head of its text."""
    names = {node: f"in{i}" for i, node in enumerate(inputs)}
    lines = []
    for node in topological(outputs):
        if node not in names and node.op not in ("In", "Const"):
            names[node] = f"%{len(lines)}"
            operands = " ".join(names.get(a, "?") for a in node.args)
            lines.append(f"//   {names[node]} = {repr(node)[1:-1]} {operands}".rstrip())
    lines += [f"//   out{i} = {names[node]}" for i, node in enumerate(outputs)]
    return "\n".join(lines)
