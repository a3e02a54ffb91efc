"""Twenty clients learn to read digits together."""
