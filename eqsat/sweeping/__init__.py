"""Many models for many devices: what each gains, which rules earn it, and what got worse since an earlier sweep."""
