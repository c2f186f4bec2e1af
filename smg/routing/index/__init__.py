"""Which worker holds which beginning of a prompt: the shared index as policies see it, and what a hit is worth."""
