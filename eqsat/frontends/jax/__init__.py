"""JAX functions as programs."""
