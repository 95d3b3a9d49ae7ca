"""Extraction: the cheapest answer in an e-graph, with a proven bound; devices, kernel prices and kernel covers."""
