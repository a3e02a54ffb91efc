"""Hypothesis draws the same examples in every run; ``HYPOTHESIS_PROFILE=search`` looks for new ones."""

import os
from contextlib import suppress

with suppress(ImportError):  # the environments of Flower and of the browser have no Hypothesis
    from hypothesis import settings

    settings.register_profile("repeatable", derandomize=True)
    settings.register_profile("search", derandomize=False)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
