"""From ONNX models to programs."""
