"""One file per model family: what an image becomes for it, in tensors and in the prompt."""
