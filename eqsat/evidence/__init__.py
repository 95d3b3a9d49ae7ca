"""Whether rules are right: random instances, a reference evaluation, and proofs for all shapes by z3."""
