"""Measurements: statistics of sessions."""
