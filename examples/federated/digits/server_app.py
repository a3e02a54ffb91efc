"""What the server does: average the models of its clients, round by round, and draw how well they read digits."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from matplotlib.figure import Figure

from digits import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train with all clients, and say what came of it."""
    folder = Path(str(context.run_config["folder"])).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    clients, rounds = int(context.run_config["clients"]), int(context.run_config["rounds"])
    _, scored = task.load()
    history: dict[int, float] = {}

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        accuracy = task.accuracy(arrays.to_numpy_ndarrays(), scored)
        history[number] = accuracy
        print(f"round {number}: accuracy {accuracy:.3f}", flush=True)
        return MetricRecord({"accuracy": accuracy})

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    strategy.start(grid, ArrayRecord(task.start()), num_rounds=rounds, evaluate_fn=evaluate)
    draw(history, folder / "accuracy.png")
    print(f"the picture is {folder / 'accuracy.png'}", flush=True)


def draw(history: dict[int, float], path: Path) -> None:
    """Draw the accuracy by round."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(list(history), list(history.values()), marker="o", label="all clients")
    axes.set(xlabel="round", ylabel="accuracy", ylim=(0, 1))
    axes.legend(loc="lower right")
    figure.savefig(path)
