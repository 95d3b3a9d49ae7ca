"""One line for each of some random programs: digests of the report of `optimize` (seconds aside) and of its ONNX file.

    python tests/support/seeded.py SEED COUNT ORDER

Random programs are the same in every process. ORDER is `forward` or `backward`, the order in which they are optimised,
so that state left by one program would change the results of others. Lines are in the order of the programs.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

import eqsat
from eqsat.errors import InputError
from eqsat.language.rule import Policy
from eqsat.program.ir import Program
from eqsat.testing import programs

DTYPES = ("float32", "float16", "int32", "bool")
POLICIES: tuple[Policy, ...] = ("exact", "reassociate", "fast")


def drawn(start: int, count: int) -> list[Program]:
    """Random programs of all kinds of elements."""
    found: list[Program] = []
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    quiet = settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=slow
    )

    def keep(program: Program) -> None:
        found.append(program)

    seed(start)(quiet(given(programs(max_ops=14, max_dim=6, dtypes=DTYPES))(keep)))()
    return found


def untimed(value: Any) -> Any:
    """A report without its seconds."""
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if "seconds" not in k and k != "stages"}
    return [untimed(v) for v in value] if isinstance(value, list | tuple) else value


def digest(program: Program, policy: Policy, path: Path) -> str:
    """What `optimize` makes of a program, or the error that it ends in."""
    try:
        best = eqsat.optimize(program, numerics=policy, time_limit=60)
    except Exception as error:  # noqa: BLE001  an error must be the same every time too
        return f"{type(error).__name__}: {error}"
    try:
        eqsat.to_onnx(best.program, path)
        written = hashlib.sha1(path.read_bytes()).hexdigest()
    except InputError as error:  # what ONNX cannot say
        written = str(error)
    report = json.dumps(untimed(best.report), sort_keys=True, default=str)
    return f"{hashlib.sha1(report.encode()).hexdigest()} {written}"


def main(start: str, count: str, order: str) -> None:
    found = list(enumerate(drawn(int(start), int(count))))
    lines = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, program in found if order == "forward" else reversed(found):
            lines[i] = digest(program, POLICIES[i % 3], Path(folder, "model.onnx"))
    print("\n".join(f"{i} {lines[i]}" for i in sorted(lines)))


if __name__ == "__main__":
    main(*sys.argv[1:])
