"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# A machine that is busy, or a sanitized build, makes everything slow; that is no fault of a test or its inputs.
settings.register_profile("smg", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("smg")
