"""Scripts that measure, and what only they use; what they share with the tests is in `tests/cases`."""
