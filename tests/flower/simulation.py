"""Flower's simulation engine, run as a person would run it, so that none of its processes outlives a test."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "federated"
SERVER = "flwr-simulation"
"""The process in which the server app runs."""


class Simulation:
    """A home for Flower: the processes started from it carry a mark, by which they and their sessions are found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ray = tempfile.mkdtemp(prefix="ray-")  # paths of sockets must be short
        self._mark = f"EXPUNGE_TEST={uuid.uuid4().hex}"
        self._sessions: set[int] = set()
        self._started: list[subprocess.Popen[str]] = []
        name, mark = self._mark.split("=")
        self._environment = {
            **os.environ,
            name: mark,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": self._ray,
            "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(100 * 2**20),
            "OPENBLAS_NUM_THREADS": "1",
            "UV_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",  # what is said is read while it runs
        }

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command in the folder; what it says is in the file `log`."""
        with open(self.folder / "log", "a") as log:
            process = subprocess.Popen(
                shlex.split(command),
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def said(self) -> str:
        """What all commands said so far."""
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    def run(self, command: str, timeout: float = 180) -> str:
        """What a command says that has to succeed."""
        before = len(self.said())
        process = self.start(command)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{command} takes more than {timeout} s: {self.said()[before:]}") from None
        assert code == 0, self.said()[before:]
        return self.said()[before:]

    def processes(self, name: str = "") -> dict[int, str]:
        """The processes that live, by number, with their commands: those that have `name` in it."""
        found = {}
        listed = [one for folder in Path("/proc").glob("[0-9]*") if (one := self._look_at(folder)) is not None]
        self._sessions.update(session for _, session, _, marked in listed if marked)
        for number, session, command, _ in listed:
            if session in self._sessions and name in command:
                found[number] = command
        return found

    def _look_at(self, folder: Path) -> tuple[int, int, str, bool] | None:
        """The number, session and command of a process, and whether it has the mark, which Ray's may have lost."""
        try:
            state, _, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            marked = self._mark.encode() in (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it ended, or is not ours
            return None
        return None if state == "Z" else (int(folder.name), int(session), command, marked)

    def send(self, number: signal.Signals, name: str = "") -> None:
        """Send a signal to all processes that have `name` in their command."""
        for process in self.processes(name):
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue

    def stop(self) -> None:
        """Stop the server that Flower leaves in the background, and see that nothing is left of it."""
        self.send(signal.SIGTERM, "flower-superlink")
        wait_until(lambda: not self.processes(), 30, lambda: f"these are left: {self.processes()}")

    def kill(self, name: str = "") -> None:
        """Kill all processes that have `name` in their command."""
        self.send(signal.SIGKILL, name)
        wait_until(lambda: not self.processes(name), 10, lambda: f"these cannot be killed: {self.processes(name)}")

    def close(self) -> None:
        """Kill what is left, and forget its files."""
        while self.processes():  # one may have started another meanwhile
            self.kill()
        for process in self._started:
            process.wait()
        shutil.rmtree(self._ray, ignore_errors=True)


@contextmanager
def simulation(folder: Path) -> Iterator[Simulation]:
    """A home for Flower with a copy of the example, at the same place as here; nothing is left of it afterwards."""
    shutil.copytree(EXAMPLE, folder / "examples" / "federated", ignore=shutil.ignore_patterns("__pycache__"))
    flower = Simulation(folder)
    try:
        yield flower
    finally:
        flower.close()


def wait_until(done: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
    """Wait until something is so; complain if it is not in time."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, complaint()
        time.sleep(0.05)


def free_port() -> int:
    """A port that nobody listens on."""
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
