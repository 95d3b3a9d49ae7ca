"""The extraction problem by itself: the cheapest choice in an e-graph, with a proven bound."""
