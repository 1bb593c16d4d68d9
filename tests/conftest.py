"""How property tests run: CATCHMENT_EXAMPLES says how many examples; none has a time limit."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# `make soak` raises the number. A test that pins `max_examples` would not follow it; one that needs
# fewer writes `@settings(max_examples=settings.default.max_examples // 4)`.
settings.register_profile(
    "catchment",
    max_examples=int(os.environ.get("CATCHMENT_EXAMPLES", "100")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("catchment")
