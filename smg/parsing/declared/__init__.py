"""Formats that a checkpoint declares itself: ``response_template`` in tokenizer_config.json (spec parsers 9, ``hf``).

A template names the fields of a message, how each begins and ends in the output, and how its text is read. One engine
reads all of them, so that a model needs no row of the table before it can be served.
"""
