"""The search: a program in parts, each saturated and covered with kernels, within limits."""
