"""Keys, principals and what they may do."""
