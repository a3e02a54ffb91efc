"""The example in Flower's own simulation engine, as its README says, and when its server dies."""

import re
import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from expunge import federated
from flower.in_memory_grid import InMemoryGrid
from flower.simulation import EXAMPLE, SERVER, Simulation, simulation, wait_until

HELD = '''
"""The example's client, which waits in its third training until it is let go."""

import time
from pathlib import Path

from digits.client_app import app as client
from flwr.clientapp import ClientApp

HERE = Path({folder!r})


class Held(ClientApp):
    def __call__(self, message, context):
        if context.node_config["partition-id"] == 0 and message.metadata.message_type == "train":
            with open(HERE / "trainings", "a") as file:
                file.write("x")
            while (HERE / "trainings").stat().st_size == 3 and not (HERE / "go").exists():
                time.sleep(0.05)
        return client(message, context)


app = Held()
'''


def trainings_of(flower: Simulation) -> int:
    """How many times the first client was asked to train."""
    path = flower.folder / "trainings"
    return path.stat().st_size if path.exists() else 0


def rows_of(flower: Simulation):
    """The noisy sums in the store."""
    with federated.open(flower.folder / "out" / "federated" / "federation.expunge") as federation:
        assert federation.verify().ok
        return federation.transcript.answers[:].copy()


@pytest.fixture
def flower(tmp_path: Path):
    with simulation(tmp_path) as one:
        yield one


def readme_command(start: str) -> str:
    """The command of the README that begins so."""
    [command] = re.findall(rf"^{start}.*$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    return command


def accuracies(said: str) -> dict[int, str]:
    """The accuracy by round, as the server printed it."""
    return {
        int(number): accuracy for number, accuracy in re.findall(r"^round (\d+): accuracy (\S+)$", said, re.MULTILINE)
    }


def final(said: str) -> dict[str, str]:
    """The accuracy of each model at the end, as the server printed it."""
    titles = r"with \d+ clients|after \d+ left|trained without them"
    return dict(re.findall(rf"^({titles}): accuracy (\S+)$", said, re.MULTILINE))


def in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What the example prints when it runs without Flower's engine, in this process."""
    monkeypatch.syspath_prepend(EXAMPLE)
    from digits import client_app, server_app

    settings = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    settings["folder"] = str(folder)
    grid = InMemoryGrid(run_config=settings)
    for number in range(20):
        grid.join(100 + number, client_app.app, {"partition-id": number, "num-partitions": 20})
    server_app.app(grid, Context(1, 1, {}, RecordDict(), settings))
    said = capsys.readouterr().out
    return accuracies(said), final(said)


def test_the_readme_runs(flower: Simulation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    said = flower.run(readme_command("flwr run"))
    assert (flower.folder / "out" / "federated" / "accuracy.png").stat().st_size > 1000, said
    history, results = accuracies(said), final(said)
    assert float(results["with 20 clients"]) > 0.9
    assert (history, results) == in_memory(flower.folder / "memory", monkeypatch, capsys)
    assert results["after 3 left"] == results["trained without them"]  # without noise they are the same model
    assert "everything agrees: True" in said
    again = flower.run(readme_command("flwr run"))
    assert not accuracies(again)
    assert final(again) == {"with 17 clients": results["after 3 left"]}
    flower.stop()


def test_the_server_dies_in_mid_round(flower: Simulation):
    app = flower.folder / "examples" / "federated"
    (app / "held.py").write_text(HELD.format(folder=str(flower.folder)))
    settings = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(settings.replace("digits.client_app:app", "held:app"))
    command = readme_command("flwr run") + " -c 'rounds=4 rho=0.9 forget=\"\"'"

    run = flower.start(command)
    wait_until(lambda: 2 in accuracies(flower.said()) and trainings_of(flower) == 3, 120, flower.said)
    assert len(flower.processes(SERVER)) == 1
    flower.kill(SERVER)
    flower.kill()
    assert run.wait() == -signal.SIGKILL
    assert sorted(accuracies(flower.said())) == [0, 1, 2]

    before = rows_of(flower)
    (flower.folder / "go").touch()
    said = flower.run(command)
    assert sorted(accuracies(said)) == [3, 4]
    assert "everything agrees: True" in said
    assert trainings_of(flower) == 5  # the third was asked for twice
    after = rows_of(flower)
    assert (len(before), len(after)) == (2, 4)
    assert np.array_equal(before, after[:2])
    flower.stop()
