"""A federation of three clients and two numbers, in which clients come and leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from expunge.base.types import Array
from expunge.engine.checks import Exactness, check_same_law
from expunge.engine.outcome import Outcome
from expunge.federated.federation import Federation, Task
from expunge.federated.state import names_of, state_of
from expunge.solvers.plans.federated import ArrayType, FederatedPlan, Finish, plan_federation

START = np.array([0.2, -0.1])
WANTS = {"ann": np.array([2.0, 0.5]), "bob": np.array([-1.0, 1.5]), "cy": np.array([0.3, -2.0])}
"""Where each client would like to have the model."""
ROUNDS = 3

Answer = Callable[[Task, np.random.Generator], Array]


def plain(task: Task, rng: np.random.Generator) -> Array:
    """Answer half the way to where the client wants the model; a long way is clipped."""
    return 0.5 * (WANTS[task.client] - task.model) * (1.0 + 0.3 * task.step)


def moody(task: Task, rng: np.random.Generator) -> Array:
    """Answer with chance of the client's own, and sometimes with nothing."""
    away = plain(task, rng) + 0.5 * rng.standard_normal(2)
    return np.full(2, np.nan) if rng.random() < 0.2 or abs(task.model[0]) > 1.5 else away


def toy_plan(rate: float = 1.0, rho: float = 0.8, finish: Finish | None = None) -> FederatedPlan:
    """Return the plan: noise about as large as a contribution, or an exact last round."""
    return plan_federation(
        [ArrayType("w", (2,), "<f8")], clients=3, rounds=ROUNDS, clip=1.0, rho=rho, rate=rate, selector="tail",
        finish=finish,
    )  # fmt: skip


class World:
    """A federation and its clients, who answer at once; a story may say when they do."""

    def __init__(self, plan: FederatedPlan, answer: Answer, rng: np.random.Generator) -> None:
        self.rng = rng
        self.answer = answer
        self.federation = Federation(plan, START, rng)

    def ask(self, tasks: list[Task]) -> None:
        """Let clients answer."""
        self.federation.receive([(task, self.answer(task, self.rng)) for task in tasks])

    def go(self, rounds: int = ROUNDS) -> None:
        """Make rounds, up to so many in all."""
        while self.federation.made < rounds:
            self.ask(self.federation.tasks())
            self.federation.advance()

    def join(self, name: str) -> Outcome:
        """Let a client join in the middle or at the end."""
        self.federation.invite(name)
        self.ask(self.federation.tasks_of_candidates())
        return self.federation.admit(name)

    def forget(self, *names: str) -> Outcome:
        """Let clients leave."""
        return self.federation.forget(names)


Story = Callable[[World], None]


@dataclass(frozen=True)
class Case:
    """A story, who is left at its end, and how to tell it."""

    name: str
    story: Story
    left: tuple[str, ...]
    begin: tuple[str, ...] = ("ann", "bob", "cy")
    rate: float = 1.0
    answer: Answer = plain
    rho: float = 0.8
    finish: Finish | None = None

    @property
    def plan(self) -> FederatedPlan:
        """The plan of the federation."""
        return toy_plan(self.rate, self.rho, self.finish)

    def run(self, rng: np.random.Generator) -> Federation:
        """Tell the story, and finish all rounds."""
        world = World(self.plan, self.answer, rng)
        world.federation.join(self.begin)
        self.story(world)
        world.go()
        return world.federation

    def fresh(self, rng: np.random.Generator) -> Federation:
        """Train those who are left."""
        world = World(self.plan, self.answer, rng)
        world.federation.join(self.left)
        world.go()
        return world.federation

    def check(self, runs: int, seed: int, level: float = 0.01) -> Exactness:
        """Compare the complete state after the story, among runs that end with those who are left, with a fresh one."""

        def told(rng: np.random.Generator) -> Array:
            while (federation := self.run(rng)).members != sorted(self.left):
                pass
            return state_of(federation)

        names = names_of(self.fresh(np.random.default_rng(0)))
        return check_same_law(told, lambda rng: state_of(self.fresh(rng)), names, runs=runs, seed=seed, level=level)


def _leave(world: World) -> None:
    world.go()
    world.forget("bob")


def _two_at_once(world: World) -> None:
    world.go()
    world.forget("bob", "cy")


def _two_in_turn(world: World) -> None:
    world.go()
    world.forget("bob")
    world.go()
    world.forget("cy")


def _join(world: World) -> None:
    world.go()
    world.join("cy")


def _leave_and_come_back(world: World) -> None:
    world.go()
    world.forget("bob")
    world.go()
    world.join("bob")


def _leave_in_mid_pass(world: World) -> None:
    world.go(2)
    world.ask(world.federation.tasks()[:2])  # some have answered already
    world.forget("bob")


def _leave_in_mid_replay(world: World) -> None:
    world.go()
    world.forget("bob")  # if this cuts the pass off, nothing is made before the next request
    world.forget("cy")


def _join_in_mid_pass(world: World) -> None:
    world.go(2)
    world.ask(world.federation.tasks())
    world.join("cy")


def _join_in_mid_replay(world: World) -> None:
    world.go()
    world.forget("bob")
    world.go(min(ROUNDS, world.federation.made + 1))
    world.join("cy")


def _join_while_rounds_are_made(world: World) -> None:
    world.go(1)
    world.federation.invite("cy")
    world.ask(world.federation.tasks_of_candidates())
    world.go(2)  # about which cy is asked too
    world.ask(world.federation.tasks_of_candidates())
    world.federation.admit("cy")


def _withdraw_then_leave(world: World) -> None:
    world.go()
    world.federation.invite("cy")
    world.ask(world.federation.tasks_of_candidates())
    world.forget("cy")
    world.forget("bob")


def _withdraw_and_leave_at_once(world: World) -> None:
    world.go()
    world.federation.invite("cy")
    world.ask(world.federation.tasks_of_candidates()[:2])
    world.forget("cy", "bob")


def cases() -> list[Case]:
    """Return all stories that must be exact."""
    two = ("ann", "bob")
    return [
        Case("leave", _leave, ("ann", "cy")),
        Case("two leave at once", _two_at_once, ("ann",)),
        Case("two leave in turn", _two_in_turn, ("ann",)),
        Case("join", _join, ("ann", "bob", "cy"), two),
        Case("leave and come back", _leave_and_come_back, ("ann", "bob", "cy")),
        Case("leave, half of the rounds", _leave, ("ann", "cy"), rate=0.5),
        Case("join, half of the rounds", _join, ("ann", "bob", "cy"), two, rate=0.5),
        Case("leave in mid-pass", _leave_in_mid_pass, ("ann", "cy")),
        Case("leave in mid-replay", _leave_in_mid_replay, ("ann",)),
        Case("join in mid-pass", _join_in_mid_pass, ("ann", "bob", "cy"), two),
        Case("join in mid-replay", _join_in_mid_replay, ("ann", "cy"), two),
        Case("join while rounds are made", _join_while_rounds_are_made, ("ann", "bob", "cy"), two),
        Case("a newcomer is withdrawn before another leaves", _withdraw_then_leave, ("ann",), two),
        Case("a newcomer is withdrawn with another", _withdraw_and_leave_at_once, ("ann",), two, rate=0.7),
        Case("moody clients, two leave in turn", _two_in_turn, ("ann",), answer=moody),
        Case("moody clients, join", _join, ("ann", "bob", "cy"), two, answer=moody, rate=0.7),
        Case("the last one leaves", _leave, (), ("bob",)),
    ]
