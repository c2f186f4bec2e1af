"""Workers and models: records, registry, health, loads, snapshot."""
