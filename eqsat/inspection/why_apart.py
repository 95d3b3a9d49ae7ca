"""Why two kernels of a result are not one that streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.egraph.required import needs_of_all
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import InputError
from eqsat.extract.device.table import Device
from eqsat.extract.kernels.candidates import enumerate_candidates
from eqsat.extract.kernels.cuts import Kind
from eqsat.extract.plan.plan import Plan
from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.launch.streams import ask_template, walks_of
from eqsat.gpu.table.targets import TARGETS
from eqsat.program.core import Node, make, topological
from eqsat.program.node import substitute
from eqsat.streams.stream import NotAStream


def why_apart(plan: Plan, names: tuple[str, str], device: Device) -> dict[str, Any]:
    """Whether one kernel could stream what two kernels of a plan compute, as `eqsat explain --json` writes it.

    Args:
        names: of the two kernels, in any order.

    Returns:
        - `kernels`: in launch order.
        - `walks`: lines on the kernel that could stream both; empty where none can.
        - `reason`: why no kernel does.
        - `apart_us`: what both kernels take.
        - `one_us`: what one kernel takes; None where no price speaks against it. Where an operand needs a reduction,
          this is the price with the operand in memory.

    Raises:
        InputError: the plan has no kernel of a name, or both names are the same.
    """
    first, second = sorted(_place(plan, name) for name in names)
    if first == second:
        raise InputError(f"--why-not takes two kernels, got {names[0]} twice")
    pair = plan.kernels[first], plan.kernels[second]
    apart = sum(k.predicted_us for k in pair)
    answer = {"schema": 1, "kernels": [k.name for k in pair], "walks": [], "apart_us": apart, "one_us": None}
    if device.arch not in TARGETS:
        return answer | {"reason": f"{device.name} runs operator by operator"}
    between = _between(plan, first, second)
    if between:
        return answer | {"reason": f"{between} reads the first, and the second needs its result"}
    outputs, inputs = _together(plan, first, second)
    try:
        lines = walks_of(outputs, inputs, device, plan.exact)
        ask_template(outputs, inputs, device, plan.exact)
    except (NotAStream, NotLowerable) as reason:
        one = _one_with_operands(outputs, inputs, device, plan.exact)
        if one is None or one <= apart:
            return answer | {"reason": str(reason)}
        given = f"with reduced operands in memory, one kernel would take {one:.3f} us, against {apart:.3f} us"
        return answer | {"one_us": one, "reason": f"{reason}; {given}"}
    one, product = _prices(outputs, device, plan.exact)
    return answer | {
        "walks": lines,
        "one_us": product if one is None else one,
        "reason": _dearer(one, product, apart),
    }


def _place(plan: Plan, name: str) -> int:
    names = [k.name for k in plan.kernels]
    if name not in names:
        raise InputError(f"the result has no kernel {name}; it has {', '.join(names)}")
    return names.index(name)


def _between(plan: Plan, first: int, second: int) -> str:
    """The first kernel that needs a result of `first` and that `second` needs; '' if there is none."""
    needed = set(topological(plan.kernels[second].inputs))
    made = set(plan.kernels[first].outputs)
    for kernel in plan.kernels[first + 1 : second]:
        if needed.intersection(kernel.outputs) and made.intersection(topological(kernel.inputs)):
            return kernel.name
    return ""


def _together(plan: Plan, first: int, second: int) -> tuple[list[Node], list[Node]]:
    """(outputs, inputs) of one kernel for both: it writes what other kernels, or nobody but the caller, read."""
    made: dict[Node, Node] = {}
    inputs: list[Node] = []
    bodies: dict[Node, Node] = {}
    for kernel in (plan.kernels[first], plan.kernels[second]):
        for array in kernel.inputs:
            if array not in made:
                made[array] = make("In", (f"in{len(inputs)}", array.size, array.dtype))
                inputs.append(made[array])
        named = {param: made[array] for param, array in zip(kernel.params, kernel.inputs, strict=True)}
        bodies |= dict(zip(kernel.outputs, substitute(kernel.body, named), strict=True))
        made |= bodies
    others = [k for i, k in enumerate(plan.kernels) if i not in (first, second)]
    read = {node for kernel in others for node in kernel.inputs} | {result.buffer for result in plan.results}
    kept = [node for node in plan.kernels[first].outputs if node in read]
    return [bodies[node] for node in (*kept, *plan.kernels[second].outputs)], inputs


def _one_with_operands(outputs: list[Node], inputs: list[Node], device: Device, exact: bool) -> float | None:
    """Predicted microseconds of one kernel that reads from memory those operands of products that need a reduction.

    None if nothing streams so. A kernel that computes these operands itself has more to do.
    """
    order = topological(outputs)
    above = {node: {x.op for x in topological([node])} for node in order}
    reduced = [a for node in order if node.op == "MM" for a in node.args if above[a] & {"MM", "Red"} == {"Red"}]
    given = {a: make("In", (f"given{i}", a.size, a.dtype)) for i, a in enumerate(dict.fromkeys(reduced))}
    bare = substitute(outputs, given)
    try:
        walks_of(bare, [*inputs, *given.values()], device, exact)
    except (NotAStream, NotLowerable):
        return None
    return min((x for x in _prices(bare, device, exact) if x is not None), default=None)


def _prices(outputs: Sequence[Node], device: Device, exact: bool) -> tuple[float | None, float | None]:
    """Predicted microseconds of the cheapest kernel that streams these outputs, and of the cheapest one for their last
    product alone, with all that it needs; None if the search finds none.

    The search keeps no product that costs more so than with its left operand written and read.
    """
    snapshot = Snapshot.from_core(outputs)
    found = enumerate_candidates(snapshot, device, needs=needs_of_all(snapshot), exact=exact)
    of_last = found.of_class[snapshot.roots[-1]]
    streams = [x for x in of_last if x.family == "stream" and not x.children and (x.call or len(outputs) == 1)]
    made = found.made.cuts.values() if found.made else ()
    bare = [x for x in made if x and x.kind == Kind.STREAM and not x.leaves & found.facts.computed]
    products = sum(1 << node.cls for node in snapshot.nodes if node.op == "MM")
    whole = [x for x in bare if snapshot.nodes[x.node].op == "MM" and x.inner & products == products]
    return (
        min((x.price * 1e-6 for x in streams), default=None),
        min((x.price * 1e-6 for x in whole), default=None),
    )


def _dearer(one: float | None, product: float | None, apart: float) -> str:
    if one is None and product is not None and product > apart:
        return f"its last product alone would take {product:.3f} us, against {apart:.3f} us"
    if one is None:
        return "the limits of the search leave it out"
    if one <= apart:
        return (
            f"it is no dearer ({one:.3f} us against {apart:.3f} us), but the search did not put it into its best plan"
        )
    return f"it is dearer by {one - apart:.3g} us ({one:.3f} us against {apart:.3f} us)"
