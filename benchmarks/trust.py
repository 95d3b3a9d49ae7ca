"""What backs each rule that a certificate may name: writes the table of docs/trust.md. About four minutes.

python benchmarks/trust.py
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from eqsat.evidence.guard_proofs import prove_guard
from eqsat.rules import CHECKABLE

TRUST = Path(__file__).parents[1] / "docs" / "trust.md"
BEGIN = "<!-- written by benchmarks/trust.py -->"

BACKED = {"proved": "z3, all shapes", "no integers": "elementwise", "unknown": "tests"}
"""What the table says for each status of `eqsat.evidence.guard_proofs`."""


def main() -> None:
    backed: dict[str, str] = {}
    for rule in CHECKABLE:
        backed[rule.name] = BACKED[prove_guard(rule).status]
        print(f"{rule.name}: {backed[rule.name]}", file=sys.stderr)
    counted = Counter(backed.values())
    lines = [BEGIN, ", ".join(f"{counted[words]} {words}" for words in BACKED.values()) + ".", ""]
    lines += ["| rule | numerics | backed by |", "| --- | --- | --- |"]
    lines += [f"| `{rule.name}` | {rule.numerics} | {backed[rule.name]} |" for rule in CHECKABLE]
    text, _, _ = TRUST.read_text(encoding="utf-8").partition(BEGIN)
    TRUST.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
