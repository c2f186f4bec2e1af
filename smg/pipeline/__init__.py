"""From a GenerationRequest to a stream of Events: stages, backend choice, accumulator."""
