"""Layouts: index maps from a result to its operand, the one view operator of the core."""
