"""Plans: covers as kernels in launch order, with their names, constants and memory."""
