"""ONNX files: bytes, types and nodes, checked before anything is converted."""
