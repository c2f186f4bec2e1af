"""The MLX contract (``mlx.grpc.engine.MlxEngine``)."""
