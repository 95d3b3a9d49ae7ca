"""HTML: fragments that notebooks show, and the pieces that pages share with them."""
