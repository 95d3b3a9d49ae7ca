"""The check of every result: what it computes on random inputs, in full or by samples, and where it overflows."""
