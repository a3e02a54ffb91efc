"""The code in docs/federated.md that needs Flower, run as it stands."""

import re
from pathlib import Path

from flwr.app import Context, RecordDict

from expunge import federated
from flower.in_memory_grid import InMemoryGrid

PAGE = Path(__file__).resolve().parents[2] / "docs" / "federated.md"


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    client, server, later = re.findall(r"```py\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    on_clients, on_the_server = {}, {}
    exec(compile(client, str(PAGE), "exec"), on_clients)
    exec(compile(server, str(PAGE), "exec"), on_the_server)
    exec(compile(later, str(PAGE), "exec"), on_the_server)
    grid = InMemoryGrid()
    for number in (1, 2, 3):
        grid.join(10 + number, on_clients["app"], {"client-id": f"hospital-{number}"})
    on_the_server["app"](grid, Context(1, 1, {}, RecordDict(), {}))
    grid.join(99, on_clients["app"], {"client-id": "hospital-9"})
    on_the_server["later"](grid)
    with federated.open("federation.expunge") as federation:
        assert federation.members == ["hospital-1", "hospital-2", "hospital-9"]
        assert federation.finished
        assert federation.verify().ok
