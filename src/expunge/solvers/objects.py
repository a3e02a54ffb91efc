"""The solvers as objects that users pass to an estimator: each has the parameters that it understands, and no others.

They are stored with a model, and take part in ``get_params``, ``clone`` and grid searches (``solver__epochs``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeVar, cast, dataclass_transform

from expunge.base.errors import BadPlan
from expunge.base.guiding import guided, unknown
from expunge.solvers.plans.compatible import Coupling, Noise, Region, Selected, When

Kind = TypeVar("Kind", bound="Parameters")


class Parameters:
    """Parameters that can be asked for, set, compared and shown, as scikit-learn does it, without scikit-learn."""

    INSTEAD: ClassVar[dict[str, str]] = {
        "C": "Give it to the estimator; it goes with Newton",
        "classes": "Give them to the estimator",
        "class_weight": "Give it to the estimator",
        "expected_records": "Give it to the estimator",
        "finish": "Give it to the estimator",
        "fit_intercept": "Give it to the estimator",
        "random_state": "Give it to the estimator",
        "rho": "Give it to the estimator",
        "standardize": "Give it to the estimator; it goes with Newton",
    }
    NAME: ClassVar[str]
    """The name that stands for it with its defaults."""

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """Return all parameters, with their defaults."""
        return {one.name: one.default for one in fields(cls)}  # type: ignore[arg-type]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name."""
        return {name: getattr(self, name) for name in self.parameters()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; return the object itself."""
        known = list(self.parameters())
        for name in params:
            if name not in known:
                raise unknown(self, type(self).__name__, name, known, params)
        for name, value in params.items():
            object.__setattr__(self, name, value)  # to assign one is refused: a fitted model would not see it
        return self

    def __repr__(self) -> str:
        """Show what is not as by default."""
        default = self.parameters()
        said = [f"{name}={value!r}" for name, value in self.get_params().items() if _differs(value, default[name])]
        return f"{type(self).__name__}({', '.join(said)})"


def _differs(value: Any, default: Any) -> bool:
    return type(value) is not type(default) or repr(value) != repr(default)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def solver(name: str) -> Callable[[type[Kind]], type[Kind]]:
    """Make a class of parameters a solver: they are given by name, and an unknown one says what to use."""

    def made(kind: type[Kind]) -> type[Kind]:
        found: Any = dataclass(frozen=True, kw_only=True, repr=False)(kind)
        found.__init__, found.NAME = guided(found.__init__), name
        return found

    return made


@solver("newton")
class Newton(Parameters):
    """Newton's method with noise after the solve: the default wherever the loss has curvature. (docs/newton.md)

    ``rounds`` is the number of draws and ``rate`` the part of the records that rounds see; by default both follow a
    public rule of the numbers of records and columns, and of ρ. Rows and targets are taken as they are.

    >>> from expunge import LogisticRegression
    >>> LogisticRegression(solver=Newton(rounds=2)).get_params()["solver__rounds"]
    2
    """

    rounds: int | None = None
    rate: float | None = None


@solver("dual_averaging")
class DualAveraging(Parameters):
    """Dual averaging on noisy prefix sums of gradients: for losses without curvature, wide and sparse problems.

    Rows longer than ``feature_norm`` are shortened to it, slopes steeper than ``clip`` too; ``target_range`` is the
    declared range of a regression's targets, and ``records_per_subject`` how many records one person may have. All
    others: docs/estimators.md.

    >>> DualAveraging(epochs=3, selector="last")
    DualAveraging(epochs=3, selector='last')
    """

    epochs: int | None = None
    schedule: When = "scattered"
    mechanism: Noise = "sqrt"
    coupling: Coupling | None = None
    steps: int | None = None
    batch: int | None = None
    clip: float | Literal["auto"] | None = "auto"
    alpha: float = 0.0
    radius: float | None = None
    domain: Region | None = None
    feature_norm: float = 1.0
    step_size: float | Literal["theorem", "paper", "anytime"] | None = None
    selector: Selected | Literal["auto"] = "auto"
    n_components: int | Literal["auto"] | None = None
    records_per_subject: int = 1
    horizon: int | None = None
    target_range: Any = None


@solver("frank_wolfe")
class FrankWolfe(Parameters):
    """Variance-reduced Frank-Wolfe: parameters stay in a bounded domain; ``domain="l1"`` gives sparse models.

    The parameters that it shares with `DualAveraging` mean the same.

    >>> FrankWolfe(domain="l1", radius=5.0)
    FrankWolfe(radius=5.0, domain='l1')
    """

    epochs: int | None = None
    schedule: When = "scattered"
    mechanism: Noise = "sqrt"
    coupling: Coupling | None = None
    steps: int | None = None
    batch: int | None = None
    clip: float | Literal["auto"] | None = "auto"
    alpha: float = 0.0
    radius: float | None = None
    domain: Region | None = None
    feature_norm: float = 1.0
    selector: Selected | Literal["auto"] = "auto"
    n_components: int | Literal["auto"] | None = None
    records_per_subject: int = 1
    horizon: int | None = None
    target_range: Any = None


@solver("gradient_descent")
class GradientDescent(Parameters):
    """Gradient descent: ``steps`` rounds over everyone, or a share ``rate`` of the records in each.

    The parameters that it shares with `DualAveraging` mean the same.

    >>> GradientDescent(steps=50, rate=0.5).set_params(rate=0.25)
    GradientDescent(steps=50, rate=0.25)
    """

    steps: int | None = None
    rate: float = 1.0
    coupling: Coupling | None = None
    clip: float | Literal["auto"] | None = "auto"
    alpha: float = 0.0
    radius: float | None = None
    domain: Region | None = None
    feature_norm: float = 1.0
    step_size: float | None = None
    selector: Selected | Literal["auto"] = "auto"
    n_components: int | Literal["auto"] | None = None
    records_per_subject: int = 1
    target_range: Any = None


SOLVERS: tuple[type[Parameters], ...] = (Newton, DualAveraging, FrankWolfe, GradientDescent)
"""All solvers."""
BY_NAME: dict[str, type[Parameters]] = {kind.NAME: kind for kind in SOLVERS}
FLAT = frozenset(name for kind in SOLVERS for name in kind.parameters())
"""What earlier versions had as parameters of the estimator itself."""
AnySolver = Newton | DualAveraging | FrankWolfe | GradientDescent
Said = Literal["auto", "newton", "dual_averaging", "frank_wolfe", "gradient_descent"] | AnySolver
"""What an estimator takes as its solver."""


def solver_of(said: Any) -> Any:
    """Return the solver that was asked for; None for "auto".

    >>> solver_of("newton"), solver_of(DualAveraging(epochs=2)), solver_of("auto")
    (Newton(), DualAveraging(epochs=2), None)
    """
    if isinstance(said, Parameters):
        return said
    if isinstance(said, str) and said == "auto":
        return None
    if isinstance(said, str) and said in BY_NAME:
        return BY_NAME[said]()
    for kind in SOLVERS:
        if said is kind:
            raise BadPlan(f"solver={kind.__name__}: give an object, solver={kind.__name__}().")
    name = type(said).__name__
    if hasattr(said, "step") and hasattr(said, "start"):
        raise BadPlan(
            f"solver: {name} is the rule of a Learner. An estimator takes the solver with its parameters, such as "
            f"expunge.solvers.{name.removesuffix('Rule')}()."
        )
    names = ", ".join(map(repr, BY_NAME))
    raise BadPlan(
        f"solver={said!r}: use 'auto', {names}, or an object such as expunge.solvers.DualAveraging(epochs=3)."
    )


def of_flat(name: str, parameters: dict[str, Any]) -> AnySolver:
    """Return the solver that earlier versions described by parameters of the estimator itself.

    Parameters that it does not understand had no effect with it.
    """
    kind: Any = BY_NAME[name]
    understood = () if kind is Newton else kind.parameters()  # its rate was another solver's
    return cast(AnySolver, kind(**{one: parameters[one] for one in understood if one in parameters}))


def flat_instead(name: str, given: Any) -> str:
    """Say with which solver to give a parameter that was given to an estimator; ``given`` is all that it was given."""
    asked = given.get("solver")
    first = [kind for kind in SOLVERS if asked == kind.NAME or isinstance(asked, kind)]
    kinds: list[type[Parameters]] = [*first, *SOLVERS[1:], Newton]
    kind = next(one for one in kinds if name in one.parameters())
    understood = kind.parameters()
    flat = [f"{one}={value!r}" for one, value in given.items() if one in understood]
    return f"Use solver=expunge.solvers.{kind.__name__}({', '.join(flat)})"
