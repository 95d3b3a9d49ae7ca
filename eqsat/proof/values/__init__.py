"""Programs at inputs: constants computed ahead, fingerprints, bounds, rounding, and inputs that tell two apart."""
