"""How something is learned: losses, domains, one file for each solver, and plans.

Public are the solvers that users pass to models: `KeyedSample` and `Lloyd` of k-means.
"""

from expunge.solvers.cluster_choices import KeyedSample, Lloyd

__all__ = ["KeyedSample", "Lloyd"]
