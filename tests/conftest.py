"""What holds for all tests."""

from hypothesis import HealthCheck, settings

from tests import once

# A machine that is busy, or a sanitized build, makes everything slow; that is no fault of a test or its inputs.
settings.register_profile("smg", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("smg")

once.share_trusted_certificates()
once.rewrite_sanic_once()
