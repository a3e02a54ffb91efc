"""Federated averaging from which clients leave exactly."""
