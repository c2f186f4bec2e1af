"""Audio of prompts: recordings to the features that models listen to (spec multimodal 9)."""
