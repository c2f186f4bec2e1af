"""Rows of the StreamTable as C structs. There is nothing here for Python."""
