"""Finds missing rules: equations that hold by evaluation, are not derived by the rules, and pass judgement."""
