"""The kernel table: instruction sets, tiles, limits and measured occupancy, for prices and generators alike."""
