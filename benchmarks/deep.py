"""Deep, wide and shared programs: seconds of processor time by shape and size, and how they grow.

    python benchmarks/deep.py [--shape NAME]... [--sizes N,N,...] [--stage NAME] [--time-limit S]

Each shape is a family of programs of any number of operators. For each size, a fresh process (without caches) traces
the program, optimises it, explains it, writes it and runs it. The table shows the time of each stage, and the exponent
of growth since the size before: 1 is linear. A stage that fails shows its error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import pickle
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import eqsat  # noqa: E402
from eqsat.gpu.emit import emit  # noqa: E402
from tests.support.deep_programs import SHAPES  # noqa: E402


class Stages:
    """The stages for one program, in order; each works on the results of those before it."""

    def __init__(self, shape: str, size: int, limit: float, folder: str) -> None:
        self.shape, self.size, self.limit = shape, size, limit
        self.file = str(Path(folder) / "model.onnx")

    def build(self) -> None:
        self.program = SHAPES[self.shape](self.size)

    def optimize(self) -> None:
        self.best = eqsat.optimize(self.program, time_limit=self.limit)

    def print(self) -> None:
        "".join(map(str, (self.program, self.best)))

    def explain(self) -> None:
        self.best.explain()

    def onnx(self) -> None:
        eqsat.to_onnx(self.best.program, self.file)

    def read(self) -> None:
        eqsat.from_onnx(self.file)

    def compile(self) -> None:
        rng = np.random.default_rng(0)
        inputs = {t.attr("name"): rng.random(t.shape, dtype=np.float32) for t in self.program.inputs}
        self.best.compile(on="numpy")(inputs)

    def emit(self) -> None:
        with TemporaryDirectory() as folder:
            emit(self.best.plan, "mi300x", folder)

    def pickle(self) -> None:
        pickle.loads(pickle.dumps(self.program))


STAGES = [name for name in vars(Stages) if not name.startswith("_")]


def measure(shape: str, size: int, limit: float, last: str) -> dict[str, float | str]:
    """Stage to the seconds of this process and its finished workers, or to its error."""
    found: dict[str, float | str] = {}
    with TemporaryDirectory() as folder:
        stages = Stages(shape, size, limit, folder)
        for name in STAGES[: STAGES.index(last) + 1]:
            begun = time.process_time()
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    getattr(stages, name)()
                found[name] = time.process_time() - begun
            except Exception as error:  # noqa: BLE001 a measurement goes on with the next stage
                found[name] = f"{type(error).__name__}: {error}"[:150]
                if name in ("build", "optimize"):
                    break
    return found


def exponent(before: float, after: float, sizes: tuple[int, int]) -> float:
    """The exponent p with which seconds grow as size^p."""
    return math.log(max(after, 0.01) / max(before, 0.01)) / math.log(sizes[1] / sizes[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES))
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--stage", default=STAGES[-1], choices=STAGES, help="the last one to run")
    parser.add_argument("--time-limit", type=float, default=10.0)
    args = parser.parse_args()
    sizes = [int(n) for n in args.sizes.split(",")]
    for shape in args.shape or SHAPES:
        before: dict[str, float | str] = {}
        for i, size in enumerate(sizes):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                begun = time.monotonic()
                found = pool.submit(measure, shape, size, args.time_limit, args.stage).result()
                wall = time.monotonic() - begun
            parts = []
            for name, seconds in found.items():
                if isinstance(seconds, str):
                    parts.append(f"{name} FAILED ({seconds})")
                    continue
                past = before.get(name)
                grown = f"^{exponent(past, seconds, (sizes[i - 1], size)):.1f}" if isinstance(past, float) else ""
                parts.append(f"{name} {seconds:.2f}{grown if seconds > 0.1 else ''}")
            print(f"{shape:16} {size:7} wall {wall:6.1f}  {'  '.join(parts)}", flush=True)
            before = found


if __name__ == "__main__":
    main()
