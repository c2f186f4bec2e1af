"""The one machine behind all tool-call formats (spec parsers 11): families are data that it reads."""
