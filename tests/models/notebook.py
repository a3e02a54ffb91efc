"""A session in a real IPython: it prints, as JSON, what is displayed, completed and explained of each model."""

import json
import sys
from pathlib import Path

from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from models.showcase import models


def seen(shell: InteractiveShell, model: object) -> dict[str, object]:
    shell.user_ns["model"] = model
    with capture_output() as printed:
        shown, _ = shell.display_formatter.format(model)
        explained = shell.run_cell("model?").success
    with provisionalcompleter():
        completed = [one.text.removeprefix(".") for one in shell.Completer.completions("model.", 6)]
    return {"shown": shown, "completed": completed, "explained": explained, "printed": printed.stdout + printed.stderr}


def main(folder: Path) -> None:
    quiet = Config()
    quiet.HistoryManager.enabled = False
    quiet.Completer.use_jedi = False
    shell = InteractiveShell.instance(config=quiet)
    found = {name: seen(shell, model) for name, model in models(folder)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
