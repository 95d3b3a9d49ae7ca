"""The steps from a program to its result, as a derivation whose every step is a rule."""
