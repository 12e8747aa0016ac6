"""What every room's tests share: settings for Hypothesis and the real Kafka that some tests use as their peer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("quick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("quick"), max_examples=2000)
settings.load_profile(os.environ.get("KLOG_HYPOTHESIS_PROFILE", "quick"))
