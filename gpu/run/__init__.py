"""Running launches: on the GPU of this machine, in the checker, measured and tuned."""
