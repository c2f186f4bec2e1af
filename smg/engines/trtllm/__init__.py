"""The TensorRT-LLM contract (``trtllm.TrtllmService``)."""
