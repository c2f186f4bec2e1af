"""The TokenSpeed contract (``tokenspeed.grpc.scheduler.TokenSpeedScheduler``)."""
