"""Devices: the figures that kernels are priced by, each with its source."""
