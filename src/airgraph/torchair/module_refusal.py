"""Modules that are not offered say so when they are imported, and why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any

from airgraph.errors import NotImportable

__all__ = ["refuse_modules"]


class _Refusing(MetaPathFinder):
    """Asked after all others. why: the message for a module's name; None where it is nobody's."""

    def __init__(self, package: str, why: Callable[[str], str | None]) -> None:
        self.package, self.why = package, why

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if not fullname.startswith(f"{self.package}."):
            return
        message = self.why(fullname)
        if message is not None:
            refused = NotImportable(message)
            refused.name = fullname
            raise refused


def refuse_modules(package: str, why: Callable[[str], str | None]) -> None:
    """Raise NotImportable, an ImportError, for modules of a package that nobody finds, as long as the process lives.

    why: the message for a module's name; None leaves it to Python.
    """
    known = (each for each in sys.meta_path if isinstance(each, _Refusing))
    if not any(each.package == package for each in known):
        sys.meta_path.append(_Refusing(package, why))
