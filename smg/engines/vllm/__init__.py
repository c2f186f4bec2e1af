"""The vLLM contract (``vllm.grpc.engine.VllmEngine``)."""
