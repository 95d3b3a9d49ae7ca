"""Programs: NumPy-shaped terms and their operators, and the core that they are lowered to."""

from eqsat.program import ops as ops  # the rows of operators: terms cannot be made without them
