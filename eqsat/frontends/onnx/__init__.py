"""ONNX models into programs and back."""
