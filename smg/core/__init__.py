"""The nouns all packages share: context, requests, batches, events, errors, ids, clock and the wire helpers."""
