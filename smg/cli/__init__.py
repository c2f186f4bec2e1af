"""The commands: smg-server, smg-engine, smg-bench."""
