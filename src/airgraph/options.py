"""What a user can set; the only place that reads dicts into options."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from airgraph.arguments import as_integer, as_path, boolean, integer, shown
from airgraph.errors import OptionError

__all__ = ["Group", "Options", "OptionsSource"]

_CHOICES = "choices"
_DOC = "doc"
_GROUP = "group"
_REWRITES = "rewrites"

# The sections of docs/options.md, in their order.
Group = Literal["memory", "outputs", "inputs", "passes", "kernels", "streams", "debugging"]


def _option(default: Any, group: Group, doc: str, *, choices: Sequence[Any] = (), rewrites: bool = False) -> Any:
    """rewrites: whether the value decides what a graph is, and not only how it is captured and replayed."""
    metadata = {_GROUP: group, _DOC: doc, _CHOICES: tuple(choices), _REWRITES: rewrites}
    return field(default=default, metadata=metadata)


@runtime_checkable
class OptionsSource(Protocol):
    """Settings under other names, such as `airgraph.torchair.CompilerConfig`, that say which options they come to."""

    def as_options(self) -> Options:
        """Raises OptionError for settings that do not go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How graphs are captured and replayed. Immutable; hashable as long as its values are.

    Raises OptionError for a value that is not allowed.
    """

    use_graph_pool: object | None = _option(
        None,
        "memory",
        "a pool from `airgraph.graph_pool_handle()` that all FX graphs compiled with it share, across models; turns "
        "`reuse_graph_pool_in_same_fx` off",
    )
    reuse_graph_pool_in_same_fx: bool = _option(
        True, "memory", "all shapes of one FX graph share one pool; False: each capture has its own"
    )
    clone_input: bool = _option(
        True,
        "inputs",
        "user inputs are copied into buffers that the graphs of a pool share; False: they are used where they lie, see "
        "`on_input_move`",
    )
    clone_output: bool | tuple[int, ...] = _option(
        False, "outputs", "True: return copies of all outputs; a sequence of output indices: of those"
    )
    live_outputs: str = _option(
        "preserve",
        "outputs",
        "what happens to an output that the caller still holds when a replay would overwrite it",
        choices=("preserve", "warn", "error", "overwrite"),
    )
    on_input_move: str = _option(
        "recapture",
        "inputs",
        "what happens when an input that is used in place has a new address: follow it (on CPU the tape is pointed at "
        "it, on accelerators one capture is kept for each set of addresses), copy it into the tensor that was captured "
        "(only user inputs, with `clone_input=False`; others are followed), or raise InputMoved",
        choices=("recapture", "copy", "error"),
    )
    capture_limit: int = _option(
        64,
        "memory",
        "captures of one FX graph that are kept; past it, the one used least recently is dropped for each new one, "
        "with one warning that names what keeps changing",
    )
    memory_budget: int | None = _option(
        None, "memory", "bytes a pool may take; a capture that would pass it is not made, and that shape runs eagerly"
    )
    inplace_pass: bool = _option(
        True, "passes", "let operators write into intermediates that nobody needs any more", rewrites=True
    )
    input_inplace_pass: bool = _option(
        True, "passes", "write mutated inputs in place instead of copying them back", rewrites=True
    )
    remove_noop_ops: bool = _option(True, "passes", "remove operators that change nothing", rewrites=True)
    remove_cat_ops: bool = _option(
        True, "passes", "let what makes the parts of a cat or stack write into slices of it", rewrites=True
    )
    pattern_fusion_pass: bool = _option(
        True, "passes", "apply what `airgraph.register_replacement` registered", rewrites=True
    )
    post_grad_custom_pre_pass: Callable[..., None] | None = _option(
        None, "passes", "a pass of yours before the built-in ones: `(gm, example_inputs, options) -> None`"
    )
    post_grad_custom_post_pass: Callable[..., None] | None = _option(None, "passes", "the same after the built-in ones")
    kernels: str = _option(
        "fast",
        "kernels",
        "on CPU: kernels of our own where they are faster, never further from the exact value than eager's; or eager's "
        "only, equal bit for bit",
        choices=("fast", "exact"),
        rewrites=True,
    )
    pack_weights: bool = _option(
        False,
        "kernels",
        "on CPU: keep copies of parameters and buffers in the order that products of many rows read fastest, "
        "where that was measured to be faster; each call looks whether they have changed, and copies anew. Writing "
        "through `.data` or NumPy is noticed if it changes more than a few numbers",
    )
    frozen_parameter: bool = _option(False, "inputs", "skip the address check of parameters")
    force_eager: bool = _option(False, "debugging", "run the final FX graph without capture")
    force_recapture: bool = _option(False, "debugging", "capture at every call")
    capture_error_mode: str = _option(
        "auto",
        "streams",
        "which calls that a capture on an accelerator does not allow are errors: those of all threads, of the "
        "capturing thread, or none; by itself those of the capturing thread on CUDA and of all on Ascend; on CPU "
        "nothing is forbidden",
        choices=("auto", "global", "thread_local", "relaxed"),
    )
    stream_check: str = _option(
        "fix",
        "streams",
        "accesses of two streams to one memory, of which one writes, that no event orders: let the second wait for the "
        "first, with a warning; only warn; raise StreamError; or do not look",
        choices=("fix", "warn", "error", "off"),
        rewrites=True,
    )
    max_streams: int | None = _option(
        None,
        "streams",
        "how many streams a graph uses beside the default one at most, which more tags share; None: what the device "
        "has room for, on CPU one a core with the default one; 0: all one after another",
    )
    verify_every: int = _option(
        0,
        "debugging",
        "every N replays run eagerly too and compare; ReplayError names the first node that differs; 0: never",
    )

    dump_dir: str | None = _option(
        None,
        "debugging",
        "a folder for what each FX graph is before, after every pass that changed it, as a program that runs, and as a "
        "tape; without it TORCH_COMPILE_DEBUG=1 dumps into torch's own folder",
    )

    def __post_init__(self) -> None:
        if isinstance(self.clone_output, list):
            object.__setattr__(self, "clone_output", tuple(self.clone_output))
        for option in dataclasses.fields(self):
            object.__setattr__(self, option.name, self._checked(option, getattr(self, option.name)))
        if self.on_input_move == "copy" and self.clone_input:
            raise OptionError(
                "option 'on_input_move': 'copy' needs clone_input=False; with clone_input=True user inputs are copied "
                "at every call, and no other input is."
            )

    @staticmethod
    def _checked(option: dataclasses.Field[Any], value: Any) -> Any:
        """The value, as a number or a text of Python's where it is another's."""
        name = f"option {option.name!r}"
        choices = option.metadata[_CHOICES]
        # An array would be compared number by number.
        if choices and not (isinstance(value, str) and value in choices):
            close = difflib.get_close_matches(str(value), choices, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise OptionError(f"{name}: expected one of {list(choices)}, got {shown(value)}.{hint}")
        if option.name == "clone_output":
            return _clone_output(value)
        if isinstance(option.default, bool):
            return boolean(name, value)
        if option.name in ("capture_limit", "verify_every", "max_streams"):
            least = 1 if option.name == "capture_limit" else 0
            return integer(name, value, least=least, or_none=option.name == "max_streams")
        if option.name.startswith("post_grad_custom") and value is not None and not callable(value):
            raise OptionError(f"{name}: expected a callable (gm, example_inputs, options), got {shown(value)}.")
        if option.name == "dump_dir":
            return _dump_dir(value)
        if option.name == "memory_budget":
            return _memory_budget(value)
        if option.name == "use_graph_pool":
            _check_use_graph_pool(value)
        return value

    def rewriting(self) -> dict[str, Any]:
        """The options that decide what a graph is, callables excepted."""
        return {
            option.name: getattr(self, option.name) for option in dataclasses.fields(self) if option.metadata[_REWRITES]
        }

    @classmethod
    def parse(cls, given: Options | OptionsSource | Mapping[str, Any] | None) -> Options:
        """Options from None (the defaults), a mapping of names to values, Options as they are, or what comes to some.

        Raises OptionError for an unknown name, with close matches, and for a bad value.
        """
        if given is None:
            return cls()
        if isinstance(given, cls):
            return given
        if isinstance(given, OptionsSource):
            return given.as_options()
        if not isinstance(given, Mapping):
            raise OptionError(f"options: expected None, a dict or airgraph.Options, got {type(given).__name__}.")
        known = {option.name: option for option in dataclasses.fields(cls)}
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, n=3)
                hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Known: {sorted(known)}."
                raise OptionError(f"unknown option {name!r}. {hint}")
        return cls(**given)


def _clone_output(value: object) -> bool | tuple[int, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, tuple):
        indices = [index for index in map(as_integer, value) if index is not None and index >= 0]
        if len(indices) == len(value):
            return tuple(indices)
    raise OptionError(
        f"option 'clone_output': expected True, False or a sequence of output indices, got {shown(value)}."
    )


def _dump_dir(value: object) -> str | None:
    found = as_path(value)
    if found is None and value is not None:
        raise OptionError(f"option 'dump_dir': expected None or a path as a string, got {shown(value)}.")
    return found


def _memory_budget(value: object) -> int | None:
    found = as_integer(value)
    if value is not None and (found is None or found < 0):
        raise OptionError(f"option 'memory_budget': expected None or a number of bytes, got {shown(value)}.")
    return found


def _check_use_graph_pool(value: object) -> None:
    """Whether it can be a pool at all, here or of a device's own kind; its device is known only at compile time."""
    of_device = isinstance(value, tuple) and all(isinstance(part, int) for part in value)
    if value is not None and not of_device and not hasattr(value, "device_type"):
        raise OptionError(
            "option 'use_graph_pool': expected a pool from airgraph.graph_pool_handle(), got "
            f"{shown(value)} of type {type(value).__name__}."
        )
    if getattr(value, "closed", False):
        raise OptionError(f"option 'use_graph_pool': {value!r} is closed. Open one by airgraph.graph_pool_handle().")
