"""How something is learned: losses, domains, one file for each solver, and plans.

A linear model takes one of the solvers here, with its parameters: `Newton`, `DualAveraging`, `FrankWolfe` or
`GradientDescent`; `automatic_solver` says which one ``solver="auto"`` is. k-means takes `KeyedSample` or `Lloyd`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from expunge.base.lazy import lazily

if TYPE_CHECKING:
    from expunge.solvers.automatic import automatic_solver
    from expunge.solvers.cluster_choices import KeyedSample, Lloyd
    from expunge.solvers.objects import DualAveraging, FrankWolfe, GradientDescent, Newton
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "automatic": "automatic_solver",
            "cluster_choices": "KeyedSample Lloyd",
            "objects": "DualAveraging FrankWolfe GradientDescent Newton",
        },
    )

__all__ = ["DualAveraging", "FrankWolfe", "GradientDescent", "KeyedSample", "Lloyd", "Newton", "automatic_solver"]
