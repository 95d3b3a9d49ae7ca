"""Running launches on this machine's GPU or in the checker; measuring and tuning them."""
