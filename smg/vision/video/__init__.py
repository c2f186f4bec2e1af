"""Video of prompts: frames picked, resized and cut into patches over space and time (spec multimodal 10)."""
