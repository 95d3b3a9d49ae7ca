"""Whether two programs are equal: proved with steps, or refuted with an input."""
