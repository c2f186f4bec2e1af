"""Prompts of models whose format is a program, not a Jinja template (spec text-pipeline 2.6). Rows: ``table``."""
