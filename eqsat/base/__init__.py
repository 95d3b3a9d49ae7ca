"""Utilities for every room, which know nothing of programs: files, limits, interrupts, element types."""
