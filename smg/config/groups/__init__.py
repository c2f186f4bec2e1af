"""The groups of the settings tree, one file for what belongs together."""
