"""How each ONNX operator becomes terms: one row for each range of versions."""
