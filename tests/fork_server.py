"""Forks programs from processes that have imported and compiled already, which all workers of a run share.

Whoever needs a server first starts it; it ends with the last process that is connected to it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

__all__ = ["Forked", "Server", "next_program"]

# As the run began: a test may change its own.
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

_SERVER = """
def _next_program():
    import sys
    sys.path.insert(0, sys.argv[1])
    from fork_server import next_program
    del sys.path[0]
    return next_program(*sys.argv[2:])

_program = _next_program()
del _next_program
exec(compile(_program, "<string>", "exec"))
"""


class Server(NamedTuple):
    """What tells servers apart. prepare: what is executed before any program. environment: variables, and values."""

    prepare: str
    environment: tuple[tuple[str, str], ...] = ()


class Forked:
    """A program that runs as a main module, in a session of its own. A context, which kills what it leaves running.

    streams: its standard input, output and error.
    """

    def __init__(self, server: Server, program: str, *streams: IO[Any]) -> None:
        _stay_connected(server)
        self._connection = _connect(server)
        with tempfile.TemporaryFile("w+") as text:
            text.write(program)
            text.flush()
            socket.send_fds(self._connection, [b"p"], [each.fileno() for each in (text, *streams)])
        self.pid = self._answer()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit code, negative for a signal; None if it runs still."""
        self._connection.settimeout(timeout_s)
        try:
            return self._answer()
        except TimeoutError:
            return None

    def kill(self) -> None:
        """Kill it, with what it has started, and wait for its end."""
        os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def _answer(self) -> int:
        answer = self._connection.recv(32)
        if not answer:
            raise ChildProcessError("the process that programs are forked from has ended: see its stderr")
        return int(answer)


def next_program(listening: str, path: str, prepare: str) -> str:
    """Serve until no process is connected; return, in a fork, the program to run.

    listening: the file descriptor of the socket at the path.
    """
    sys.argv[1:] = []
    exec(prepare, {})
    with socket.socket(fileno=int(listening)) as listener, selectors.DefaultSelector() as waiting:
        program = _Served(listener, waiting).until_asked(path)
    if program is None:
        os._exit(0)
    return program


class _Served:
    """The connections of a server, and the programs that it has forked."""

    def __init__(self, listener: socket.socket, waiting: selectors.BaseSelector) -> None:
        self._listener, self._waiting = listener, waiting
        self._running: dict[int, socket.socket] = {}
        self._connected: set[socket.socket] = set()
        self._wakes, self._ended = socket.socketpair()
        for end in (self._wakes, self._ended, listener):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno())
        waiting.register(listener, selectors.EVENT_READ, self._accept)
        waiting.register(self._ended, selectors.EVENT_READ, self._tell_ends)

    def until_asked(self, path: str) -> str | None:
        """The program to run, in a fork; None when no process is connected any more."""
        self._accept()
        while True:
            for key, _ in self._waiting.select():
                program = key.data()
                if program is not None:
                    return program
            if not self._connected:
                # Who connects before the path goes is served still; who comes later starts another server.
                Path(path).unlink(missing_ok=True)
                self._accept()
                if not self._connected:
                    return None

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(True)
                self._connected.add(connection)
                self._waiting.register(connection, selectors.EVENT_READ, functools.partial(self._serve, connection))

    def _serve(self, connection: socket.socket) -> str | None:
        asked, files, _, _ = socket.recv_fds(connection, 1, 4)
        if not asked:
            self._disconnect(connection)
            return None
        child = os.fork()
        if child == 0:
            return self._begin(files)
        for file in files:
            os.close(file)
        self._running[child] = connection
        connection.sendall(b"%d" % child)
        return None

    def _disconnect(self, connection: socket.socket) -> None:
        for child, of in self._running.items():
            if of is connection:
                os.kill(child, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
        self._waiting.unregister(connection)
        self._connected.discard(connection)
        connection.close()

    def _begin(self, files: list[int]) -> str:
        """Makes a fork what a program expects of its process, and returns the program."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (*self._connected, self._wakes, self._ended):
            end.close()
        text, *streams = files
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
            os.close(stream)
        with open(text) as file:
            file.seek(0)
            return file.read()

    def _tell_ends(self) -> None:
        self._ended.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child == 0:
                    return
                connection = self._running.pop(child)
                with contextlib.suppress(OSError):
                    connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))


@functools.cache
def _stay_connected(server: Server) -> socket.socket:
    """Connected until this process ends, which keeps the server alive. Starts it if nobody has."""
    path = _path(server)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        while True:
            try:
                listener.bind(path)
                break
            except OSError:
                # Somebody has; or it listens not yet, or ends just now.
                with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
                    return _connect(server)
                time.sleep(0.01)
        listener.listen(64)
        connection = _connect(server)
        subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(Path(__file__).parent), str(listener.fileno()), path, server.prepare],
            env={**_ENVIRONMENT, **dict(server.environment)},
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    return connection


def _connect(server: Server) -> socket.socket:
    # Of packets: an answer is read whole, and alone.
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(_path(server))
    return connection


def _path(server: Server) -> str:
    """Of its socket, in the folder that a run has for itself."""
    return f"{tempfile.gettempdir()}/{hashlib.sha256(repr(server).encode()).hexdigest()[:16]}.socket"
