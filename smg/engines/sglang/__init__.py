"""The SGLang contract (``sglang.grpc.scheduler.SglangScheduler``)."""
