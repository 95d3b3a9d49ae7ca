"""Rules that are missing: equations found by evaluation, those that rules derive taken away, the rest judged."""
