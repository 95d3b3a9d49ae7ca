"""Random programs, alone and in bundles, under a rule that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import eqsat
from eqsat.fuzzing import programs
from eqsat.fuzzing.programs import Case
from eqsat.rule import rule
from eqsat.rules import ALL

SECONDS, BYTES = programs.SECONDS, programs.BYTES
steps, case, files = programs.steps, programs.case, programs.files

WRONG = rule("minimum-is-first", "minimum(a, b) == a", source="none", why="wrong, for this test")


@contextmanager
def wrong_rule() -> Iterator[None]:
    """`optimize` has the wrong rule, too."""
    with patch.object(eqsat, "optimize", partial(eqsat.optimize, rules=[*ALL, WRONG])):
        yield


def judge(made: Case, tell: Callable[[str], None]) -> str:
    with wrong_rule():
        return programs.judge(made, tell)
