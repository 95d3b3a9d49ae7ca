"""From Python functions and one-line expressions to programs."""
