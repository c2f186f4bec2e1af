"""Extension points: middleware and hooks."""
