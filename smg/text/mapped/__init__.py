"""Prepared tokenizers: one file per tokenizer that all request workers map (DESIGN 6).

``file`` is the file's layout, written once and read in place; ``make`` makes it, in a process of its own
(``python -m smg.text.mapped``); ``folder`` is where the files lie.
"""
