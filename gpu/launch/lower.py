"""From a plan to launches: kernel texts, buffers with lifetimes in one arena, fills, and folded constants.

A kernel of a plan may have several outputs. One launch writes them all where they are

- pointwise expressions of any sizes;
- reductions of the rows of one [rows][columns] domain, pointwise expressions of these, and any pointwise expressions
  with as many elements as the domain or its rows (a residual sum beside its norm), moved by bijective views;
- pointwise functions of one product, moved by bijective views, and reductions of it, all along the same edge;
- pointwise functions of several products, one of each, none of which needs another.

Other kernels are split into several launches by `generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from eqsat.base.numerics import np_dtype
from eqsat.errors import InputError
from eqsat.extract.device.table import Device, DeviceLike
from eqsat.extract.device.table import device as find_device
from eqsat.extract.plan.plan import Kernel as PlanKernel
from eqsat.extract.plan.plan import Plan, Result
from eqsat.gpu.code.index import Index, Var, through
from eqsat.gpu.families.base import Choice, Kernel
from eqsat.gpu.families.group import gathered, grouped, side_by_side
from eqsat.gpu.launch.generate import Chain, chain, member_choice, streaming_member
from eqsat.gpu.launch.grouping import groups, placed_in_place, product_of
from eqsat.gpu.launch.steps import Buffer, BufferKind, Fill, HostCall, Launch, LibraryProduct, Place, Step, arranged
from eqsat.gpu.table.limits import THREADS
from eqsat.gpu.table.targets import Target, target
from eqsat.layout.arithmetic import Layout, identity, row_major
from eqsat.program.core import Node, make
from eqsat.program.ir import Program

Array = np.ndarray[Any, Any]

LIBRARY_DTYPES = frozenset({"float64", "float32", "float16"})
"""Element types of products that CuPy passes on to the vendor's library."""


@dataclass(frozen=True)
class Signature:
    """A program's inputs, name to (shape, dtype), and its outputs, name to shape, in order."""

    inputs: Mapping[str, tuple[tuple[int, ...], str]]
    outputs: Mapping[str, tuple[int, ...]]

    @staticmethod
    def of(program: Program) -> Signature:
        """The signature of a program."""
        inputs = {t.attr("name"): (t.shape, t.dtype) for t in program.inputs}
        return Signature(inputs, {name: t.shape for name, t in program.outputs.items()})

    @staticmethod
    def flat(plan: Plan) -> Signature:
        """Of a plan whose program is not at hand: flat arrays; outputs are called out0, out1, ..."""
        nodes = [n for k in plan.kernels for n in k.inputs] + [r.buffer for r in plan.results]
        inputs = {n.attrs[0]: ((n.size,), n.dtype) for n in nodes if n.op == "In"}
        return Signature(inputs, {f"out{i}": (root.size,) for i, root in enumerate(plan.roots)})

    def fits(self, plan: Plan) -> bool:
        """Whether the plan may be of a program with these inputs and outputs."""
        flat = {name: ((prod(shape),), dtype) for name, (shape, dtype) in self.inputs.items()}
        sizes = [prod(shape) for shape in self.outputs.values()]
        return Signature.flat(plan).inputs.items() <= flat.items() and sizes == [root.size for root in plan.roots]


@dataclass(frozen=True)
class Launches:
    """A plan, lowered for one device.

    Attributes:
        device, target: what it was lowered for.
        buffers: by name; `constants` are the values of those of that kind.
        steps: in order.
        results: where the roots lie once the steps have run, and `shapes` their shapes.
        arena_bytes: what all temporaries together take, since those never in use at once share memory.
    """

    device: Device
    target: Target
    buffers: Mapping[str, Buffer]
    constants: Mapping[str, Array]
    steps: tuple[Step, ...]
    results: tuple[Place, ...]
    shapes: tuple[tuple[int, ...], ...]
    arena_bytes: int
    opaque: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The distinct kernels by entry point, in order of first launch."""
        return {step.kernel.entry: step.kernel for step in self.steps if isinstance(step, Launch)}

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on the device while the steps run: inputs, constants, outputs, the arena, and `peak`, their sum."""
        names = {"input": "inputs", "constant": "constants", "output": "outputs"}
        held = {name: sum(b.nbytes for b in self.buffers.values() if b.kind == kind) for kind, name in names.items()}
        held["arena"] = self.arena_bytes
        return held | {"peak": sum(held.values())}

    def call_host(self, step: HostCall, memory: Mapping[str, Array]) -> None:
        """Run an opaque operator by its own implementation, on buffers that the host holds by name."""
        operands = [memory[p.buffer][p.offset : p.offset + n] for p, n in zip(step.inputs, step.sizes, strict=True)]
        results = self.opaque[step.key].run(operands)
        for index, place in step.outputs:
            flat = np.asarray(results[index]).reshape(-1)
            memory[place.buffer][place.offset : place.offset + flat.size] = flat


def lower(
    plan: Plan,
    device: DeviceLike,
    signature: Signature | None = None,
    *,
    own_outputs: bool = False,
    library: bool = False,
    choices: Mapping[tuple[Node, ...], Choice] | None = None,
) -> Launches:
    """Lower a plan for a device.

    Args:
        signature: names and shapes; by default those of `Signature.flat`.
        own_outputs: give every output a buffer of its own, by a copy if it lies inside another array.
        library: products that the plan gives to the vendor's library go there; else they are kernels like others.
        choices: tuning parameters by the body of a kernel. The cost model chooses the others.

    Raises:
        InputError: the device is unknown or runs no kernels, or the signature is another program's.
    """
    row = find_device(device)
    if signature and not signature.fits(plan):
        raise InputError("the plan is of another program: its inputs or outputs differ in name, size or type")
    if row.name == "cpu":
        raise InputError("device cpu runs no GPU kernels: name a GPU (see `eqsat devices`)")
    return _Lowering(plan, row, signature, own_outputs, library, choices or {}).result()


class _Lowering:
    def __init__(
        self,
        plan: Plan,
        device: Device,
        signature: Signature | None,
        own_outputs: bool,
        library: bool,
        choices: Mapping[tuple[Node, ...], Choice],
    ) -> None:
        self.plan, self.device, self.choices = plan, device, choices
        self.own_outputs, self.library = own_outputs, library
        self.target = target(device.arch)
        self.signature = signature or Signature.flat(plan)
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[str, Array] = {}
        self.places: dict[Node, Place] = {}
        self.steps: list[Step] = []
        self.inside = placed_in_place(plan)
        self._wholes = {whole for whole, _ in self.inside.values()}
        self._temporaries = 0
        self._taken: set[Place] = set()
        """Where results lie that are whole arrays."""

    def result(self) -> Launches:
        for name, (shape, dtype) in self.signature.inputs.items():
            self.buffers[name] = Buffer(name, shape, dtype, "input")
        self._name_outputs()
        for group in groups(self.plan):
            kernels = [self.plan.kernels[i] for i in group]
            if len(kernels) > 1:
                self._group(kernels)
            elif not self._written_in_place(kernels[0]):
                self._kernel(kernels[0])
        outputs = zip(self.plan.results, self.signature.outputs.items(), strict=True)
        results = tuple(self._result(result, name, shape) for result, (name, shape) in outputs)
        offsets, arena = arranged(self.buffers, self.steps, results)
        for name, offset in offsets.items():
            old = self.buffers[name]
            self.buffers[name] = Buffer(name, old.shape, old.dtype, old.kind, offset)
        return Launches(
            device=self.device,
            target=self.target,
            buffers=self.buffers,
            constants=self.constants,
            steps=tuple(self.steps),
            results=results,
            shapes=tuple(self.signature.outputs.values()),
            arena_bytes=arena,
            opaque=self.plan.opaque,
        )

    # --- buffers ------------------------------------------------------------------------------------------------

    def _name_outputs(self) -> None:
        """Roots that are whole results of kernels get buffers that are the program's outputs."""
        produced = {node for kernel in self.plan.kernels for node in kernel.outputs}
        for (name, shape), result in zip(self.signature.outputs.items(), self.plan.results, strict=True):
            node = result.buffer
            whole = node in produced and result.layout.is_identity(node.size)
            if whole and node not in self.places and node not in self.inside:
                self.places[node] = self._new(name, shape, node.dtype, "output")

    def _new(self, name: str, shape: tuple[int, ...], dtype: str, kind: BufferKind) -> Place:
        own = kind == "output" and name not in self.signature.inputs
        unique, count = name, 0
        while not own and (unique in self.buffers or unique in self.signature.outputs):
            count += 1
            unique = f"{name}_{count}"
        self.buffers[unique] = Buffer(unique, shape, dtype, kind, output=name if kind == "output" else "")
        return Place(unique)

    def _temporary(self, size: int, dtype: str) -> Place:
        self._temporaries += 1
        return self._new(f"t{self._temporaries - 1}", (size,), dtype, "temporary")

    def _zeros(self, node: Node) -> Place:
        """An array that is 0 between launches: written once, with the constants."""
        place = self._new(f"c{len(self.constants)}", (node.size,), node.dtype, "constant")
        self.constants[place.buffer] = np.zeros(node.size, np_dtype(node.dtype))
        return place

    def _place(self, node: Node) -> Place:
        """Where a node of the plan lies; a buffer for it is made at first."""
        if node in self.places:
            return self.places[node]
        if node.op == "In":
            place = Place(node.attrs[0])
        elif node.op == "Const":
            place = self._new(f"c{len(self.constants)}", (node.size,), node.dtype, "constant")
            self.constants[place.buffer] = self.plan.constants[node.attrs[0]].reshape(-1)
        elif node in self.inside:
            whole, offset = self.inside[node]
            outer = self._place(whole)
            place = Place(outer.buffer, outer.offset + offset)
        else:
            place = self._temporary(node.size, node.dtype)
            if node.op == "Full":
                self.steps.append(Fill(place.buffer, node.attrs[0]))
        self.places[node] = place
        return place

    # --- steps --------------------------------------------------------------------------------------------------

    def _written_in_place(self, kernel: PlanKernel) -> bool:
        """Whether the kernel's only work, placing arrays one after another, was done by those that made them."""
        return kernel.outputs[0] in self._wholes

    def _kernel(self, kernel: PlanKernel) -> None:
        if kernel.family == "opaque":
            self._host_call(kernel)
            return
        if all(node.size == 0 for node in kernel.outputs):
            for node in kernel.outputs:
                self._place(node)
            return
        chosen = self.choices.get(kernel.body)  # one for a product of the library's says that ours was faster
        if self.library and kernel.family == "library-gemm" and chosen is None and self._library_product(kernel):
            return
        units = int(self.device.units.value)
        choice = (chosen or Choice()).planned(kernel.slices)
        made = chain(kernel.family, kernel.body, kernel.params, self.target, units, self.plan.exact, choice)
        self._launch(made, self._places(kernel))

    def _places(self, kernel: PlanKernel) -> dict[Node, Place]:
        """Where a kernel's inputs and outputs lie, by the nodes that stand for them in its body."""
        places = {p: self._place(n) for p, n in zip(kernel.params, kernel.inputs, strict=True)}
        return places | {b: self._place(n) for b, n in zip(kernel.body, kernel.outputs, strict=True)}

    def _group(self, kernels: Sequence[PlanKernel]) -> None:
        """Several kernels as one launch."""
        units = int(self.device.units.value)
        launches: list[Launch] = []
        for kernel in kernels:
            choice: Choice | None = member_choice(product_of(kernel), self.target, units)
            if kernel.family == "stream":
                choice = streaming_member(kernel.body, kernel.params, self.target, units)
            made = chain(
                kernel.family, kernel.body, kernel.params, self.target, units, self.plan.exact, choice or Choice()
            )
            places = self._places(kernel)
            if len(made.kernels) == 1 and made.kernels[0].threads == THREADS:
                launches += [Launch(k, tuple(places[n] for n in k.arguments)) for k in made.kernels]
            else:
                self._launch(made, places)
        if not launches:
            return
        launches = side_by_side([launch.kernel for launch in launches], launches)
        members = [launch.kernel for launch in launches]
        self.steps.append(Launch(grouped(members), gathered(members, [launch.arguments for launch in launches])))

    def _library_product(self, kernel: PlanKernel) -> bool:
        """Let the vendor's library compute the kernel, where its operands are matrices with strides."""
        (product,) = kernel.body
        batch, m, k, n = product.attrs
        strides = [
            matrix_strides(a, shape) for a, shape in zip(product.args, ((batch, m, k), (batch, k, n)), strict=True)
        ]
        left, right = strides
        if left is None or right is None or product.dtype not in LIBRARY_DTYPES:
            return False
        if batch > 1 and product.dtype == "float16":  # CuPy converts batches of them to float32
            return False
        places = dict(zip(kernel.params, (self._place(n) for n in kernel.inputs), strict=True))
        operands = [places[base] for base, _, _ in (left, right)]
        a, b = (Place(p.buffer, p.offset + at) for p, (_, at, _) in zip(operands, (left, right), strict=True))
        out = self._place(kernel.outputs[0])
        self.steps.append(LibraryProduct(product.attrs, (a, b), (left[2], right[2]), out))
        return True

    def _launch(self, made: Chain, places: dict[Node, Place]) -> None:
        for node, dtype in made.temporaries.items():
            places[node] = self._temporary(node.size, dtype)
        for kernel in made.kernels:
            for node in kernel.counters:
                places[node] = self._zeros(node)
            for node, value in kernel.fills.items():
                self._fill(places[node], node, value)
            self.steps.append(Launch(kernel, tuple(places[n] for n in kernel.arguments)))

    def _fill(self, place: Place, node: Node, value: float | int) -> None:
        if node.dtype.startswith("int") and abs(value) == float("inf"):
            info = np.iinfo(node.dtype)
            value = int(info.max if value > 0 else info.min)
        if self.buffers[place.buffer].size != node.size:
            raise InputError(f"internal: a fill of part of buffer {place.buffer}")
        self.steps.append(Fill(place.buffer, value))

    def _host_call(self, kernel: PlanKernel) -> None:
        node = kernel.body[0]
        places = dict(zip(kernel.params, (self._place(n) for n in kernel.inputs), strict=True))
        operands = [self._operand(a, places) for a in node.args]
        outputs = tuple((b.attrs[1], self._place(n)) for b, n in zip(kernel.body, kernel.outputs, strict=True))
        self.steps.append(HostCall(node.attrs[0], tuple(operands), tuple(a.size for a in node.args), outputs))

    def _operand(self, node: Node, places: Mapping[Node, Place]) -> Place:
        """Where an operand of an opaque operator lies; one that is a view of an array is copied out."""
        if node in places:
            return places[node]
        place = self._temporary(node.size, node.dtype)
        if node.op == "Full":
            self.steps.append(Fill(place.buffer, node.attrs[0]))
            return place
        params = tuple(places)
        made = chain("copy", (node,), params, self.target, int(self.device.units.value), self.plan.exact)
        self._launch(made, {**places, node: place})
        return place

    def _result(self, result: Result, name: str, shape: tuple[int, ...]) -> Place:
        """Where an output lies; a copy is made where it lies nowhere as it should."""
        found = self._found_or_copied(result, name, shape)
        if result.layout.is_identity(result.buffer.size) and result.buffer in self.places:
            self._taken.add(self.places[result.buffer])
        return found

    def _found_or_copied(self, result: Result, name: str, shape: tuple[int, ...]) -> Place:
        node, layout = result.buffer, result.layout
        taken = self.places.get(node) in self._taken
        if node.op not in ("In", "Const", "Full") and layout.contiguous:
            place = self._place(node)
            here = Place(place.buffer, place.offset + layout.offset)
            own = self.buffers[here.buffer].kind == "output" and layout.is_identity(node.size) and not taken
            if own or not self.own_outputs:
                return here
        out = self._new(name, shape, node.dtype, "output")
        if node.op == "Full":
            self.steps.append(Fill(out.buffer, node.attrs[0]))
        elif layout.size:
            self._copy(node, layout, out)
        return out

    def _copy(self, node: Node, layout: Layout, out: Place) -> None:
        param = make("In", ("a0", node.size, node.dtype))
        # A concatenation of one array is that array, but another node: a copy.
        body = make("Cat", (), (make("V", (layout,), (param,)),))
        made = chain("copy", (body,), (param,), self.target, int(self.device.units.value), self.plan.exact)
        self._launch(made, {param: self._place(node), body: out})


def matrix_strides(node: Node, shape: tuple[int, ...]) -> tuple[Node, int, tuple[int, ...]] | None:
    """(array, offset, strides) of a node that reads an array as a tensor of this shape; None where strides cannot."""
    layout, base = (node.attrs[0], node.args[0]) if node.op == "V" else (identity(node.size), node)
    if base.op != "In" or layout.masked:
        return None
    axes = [Var(f"d{i}", n) for i, n in enumerate(shape)]
    flat = Index()
    for axis, stride in zip(axes, row_major(shape), strict=True):
        flat += Index.of(axis) * stride
    address, _ = through(layout, flat)
    steps = [address.coefficient(axis) if axis.extent > 1 else 0 for axis in axes]
    found = tuple(step for step in steps if step is not None)
    return (base, address.constant, found) if len(found) == len(steps) else None
