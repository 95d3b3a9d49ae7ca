"""Bundles of `wrong_programs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from eqsat.fuzzing import bundles
from eqsat.fuzzing.bundles import Bundle
from support import wrong_programs

SECONDS, BYTES = bundles.SECONDS, bundles.BYTES
steps, case, files = bundles.steps, bundles.case, bundles.files


def parts(seed: int) -> list[tuple[str, int]]:
    return [(wrong_programs.__name__, part) for _, part in bundles.parts(seed)]


def judge(bundle: Bundle, tell: Callable[[str], None]) -> Counter[str]:
    with wrong_programs.wrong_rule():
        return bundles.judge(bundle, tell)
