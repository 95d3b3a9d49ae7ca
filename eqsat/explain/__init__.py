"""The steps from a program to its result: a derivation in which each step is one rule."""
