"""Streams: what one walk along an axis can compute for a block of rows, decided on core nodes."""
