"""Ways into and out of programs: ONNX files, torch modules."""
