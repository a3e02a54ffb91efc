"""What the server does: train with all clients, let some leave, and see what became of the model."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from digits import task
from expunge.federated import Federation, ForgettingFedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, go on where an earlier run ended, let those leave who want to, and draw what came of it."""
    settings = context.run_config
    folder = Path(str(settings["folder"])).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    leaving = str(settings["forget"]).split()
    rounds, clip, rho = int(settings["rounds"]), float(settings["clip"]), float(settings["rho"])
    first, clients = ArrayRecord(task.start()), int(settings["clients"])
    _, scored = task.load()

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        accuracy = task.accuracy(arrays.to_numpy_ndarrays(), scored)
        print(f"round {number}: accuracy {accuracy:.3f}", flush=True)
        return MetricRecord({"accuracy": accuracy})

    store = folder / "federation.expunge"
    strategy = ForgettingFedAvg(store, rounds=rounds, clip=clip, rho=rho, min_clients=clients)
    strategy.start(grid, first, evaluate_fn=evaluate)  # goes on where an earlier run ended
    members = strategy.federation.members
    lines = {f"with {len(members)} clients": accuracies(strategy.federation)}
    for name in leaving:
        if name not in members:
            print(f"{name} takes no part (any more)", flush=True)
    if leaving := [name for name in leaving if name in members]:
        strategy.forget(leaving)  # nobody is asked anything
        strategy.start(grid, evaluate_fn=evaluate)  # makes the rounds that have to be repeated, if any
        members = strategy.federation.members
        lines[f"after {len(leaving)} left"] = accuracies(strategy.federation)
        retrained = ForgettingFedAvg(None, rounds=rounds, clip=clip, rho=rho)
        retrained.begin(grid, first, members=members)
        retrained.start(grid)
        lines["trained without them"] = accuracies(retrained.federation)
        draw(lines, folder / "accuracy.png")
        print(f"the picture is {folder / 'accuracy.png'}", flush=True)
    print(f"everything agrees: {strategy.verify().ok}", flush=True)
    strategy.close()
    for title, line in lines.items():
        print(f"{title}: accuracy {line[-1]:.3f}", flush=True)


def accuracies(federation: Federation) -> list[float]:
    """Return the accuracy after each round."""
    _, scored = task.load()
    models = [federation.plan.arrays_of(model) for model in federation.transcript.iterates[:]]
    return [task.accuracy(list(model.values()), scored) for model in models]


def draw(lines: dict[str, list[float]], path: Path) -> None:
    """Draw accuracies by round."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for (title, line), style in zip(lines.items(), ("-o", "--s", ":^"), strict=True):
        axes.plot(range(1, len(line) + 1), line, style, label=f"{title}: {line[-1]:.1%}")
    axes.set(xlabel="round", ylabel="accuracy on other images", ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
