"""Fuzzing: random cases of several kinds, judged in processes that may die, shrunk, and told apart by cause."""
