"""Checking certificates of equality, with code that shares nothing with the search for them."""
