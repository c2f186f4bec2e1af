"""vLLM's engine core and TokenSpeed's scheduler over ZeroMQ: the gateway takes the place of the engine's own frontend
(spec engine-contract 6)."""
