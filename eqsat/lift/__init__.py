"""From core nodes back to NumPy-shaped terms that read well."""
