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
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import eqsat  # noqa: E402
from eqsat.program.ir import Program  # noqa: E402
from tests.support.deep_programs import SHAPES  # noqa: E402

STAGES = ("build", "optimize", "print", "explain", "onnx", "read", "compile", "emit", "pickle")


def stages(shape: str, size: int, limit: float) -> Iterator[tuple[str, Callable[[], object]]]:
    """The stages, in order; each works on the results of the stages before it."""
    made: dict[str, object] = {}

    def build() -> None:
        made["program"] = SHAPES[shape](size)

    def optimize() -> None:
        made["result"] = eqsat.optimize(made["program"], time_limit=limit)  # pyright: ignore[reportArgumentType]

    def shown() -> None:
        "".join(map(str, (made["program"], made["result"])))

    def explain() -> None:
        made["result"].explain()  # pyright: ignore[reportAttributeAccessIssue]

    def onnx() -> None:
        made["folder"] = TemporaryDirectory()
        eqsat.to_onnx(made["result"].program, path())  # pyright: ignore[reportAttributeAccessIssue]

    def path() -> str:
        return str(Path(made["folder"].name) / "model.onnx")  # pyright: ignore[reportAttributeAccessIssue]

    def read() -> None:
        eqsat.from_onnx(path())

    def compile_() -> None:
        program = made["program"]
        assert isinstance(program, Program)
        rng = np.random.default_rng(0)
        inputs = {t.attr("name"): rng.random(t.shape, dtype=np.float32) for t in program.inputs}
        made["result"].compile(on="numpy")(inputs)  # pyright: ignore[reportAttributeAccessIssue]

    def emit() -> None:
        from eqsat.gpu.emit import emit

        with TemporaryDirectory() as folder:
            emit(made["result"].plan, "mi300x", folder)  # pyright: ignore[reportAttributeAccessIssue]

    def pickled() -> None:
        pickle.loads(pickle.dumps(made["program"]))

    done = (build, optimize, shown, explain, onnx, read, compile_, emit, pickled)
    yield from zip(STAGES, done, strict=True)


def measure(shape: str, size: int, limit: float, last: str) -> dict[str, float | str]:
    """Stage to the seconds of this process and its finished workers, or to its error."""
    found: dict[str, float | str] = {}
    for name, work in stages(shape, size, limit):
        begun = time.process_time()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                work()
            found[name] = time.process_time() - begun
        except Exception as error:  # noqa: BLE001 a measurement goes on with the next stage
            found[name] = f"{type(error).__name__}: {error}"[:150]
            if name in ("build", "optimize"):
                break
        if name == last:
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
