"""Frozen hyper-parameters, one file for each kind of learner."""
