"""Published equations between tensor programs, written as ONNX expressions: what `eqsat.prove` is measured on."""
