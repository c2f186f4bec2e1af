"""Cython modules: loops over tokens and bytes, and the memory shared by all processes.

Each has a ``.pyi`` for the type checker and a plain-Python model in its tests.
"""
