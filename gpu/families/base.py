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
        tile: the name of a product's tile.
        slices: how many slices the k of a product, or a reduced row, is cut into.
        combine: how blocks combine a reduction of a product.
        width: adjacent elements for each thread of a pointwise or row kernel.
        per_row: threads for each row.
    """

    tile: str | None = None
    slices: int | None = None
    combine: Literal["atomic", "lds", "wave", "two-pass"] | None = None
    width: int | None = None
    per_row: int | None = None

    def planned(self, slices: int) -> Choice:
        """This choice, with the plan's number of slices if it has none of its own."""
        return self if self.slices else replace(self, slices=slices)


Sizes = tuple[int, int, int, int]
"""(batch, m, k, n): the dims from which a family makes its examples."""


@dataclass(frozen=True)
class Family:
    """A kernel family, as a row: tests and listings loop over the rows.

    Attributes:
        name: the name in `Kernel.family`.
        computes: a description of the result.
        choices: the tuning parameters of every variant, for a target and an element type.
        examples: the outputs of sample kernels by name, for given sizes and an element type. Each is one kernel, or two
            with slices or partial results. Tests compare the kernels with these expressions.
        sizes: the sizes at which kernels are compiled for the gates. Vectors divide the first.
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
        inputs: the arrays that it reads. The kernel computes the expressions in between.
        storage: element types in memory that differ from the node's own. Partial sums are wider, for example.
        units: compute units of the device. Tiles and slices are chosen for them.
        choice: tuning parameters that are fixed in advance.
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
        """The nodes that the kernel computes, operands first."""
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
    """The body of a kernel. One launch may run several.

    Attributes:
        description: comment lines on the result.
        statements: C++ over `block`, `t` (the thread), `lds`, and the arrays in0, in1, .. and out0, out1, ..
        reads, writes: element types in memory of these arrays.
        lds_bytes: bytes of `lds`; 0 if it is not used.
        matrix: whether it uses matrix units.
        lds_at_launch: whether the launch gives it its LDS, which may then be more than static LDS is.
        warpgroups: whether it multiplies in groups of four waves.
        many_registers: whether it would spill if the compiler limited registers for occupancy.
        prefix: the start of the arrays' names.
    """

    description: str
    statements: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    lds_bytes: int = 0
    matrix: bool = False
    lds_at_launch: bool = False
    warpgroups: bool = False
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
        family, variant: the family that generated it, and the variant of the family.
        source: the whole C++ text. It includes prelude.h and no header of an installation.
        blocks, threads: the size of the one-dimensional launch.
        arguments: the arrays whose addresses it takes, in order.
        fills: arrays to fill with one value before the launch.
        counters: arrays of int32 that no other kernel has, 0 before and after every launch.
        claims: texts that must occur in its assembly.
        part: the part from which the text was generated; None for a text of another origin.
        tile: the tile of its product, if there is one.
    """

    entry: str
    family: str
    variant: str
    source: str
    blocks: int
    threads: int
    arguments: tuple[Node, ...]
    fills: Mapping[Node, float | int] = field(default_factory=dict)
    counters: tuple[Node, ...] = ()
    claims: tuple[str, ...] = ()
    part: Part | None = None
    tile: Tile | None = None

    @property
    def launch_lds(self) -> int:
        """Bytes of LDS that the launch must give each block, beside what is static."""
        return -(-self.part.lds_bytes // 16) * 16 if self.part and self.part.lds_at_launch else 0

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
