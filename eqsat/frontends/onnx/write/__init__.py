"""From programs to ONNX models."""
