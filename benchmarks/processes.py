"""Time contenders that each have a process of their own; all are alive at once and take turns block by block.

Two graph compilers in one process disturb each other. A worker says how many calls fill a block once it is warm, then
answers each line that it reads, a number of calls, with the nanoseconds that they took.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import measure

__all__ = ["Worker", "answer", "serve", "time_in_turns"]

BLOCK_NS = 20_000_000
_MARK = "ANSWER "


def answer(value: object) -> None:
    """From a worker to who started it."""
    print(f"{_MARK}{json.dumps(value)}", flush=True)


def serve(timed: measure.Contender, synchronize: Callable[[], object]) -> None:
    """In a worker: time blocks until nobody asks any more. The synchronize after a block is not timed."""
    answer(measure.warm_up(timed, target_ns=BLOCK_NS))
    for line in sys.stdin:
        measure.block_ns(timed, max(1, int(line) // 10))
        answer(measure.block_ns(timed, int(line)))
        synchronize()


class Worker:
    """A contender's process, started by `command`. is_quiet: what it writes to stderr is not kept."""

    def __init__(self, command: Sequence[str], *, is_quiet: bool = True) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if is_quiet else subprocess.PIPE,
            text=True,
        )

    def answer(self) -> Any:
        """What it says next. Raises RuntimeError if it ends instead."""
        for line in self._process.stdout:  # type: ignore[union-attr]
            if line.startswith(_MARK):
                return json.loads(line[len(_MARK) :])
        errors = self._process.stderr.read() if self._process.stderr else ""
        raise RuntimeError(f"the worker ended without an answer: {errors[-2000:]}")

    def ask(self, calls: int) -> int:
        """Nanoseconds that so many calls take."""
        print(calls, file=self._process.stdin, flush=True)
        return int(self.answer())

    def close(self) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait(timeout=60)


def time_in_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> measure.Turns:
    """Time the workers that these commands start, `rounds` blocks each."""
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        calls: dict[str, int] = {}
        for name, command in commands.items():
            print(f"starting {name} ...", file=sys.stderr)
            workers[name] = Worker(command)
            stack.callback(workers[name].close)
            calls[name] = workers[name].answer()
        samples: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds):
            # Each second round, since a turn and a reversal undo one another.
            turn = number // 2 % len(commands)
            order = [*commands][turn:] + [*commands][:turn]
            for name in reversed(order) if number % 2 else order:
                samples[name].append(workers[name].ask(calls[name]) / calls[name] / 1000)
    return measure.Turns({name: measure.summarise(samples[name], calls[name]) for name in commands}, samples)
