"""Logs, metric cells and the metrics page."""
