"""ONNX models of one program at several sizes, as one model with named dims."""
