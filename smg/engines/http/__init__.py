"""HTTP engines: OpenAI-style servers (vLLM serve, SGLang, another gateway) behind ``http://`` and ``https://`` URLs."""
