"""A program in parts: where it is cut, and which parts are equal."""
