"""Adapters to other libraries, each of which needs that library."""
