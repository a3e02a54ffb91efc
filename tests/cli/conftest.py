"""Commands are run as processes of their own, which a zygote forks; see zygote.py."""

import re
import shutil

import pytest

from cli.tables import people, schema, write_csv
from cli.zygote import COLUMNS, Zygote

KINDS = {
    "logistic": "sick",
    "svm": "sick",
    "huber": "bill",
    "linear": "bill",
    "ridge": "bill",
    "boosting": "sick",
    "kmeans": "",
}
"""Every model, and the target that it takes."""
ESCAPE = "\x1b"


@pytest.fixture(scope="session")
def zygote():
    started = Zygote()
    yield started
    started.close()


@pytest.fixture
def start(zygote, tmp_path):
    """Start a command in a folder of its own."""

    def start(*arguments, **how):
        return zygote.start(*arguments, **{"cwd": tmp_path, **how})

    return start


@pytest.fixture
def run(start):
    """Run a command to its end, and check what is always so."""

    def run(*arguments, **how):
        result = start(*arguments, **how).wait()
        if not how.get("terminal"):
            assert_plain(result, "--json" in arguments)
        return result

    return run


@pytest.fixture
def done(run):
    """Run a command that succeeds; return what it printed, or the JSON object of it."""

    def done(*arguments, **how):
        result = run(*arguments, **how)
        assert result.code == 0, result
        return result.data if "--json" in arguments else result.out

    return done


@pytest.fixture
def refused(run, tmp_path):
    """Run a command that is refused: with an exit code, and one message that says this; and nothing has changed."""

    def refused(code, said, *arguments, **how):
        before = contents(tmp_path)
        result = run(*arguments, **how)
        assert result.code == code, result
        assert result.out == "", result
        errors = re.findall(r"^Error: .*", result.err, re.MULTILINE | re.DOTALL)
        assert len(errors) == 1, result
        assert errors[0].strip()[-1] in ".?", result
        for part in [said] if isinstance(said, str) else said:
            assert part in flat(errors[0]), result
        assert contents(tmp_path) == before
        return flat(errors[0])

    return refused


def assert_plain(result, as_json=False):
    """Nothing in it is for terminals only, too wide, or a traceback."""
    for text in (result.out, result.err):
        assert ESCAPE not in text
        assert "\r" not in text
        assert "Traceback" not in text
        if not (as_json and text is result.out):
            assert max(map(len, text.splitlines()), default=0) <= COLUMNS, text
    if as_json and result.code != 2:
        assert isinstance(result.data, dict)


def flat(text):
    """A text without line breaks."""
    return " ".join(text.split())


def contents(folder):
    """All files of a folder, with their bytes. Locks come and go, and an empty log stays when a reader goes."""
    found = {str(path.relative_to(folder)): path.is_dir() or path.read_bytes() for path in folder.rglob("*")}
    passing = [name for name in found if name.endswith(("-lock", "-shm")) or (name[-4:] == "-wal" and not found[name])]
    return {name: found[name] for name in found if name not in passing}


# --- tables and models --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fitted(zygote, tmp_path_factory):
    """A folder with a model of each kind, made when it is first wanted."""
    folder = tmp_path_factory.mktemp("fitted")
    made = {}

    def fitted(kind="logistic", **how):
        name = "-".join([kind, *(f"{key}={value}" for key, value in how.items())])
        if name not in made:
            made[name] = folder / name
            made[name].mkdir()
            write_csv(made[name] / "people.csv", people())
            write_csv(made[name] / "others.csv", people(20, 101))
            (made[name] / "schema.toml").write_text(schema(KINDS[kind], **how))
            also = ["--records-per-subject", 2] if how.get("subject") else []
            also += ["--clusters", 3] if kind == "kmeans" else []
            asked = ["fit", "people.csv", "--schema", "schema.toml", "--model", kind, *also, "-o", "m.expunge"]
            result = zygote.start(*asked, cwd=made[name]).wait()
            assert result.code == 0, result
        return made[name]

    return fitted


@pytest.fixture
def model(fitted, tmp_path):
    """Put a model of a kind, its tables and its schema into the folder."""

    def model(kind="logistic", **how):
        shutil.copytree(fitted(kind, **how), tmp_path, dirs_exist_ok=True)
        return tmp_path / "m.expunge"

    return model
