"""What lifting is given: each segment of a program beside its optimised form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from eqsat.parts.segments import Segment
from eqsat.program.core import Node


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of the source, and its optimised form.

    Attributes:
        segment: as cut from the source.
        roots: the same values after optimisation, over `leaves`, inputs and constants.
        leaves: In node -> the node of another segment that it stands for.
        constants: digest to values of the constants below `roots`, as in a plan.
        origins: for constants computed ahead of time, the nodes they were computed from, over constants of the source.
        kept: values of the segment that the optimised form has as well, operands first: the node of each in the source,
            and in the form, where it may be a view.
    """

    segment: Segment
    roots: tuple[Node, ...]
    leaves: Mapping[Node, Node]
    constants: Mapping[str, np.ndarray]
    origins: Mapping[Node, Node] = field(default_factory=dict)
    kept: tuple[tuple[Node, Node], ...] = ()
