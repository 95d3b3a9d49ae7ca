"""What backs each rule that a certificate may name: writes the table of docs/trust.md.

    python benchmarks/trust.py [--all]

Rules whose row stands already, with the fingerprint that they have, are not proved again; with `--all` they are, which
takes about two minutes. Exit code 1, and nothing written, if a rule is not proved.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from eqsat.evidence.guard_proofs import fingerprint, prove_guard
from eqsat.rules import CHECKABLE

TRUST = Path(__file__).parents[1] / "docs" / "trust.md"
BEGIN = "<!-- written by benchmarks/trust.py -->"
ROW = re.compile(r"^\| `(\S+)` \| ([\w-]+) \| ([\w, ]+) \| (\w+) \|$", re.MULTILINE)

BACKED = {"proved": "z3, all shapes", "no integers": "elementwise"}
"""What the table says for each status of `eqsat.evidence.guard_proofs` that is a proof."""


def main() -> int:
    text, _, table = TRUST.read_text(encoding="utf-8").partition(BEGIN)
    again = "--all" in sys.argv[1:]
    known = {(name, mark): backed for name, _, backed, mark in ROW.findall(table) if not again}
    backed: dict[str, str] = {}
    failed = 0
    for rule in CHECKABLE:
        found = known.get((rule.name, fingerprint(rule)))
        if found is None:
            proof = prove_guard(rule)
            found = BACKED.get(proof.status, "")
            print(f"{rule.name}: {found or proof.reason} ({proof.seconds:.1f} s)", file=sys.stderr)
        backed[rule.name] = found
        failed += not found
    if failed:
        print(f"{failed} rules without a proof")
        return 1
    counted = Counter(backed.values())
    lines = [BEGIN, ", ".join(f"{counted[words]} {words}" for words in BACKED.values()) + ".", ""]
    lines += ["| rule | numerics | backed by | fingerprint |", "| --- | --- | --- | --- |"]
    lines += [f"| `{r.name}` | {r.numerics} | {backed[r.name]} | {fingerprint(r)} |" for r in CHECKABLE]
    TRUST.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
