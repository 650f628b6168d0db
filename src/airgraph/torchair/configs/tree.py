"""Settings as attributes of one another, `config.debug.aclgraph.clone_input`, by a table of their paths."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Sequence
from typing import Any

from airgraph.errors import OptionError
from airgraph.options import Options
from airgraph.torchair.configs.own_pass import OwnPass
from airgraph.torchair.configs.setting import Setting

__all__ = ["Config", "Section", "Settings"]

_PASSES = ("post_grad_custom_pre_pass", "post_grad_custom_post_pass")


class Section:
    """The settings whose paths begin alike. Reading one gives a plain value; writing one checks it.

    Raises OptionError for an unknown name and for a bad value that is written, AttributeError for what is read and is
    not there.
    """

    def __init__(self, settings: Settings, prefix: str) -> None:
        vars(self).update(_settings=settings, _prefix=prefix)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # What Python looks for on its own, such as in copies.
            raise AttributeError(name)
        settings: Settings = vars(self)["_settings"]
        path = f"{vars(self)['_prefix']}{name}"
        if path in settings.values_by_path:
            return settings.values_by_path[path]
        if settings.has_section(path):
            return Section(settings, f"{path}.")
        raise AttributeError(settings.unknown(path))

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)["_settings"].put(f"{vars(self)['_prefix']}{name}", value)

    def __dir__(self) -> list[str]:
        prefix = vars(self)["_prefix"]
        paths = vars(self)["_settings"].values_by_path
        return sorted({path.removeprefix(prefix).partition(".")[0] for path in paths if path.startswith(prefix)})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Section):
            return NotImplemented
        mine, others = vars(self), vars(other)
        same_place: bool = mine["_prefix"] == others["_prefix"]
        return same_place and mine["_settings"].values_by_path == others["_settings"].values_by_path

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{vars(self)['_prefix'] or 'settings'}: {vars(self)['_settings'].changed()}>"


class Config(Section):
    """All settings of a table. A copy has values of its own, which are the same objects: a pool stays the pool."""

    def __init__(self, table: Sequence[Setting], others: Sequence[Setting], others_are: str) -> None:
        super().__init__(Settings(table, others, others_are), "")

    def as_options(self) -> Options:
        """The options of airgraph that the settings come to; passes are given a copy of these settings."""
        return Options(**self._options())

    def _options(self) -> dict[str, Any]:
        settings: Settings = vars(self)["_settings"]
        given = copy.copy(self)
        return {
            name: OwnPass(value, given, settings.values_by_path) if name in _PASSES and value is not None else value
            for name, value in settings.options().items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (), vars(self)["_settings"].values_by_path

    def __setstate__(self, values: dict[str, Any]) -> None:
        vars(self)["_settings"].values_by_path = dict(values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Config:
        return copy.copy(self)


class Settings:
    """The values of all settings of a table. others: of another table, to say of an unknown name that it is there."""

    def __init__(self, table: Sequence[Setting], others: Sequence[Setting], others_are: str) -> None:
        self._table = {setting.path: setting for setting in table}
        self._others = {setting.path: setting for setting in others}
        self._others_are = others_are
        self.values_by_path: dict[str, Any] = {setting.path: setting.default for setting in table}

    def has_section(self, path: str) -> bool:
        """Whether there are settings below a path."""
        return any(each.startswith(f"{path}.") for each in self._table)

    def put(self, path: str, value: Any) -> None:
        """Set one value. Raises OptionError for an unknown path and for a bad value, which is not kept."""
        setting = self._table.get(path)
        if setting is None:
            if self.has_section(path):
                raise OptionError(
                    f"setting {path!r} is a section: set what is in it, such as {self._first_in(path)!r}."
                )
            raise OptionError(self.unknown(path))
        changed = {**self.values_by_path, path: setting.taken(value)}
        if setting.option is not None:
            try:
                # The option knows what it takes.
                Options(**{setting.option: setting.value_of(changed[path], changed)})
            except OptionError as error:
                raise OptionError(f"setting {path!r}: {error}") from error
        self.values_by_path = changed

    def options(self) -> dict[str, Any]:
        """The options that the settings come to, all of them."""
        return {
            setting.option: setting.value_of(self.values_by_path[path], self.values_by_path)
            for path, setting in self._table.items()
            if setting.option is not None
        }

    def changed(self) -> dict[str, Any]:
        """The settings that are not as by default."""
        return {path: value for path, value in self.values_by_path.items() if value != self._table[path].default}

    def unknown(self, path: str) -> str:
        """What to say of a name that is not there."""
        name = path.rpartition(".")[2]
        elsewhere = [each for each in self._table if each.rpartition(".")[2] == name]
        others = [each for each in self._others if each.rpartition(".")[2] == name]
        if elsewhere:
            hint = f"It is {' or '.join(map(repr, elsewhere))}."
        elif others:
            hint = f"{self._others_are} it as {others[0]!r}."
        else:
            close = difflib.get_close_matches(path, self._table, n=3)
            last = difflib.get_close_matches(name, [each.rpartition(".")[2] for each in self._table], n=3)
            close += [each for each in self._table if each.rpartition(".")[2] in last and each not in close]
            hint = f"Did you mean {' or '.join(map(repr, close[:3]))}?" if close else self._known_beside(path)
        return f"unknown setting {path!r}. {hint}"

    def _known_beside(self, path: str) -> str:
        section = path.rpartition(".")[0]
        within = f"{section}." if section and self.has_section(section) else ""
        known = sorted({each.removeprefix(within).partition(".")[0] for each in self._table if each.startswith(within)})
        return f"TorchAir has it in no mode. Known: {known}."

    def _first_in(self, path: str) -> str:
        return next(each for each in self._table if each.startswith(f"{path}."))
