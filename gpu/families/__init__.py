"""Kernel families: one folder each, with its declaration (what it computes, its parameters) and its template."""
