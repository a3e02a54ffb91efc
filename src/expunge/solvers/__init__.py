"""How something is learned: losses, domains, one file for each solver, and plans.

An estimator takes one of the solvers here, with its parameters: k-means `KeyedSample` or `Lloyd`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from expunge.base.lazy import lazily

if TYPE_CHECKING:
    from expunge.solvers.cluster_choices import KeyedSample, Lloyd
else:
    __getattr__, __dir__ = lazily(__name__, {"cluster_choices": "KeyedSample Lloyd"})

__all__ = ["KeyedSample", "Lloyd"]
