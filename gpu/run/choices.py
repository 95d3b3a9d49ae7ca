"""Tuning parameters: the ones worth trying for a kernel, and the best ones found on this machine before.

Measurements are kept in the disk cache, one file per kernel, `tuned/KEY.json`. The key is a digest of the machine
(device, driver, runtime), of the code that generates kernels, and of the kernel's untuned texts and sizes, so that a
result is only used where it was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product

from eqsat.extract.plan.plan import Kernel as PlanKernel
from eqsat.extract.plan.plan import Plan
from eqsat.gpu.code.cache import digest_of, generator_digest, keep_text, kept_text
from eqsat.gpu.families import contraction, pointwise, stream
from eqsat.gpu.families.base import Choice, Job
from eqsat.gpu.launch.generate import Chain, chain
from eqsat.gpu.table.targets import Target
from eqsat.gpu.table.tiles import ranked_tiles
from eqsat.program.core import Node

Choices = Mapping[tuple[Node, ...], Choice]
"""Choices by the body of a plan's kernel; the cost model decides for the others."""

MOST_TRIED = 16
"""Variants of a kernel that are measured, the cost model's own included."""

_TILES = 4
"""Sizes of a product's tiles that are tried, each with all fragments and loads; tiles of a kernel that streams."""

_SLICES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Record:
    """The result of tuning one kernel.

    Attributes:
        choice: the fastest, None for the vendor's library; `us` is its time, and `untuned_us` that of what the cost
            model chose, microseconds; None where it was refused.
        tried: variants tried; `left` how many the time did not suffice for.
        refused: variants that computed something wrong, or did not compile, and why.
    """

    choice: Choice | None
    us: float | None
    untuned_us: float | None
    tried: int
    left: int = 0
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chooser:
    """Proposes choices for the kernels of plans on one machine, and remembers them.

    Attributes:
        machine: a text that names the device and the versions of its driver and runtime.
        target, units: of the device; `exact` asks for sums in a fixed order.
    """

    machine: str
    target: Target
    units: int
    exact: bool = False

    def proposals(self, kernel: PlanKernel) -> list[Choice]:
        """The choices worth measuring, likeliest first, each with launches of its own; the first is the cost model's.

        Empty for a kernel that is not generated: an opaque call, or one with nothing to compute.
        """
        if kernel.family == "opaque" or not any(node.size for node in kernel.outputs):
            return []
        distinct: dict[tuple[tuple[str, int], ...], Choice] = {}
        for choice in (Choice(), *self._variants(kernel)):
            made = self._chain(kernel, choice)
            distinct.setdefault(tuple((k.source, k.blocks) for k in made.kernels), choice)
            if len(distinct) == MOST_TRIED:
                break
        return list(distinct.values())

    def remembered(self, plan: Plan) -> dict[tuple[Node, ...], Choice]:
        """What was found best before, for those kernels of a plan that were tuned."""
        records = {kernel.body: self.record(kernel) for kernel in plan.kernels if kernel.family != "opaque"}
        return {body: r.choice for body, r in records.items() if r is not None and r.choice is not None}

    def record(self, kernel: PlanKernel) -> Record | None:
        """What is remembered of a kernel; None where that is nothing, or no record."""
        text = kept_text("tuned", f"{self._key(kernel)}.json")
        if text is None:
            return None
        try:
            fields = json.loads(text)["record"]
            choice = Choice(**fields["choice"]) if fields["choice"] else None
            return Record(**(fields | {"choice": choice, "refused": tuple(fields["refused"])}))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    def remember(self, kernel: PlanKernel, record: Record) -> None:
        """Keep what was measured of a kernel, in place of what is known of it."""
        text = {"machine": self.machine, "kernel": kernel.name, "ops": kernel.ops, "record": asdict(record)}
        keep_text("tuned", f"{self._key(kernel)}.json", json.dumps(text, indent=1) + "\n")

    def _chain(self, kernel: PlanKernel, choice: Choice) -> Chain:
        planned = choice.planned(kernel.slices)
        return chain(kernel.family, kernel.body, kernel.params, self.target, self.units, self.exact, planned)

    def _key(self, kernel: PlanKernel) -> str:
        untuned = self._chain(kernel, Choice()).kernels
        texts = [f"{k.source} {k.blocks}" for k in untuned]
        by_library = str(kernel.family == "library-gemm")
        return digest_of(self.machine, str(self.exact), by_library, generator_digest(), texts)

    def _variants(self, kernel: PlanKernel) -> Iterator[Choice]:
        """By what the kernel is built around; the first of each list is what the cost model would take."""
        job = Job(kernel.body, kernel.params, units=self.units)
        if kernel.family == stream.FAMILY.name:
            yield from (Choice(tile=t.name) for t in stream.tiles_of(job, self.target, self.exact)[:_TILES])
            return
        products = [node for node in job.nodes if node.op == "MM"]
        reductions = [node for node in job.nodes if node.op == "Red"]
        if len(products) == 1 and 1 not in (products[0].attrs[1], products[0].attrs[3]):
            yield from self._of_product(products[0], bool(reductions))
        elif products or reductions:
            lengths = [n.attrs[1] for n in reductions] + [n.attrs[2] for n in products]
            yield from _of_rows(max(lengths), self.target)
        else:
            yield from (Choice(width=width) for width in pointwise.WIDTHS)

    def _of_product(self, node: Node, reduced: bool) -> Iterator[Choice]:
        ranked = ranked_tiles(self.target, node.attrs, node.args[0].dtype, self.units)
        sizes = list(dict.fromkeys((t.rows, t.columns) for t in ranked))[:_TILES]
        tiles = [t.name for t in ranked if (t.rows, t.columns) in sizes]
        combines: list[contraction.Combine] = [c for c in contraction.COMBINES if c == "two-pass" or not self.exact]
        if reduced:
            yield from (Choice(tile=tile, combine=c) for tile, c in product(tiles, combines))
        else:
            yield from (Choice(tile=tile) for tile in tiles)
            yield from (Choice(tile=tile, slices=s) for tile, s in product(tiles, _SLICES) if s <= node.attrs[2])


def _of_rows(length: int, target: Target) -> Iterator[Choice]:
    """Rows shared by more or fewer threads, and cut into slices."""
    threads = [2**i for i in range(target.max_threads.bit_length()) if 2**i <= length]
    yield from (Choice(per_row=t) for t in threads[:-5:-1])
    yield from (Choice(slices=s) for s in _SLICES if s <= length)
