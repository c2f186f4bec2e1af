"""Cloud providers as events backends."""
