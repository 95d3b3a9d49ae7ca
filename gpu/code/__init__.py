"""Parts of kernel texts: index arithmetic and C statements; the cache of compiled kernels."""
