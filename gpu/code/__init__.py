"""What kernel texts are made of: index arithmetic, C statements, targets, and the cache of what was compiled."""
