"""What several frontends write out in terms: look-ups by computed places, windows, resampling, bits."""
