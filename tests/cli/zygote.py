"""A process that has imported everything and forks a child for every command: real processes, without the wait.

A child gets the arguments, the folder, the environment and the three files of a command, runs `expunge.cli.main` as
the installed script does, and exits with its code. It may be told to press Ctrl-C for itself, at a point of its work.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

MODULES = (
    "expunge", "expunge.cli.app", "expunge.cli.console", "expunge.cli.scores", "expunge.models.opening",
    "expunge.models.classifiers", "expunge.models.kmeans", "expunge.models.regressors", "expunge.models.ridge",
    "expunge.models.ingest", "expunge.tables.schema.encoding", "expunge.tables.schema.toml", "expunge.store.copies",
    "expunge.store.receipts", "scipy.fft", "scipy.linalg", "scipy.optimize", "scipy.sparse", "scipy.stats",
    "expunge.audit.forecast", "expunge.base.progress",
    "expunge.audit.people", "expunge.audit.scoring", "expunge.tables.schema.drafting",
    "expunge.audit.auditor", "expunge.audit.report",
    "pyarrow.csv", "pyarrow.parquet", "pyarrow.compute", "tomlkit", "rich.progress", "rich.table", "typer.completion",
    "cryptography.hazmat.primitives.asymmetric.ed25519", "sklearn.feature_extraction.text",
    "typer._adapters", "pyarrow.pandas_compat", "tempfile", "secrets",
)  # fmt: skip
PATIENCE = 180.0
"""After how many seconds a command that does not end is given up."""
COLUMNS = 80


# --- the tester's side --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What came of a command."""

    code: int
    """The exit code; below 0, the signal that ended it."""
    out: str
    err: str

    @property
    def data(self):
        """The one JSON object that it printed."""
        return json.loads(self.out)


class Command:
    """A command that is running."""

    def __init__(self, connection, ends):
        self._connection, self._answers = connection, connection.makefile("rb")
        self.pid = int(self._answers.readline())
        self._read = [bytearray() for _ in ends]
        self._readers = [threading.Thread(target=self._drain, args=pair) for pair in zip(ends, self._read, strict=True)]
        for reader in self._readers:
            reader.start()

    def _drain(self, end, read):
        with os.fdopen(end, "rb", buffering=0) as file, contextlib.suppress(OSError):  # a terminal that was closed
            while piece := file.read(65536):
                read += piece

    def interrupt(self):
        """Press Ctrl-C, if it has not ended by itself: only its parent knows that."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(b"interrupt")

    def wait(self):
        """Return what came of it."""
        try:
            code = int(self._answers.readline())
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            self._answers.close()
            self._connection.close()
        for reader in self._readers:
            reader.join()
        out, err = (bytes(read).decode(errors="replace") for read in (*self._read, b"")[:2])
        return Result(code, out, err)


class Zygote:
    """The process that forks."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="zygote")
        self._path = f"{self._folder.name}/socket"  # such a path must be short
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._path],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout.readline() == b"ready\n"

    def start(self, *arguments, cwd, env=None, hook=None, terminal=False, out=None, limit=None, given=b""):
        """Start a command, in a terminal if so wanted; what it prints goes to ``out`` if that is given.

        ``given`` is what it can read from standard input.

        ``hook`` says when it presses Ctrl-C: {"points": [...]} at these points of the store's work, in this order,
        {"line": n} at the n-th line of our code. Or that it imports all of our code anew ({"fresh": True}), or has an
        error of its own ({"raise": True}). ``limit`` is how many bytes a file may have.
        """
        stdin, ours = os.pipe()
        os.write(ours, given)  # a few bytes, for which a pipe has room
        os.close(ours)
        if terminal:
            ends, theirs = _new_terminal()
        else:
            pipes = [os.pipe(), os.pipe()]
            ends, theirs = [here for here, _ in pipes], [there for _, there in pipes]
        if out is not None:
            os.close(ends.pop(0))
            os.dup2(out, theirs[0])
        usual = {"PATH": os.environ["PATH"], "HOME": str(cwd), "LANG": "C.UTF-8"}
        usual |= {"TERM": "xterm-256color"} if terminal else {}
        asked = {"argv": [*map(str, arguments)], "cwd": str(cwd), "env": usual | (env or {})}
        asked |= {"hook": hook or {}, "limit": limit}
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        connection.connect(self._path)
        socket.send_fds(connection, [json.dumps(asked).encode()], [stdin, *theirs])
        for end in (stdin, *theirs):
            os.close(end)
        return Command(connection, ends)

    def close(self):
        """End it; so does the end of this process."""
        self._process.communicate()
        self._folder.cleanup()


def environment():
    """Return the environment in which Python finds Expunge from any folder."""
    import expunge

    source = str(Path(expunge.__file__).parents[1])
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": source}


def _new_terminal():
    """Return our end of a terminal, and the two that a command prints to."""
    here, there = os.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    return [here], [there, os.dup(there)]


# --- the zygote's side --------------------------------------------------------------------------------


def serve(path):
    """Fork a child for every command that is asked for, and tell its exit code."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child takes it when it is ready
    print("ready", flush=True)
    children = {}
    while True:
        asked, _, _ = select.select([server, 0, *children.values()], [], [], 0.005 if children else None)
        if 0 in asked:
            return
        for pid, connection in children.items():  # none of them is waited for yet: the number is still its own
            if connection in asked and connection.recv(20) == b"interrupt":
                os.kill(pid, signal.SIGINT)
        if server in asked:
            connection, _ = server.accept()
            request, files, _, _ = socket.recv_fds(connection, 2**16, 3)
            with warnings.catch_warnings():  # some import has started a thread
                warnings.simplefilter("ignore")
                pid = os.fork()
            if pid == 0:
                for other in (server, connection, *children.values()):
                    other.close()
                _live(json.loads(request), files)
            children[pid] = connection
            connection.send(f"{pid}\n".encode())
            for file in files:
                os.close(file)
        for pid, connection in list(children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                    connection.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                children.pop(pid).close()


def _live(request, files):
    """Be a process that was started for a command; exit as it exits."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    encoding = request["env"].get("PYTHONIOENCODING", "utf-8")
    sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
    sys.stdout = os.fdopen(1, "w", 1 if os.isatty(1) else -1, encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding, "backslashreplace", closefd=False)
    sys.argv = ["expunge", *request["argv"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _install(request["hook"])
    if request["limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], resource.RLIM_INFINITY))
    os._exit(_main())


def _main():
    """Run the command line, and return what the interpreter would exit with."""
    from expunge.cli import main

    code = 0
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    except KeyboardInterrupt:
        return 130
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except OSError:
            code = 120
    return code or 0


def _press_in_a_destructor(press):
    """Press Ctrl-C before the command begins, where an exception could only be printed."""
    import expunge.cli

    start = expunge.cli._run

    class Trap:
        def __del__(self):
            press()

    def started():
        Trap()
        start()

    expunge.cli._run = started


def _install(hook):
    """Press Ctrl-C at points of the work, or at a line."""
    from expunge.store import failpoints

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    if hook.get("in a destructor"):
        _press_in_a_destructor(press)
    points, left, ours = list(hook.get("points", ())), hook.get("line"), str(Path(failpoints.__file__).parents[1])

    def reached(name):
        if points and name == points[0]:
            points.pop(0)
            press()

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.startswith(ours):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                press()
        return trace

    if "fresh" in hook:
        for name in [name for name in sys.modules if name.partition(".")[0] == "expunge"]:
            del sys.modules[name]
    if "raise" in hook:
        from expunge.cli import inspect

        inspect.held = lambda *given, **how: 1 / 0
    if points:
        failpoints.hook = reached
    if left is not None:
        sys.settrace(trace)


def main(path):
    """Import everything, and serve."""
    for module in MODULES:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    ours = sys.modules["expunge.cli.app"]
    ours.app = sys.modules["typer"].main.get_command(ours.app)  # to build it takes longer than to run most commands
    gc.collect()
    gc.freeze()  # or else every child looks through all of it for garbage
    serve(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
