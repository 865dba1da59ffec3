"""Measurements of speed, and the gear to take them."""
