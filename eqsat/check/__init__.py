"""The check of every result against its source on random inputs, in full or by samples, and for overflow."""
