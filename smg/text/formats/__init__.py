"""Tokenizer files other than tokenizer.json, each turned into what the tokenizers library has (docs/tokenizers.md).

One file per format. Where ids could differ from those of the library a format comes from, its reader says so.
"""
