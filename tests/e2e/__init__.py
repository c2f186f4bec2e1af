"""The real gateway, the real engine, real clients."""
