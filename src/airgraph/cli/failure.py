"""What a command raises when it cannot do what it was asked, and the exit codes it may end with."""

from __future__ import annotations

__all__ = ["EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_UNEXPECTED", "EXIT_USAGE", "CommandError", "UsageProblem"]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class CommandError(Exception):
    """A command failed; the message is one line that says what is wrong and what to do."""

    exit_code = EXIT_FAILED


class UsageProblem(CommandError):
    """An argument is wrong; the message quotes it and names the values allowed."""

    exit_code = EXIT_USAGE
