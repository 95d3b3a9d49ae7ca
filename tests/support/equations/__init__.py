"""Published equations between tensor programs, written as ONNX expressions, to measure `eqsat.prove`."""
