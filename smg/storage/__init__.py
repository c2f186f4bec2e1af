"""History of responses and conversations."""
