"""Reasoning formats, one file each."""
