"""torch: modules and graphs into programs and back, and the backend of `torch.compile`."""
