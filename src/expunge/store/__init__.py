"""A durable home for a model: one SQLite file, in which requests are never lost and deleted bytes are gone."""
