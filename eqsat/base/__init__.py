"""What every room may use, and which knows nothing of programs: errors, limits, files, element types."""
