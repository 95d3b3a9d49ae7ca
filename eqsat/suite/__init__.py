"""The suite of `eqsat bench --suite`: kernels on a GPU checked, the device calibrated, plans tuned and measured."""
