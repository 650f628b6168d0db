"""Writes the pages that are tables of what the code declares: `python docs/generate_pages.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from airgraph import Options, environment
from airgraph.options import Group
from airgraph.torchair.configs.setting import Setting
from airgraph.torchair.configs.table import NPUGRAPH_EX, TORCHAIR
from airgraph.torchair.refused import FUNCTIONS, MODULES

_FOLDER = Path(__file__).parent

_OPTIONS = """# Options

Give them as `torch.compile(model, backend="airgraph", options={"clone_output": True})`, as a dict to
`airgraph.get_backend`, or as `airgraph.Options(...)`. An unknown name or a bad value raises `OptionError`, which lists
close matches.

This page is generated from the `Options` dataclass by `python docs/generate_pages.py`.
"""

_HEAD = """
## {title}

{about}

| name | default | meaning |
|---|---|---|
"""

_ABOUT: dict[Group, str] = {
    "memory": "Which captures share memory, and how much they may take: see [memory](memory.md#pools-three-modes).",
    "outputs": "What the caller gets: see [outputs](memory.md#outputs-are-never-overwritten-while-you-hold-them).",
    "inputs": "How arguments reach a graph: see [addresses](memory.md#addresses).",
    "passes": "How the graph is rewritten before it is captured: see [passes](passes.md).",
    "kernels": "Which kernels run on CPU: see [kernels](kernels.md).",
    "streams": "What holds between streams and threads: see [devices](devices.md#cuda-and-ascend).",
    "debugging": "For finding out what happens, and where a fault lies: see [troubleshooting](troubleshooting.md).",
}

_ENVIRONMENT = """# Environment variables

airgraph is set by [options](options.md); the environment decides only what holds for a whole process. A variable is
read when it is needed, so a program may set it before. This page is generated from `src/airgraph/environment.py` by
`python docs/generate_pages.py`.

| variable | what it decides | values | default |
|---|---|---|---|
"""

_NOT_READ_BY_THE_PACKAGE = """
Variables that your own program reads while it is traced are guards of its cached graphs
([compile cache](cache.md)).

## When the engine is built

Read by `setup.py`, by PyTorch's `cpp_extension`, which it calls, and by the Makefile. The engine's C++ code reads no
variable.

| variable | what it decides | values | default |
|---|---|---|---|
| `AIRGRAPH_WERROR` | whether warnings of the compiler are errors, as in CI; only `setup.py` \
reads it, not a build at first use | `1`; anything else is off | off |
| `CXX` | the C++ compiler | a program, by name or path | `c++` |
| `MAX_JOBS` | PyTorch's: how many files are compiled at once | a number | ninja's own choice |
| `CI` | set by CI services: `make test` installs a missing Chromium and fails without one, `make check-headers` \
downloads missing headers | anything but empty | not set |

## Of PyTorch and Python

They are read by others, and change what airgraph does.

| variable | what it decides here |
|---|---|
| `ATEN_CPU_CAPABILITY` | the SIMD level of PyTorch's kernels, and of the engine's own: \
`default`, `avx2`, `avx512` ([devices](devices.md#cpu)) |
| `TORCHDYNAMO_DISABLE` | `1` switches torch.compile off, tracing for the compile cache too: functions run as \
they are ([why a call is not cached](troubleshooting.md#why-a-call-is-not-cached)) |
| `OMP_NUM_THREADS` | how many threads kernels on CPU use |
| `PYTHONHASHSEED` | a cached graph that depends on the order of a set serves only processes with the same \
seed ([compile cache](cache.md#what-is-checked-and-when)) |
| `TORCH_COMPILE_DEBUG_DIR` | where PyTorch's debug folder is made, see `TORCH_COMPILE_DEBUG` |
| `TORCH_LOGS` | `+airgraph.passes` and `+airgraph.capture` log passes and captures ([passes](passes.md#seeing-it)) |

`airgraph run` sets `TORCH_DEVICE_BACKEND_AUTOLOAD` to `0` with `--device cpu` and `--device cuda`: PyTorch imports no
torch_npu then, whose place the stand-in takes.
`airgraph generate` sets `HF_HUB_OFFLINE` and `HF_HUB_DISABLE_PROGRESS_BARS` for itself, and `TRANSFORMERS_VERBOSITY`
and `TOKENIZERS_PARALLELISM` where they are not set.
"""


def options_page() -> str:
    """docs/options.md, from the fields of `Options`: a table for each group."""
    text = _OPTIONS
    for group in get_args(Group):
        rows = [_option_row(option) for option in dataclasses.fields(Options) if option.metadata["group"] == group]
        text += _HEAD.format(title=group.capitalize(), about=_ABOUT[group]) + "\n".join(rows) + "\n"
    return text


def _option_row(option: dataclasses.Field[Any]) -> str:
    meaning = option.metadata["doc"]
    if option.metadata["choices"]:
        meaning += ": " + ", ".join(f"`{choice!r}`" for choice in option.metadata["choices"])
    return f"| `{option.name}` | `{option.default!r}` | {meaning} |"


def environment_page() -> str:
    """docs/environment.md, from the variables of `airgraph.environment`."""
    rows = [
        f"| `{variable.name}` | {variable.meaning} | {variable.accepted} | {variable.default} |"
        for variable in environment.VARIABLES
    ]
    return _ENVIRONMENT + "\n".join(rows) + "\n" + _NOT_READ_BY_THE_PACKAGE


def from_torchair_page() -> str:
    """docs/from_torchair.md as it is, with its tables made anew."""
    text = (_FOLDER / "from_torchair.md").read_text()
    taken = [setting for setting in TORCHAIR if not setting.refusal]
    for name, head, rows in (
        ("settings", "| setting of `CompilerConfig` | default | option | how |", map(_setting_row, taken)),
        ("refused settings", "| settings of `CompilerConfig` | why |", _refusal_rows(TORCHAIR)),
        ("refused options", "| options | why |", _refusal_rows(NPUGRAPH_EX)),
        (
            "refused names",
            "| name | why |",
            [f"| `torchair.{name}` | {why} |" for name, why in {**FUNCTIONS, **MODULES}.items()],
        ),
    ):
        before, begin, rest = text.partition(f"<!-- begin {name} -->\n")
        _, end, after = rest.partition(f"<!-- end {name} -->\n")
        rule = "|" + "---|" * (head.count("|") - 1)
        text = before + begin + "\n".join(["", head, rule, *rows, "", ""]) + end + after
    return text


def _setting_row(setting: Setting) -> str:
    option = f"`{setting.option}`" if setting.option else ""
    return f"| `{setting.path}` | `{setting.default!r}` | {option} | {setting.meaning or 'as it is'} |"


def _refusal_rows(table: Sequence[Setting]) -> list[str]:
    """One row a section and reason: there are many settings of the graph engine's."""
    rows: dict[tuple[str, str], list[str]] = {}
    for setting in table:
        if setting.refusal:
            rows.setdefault((setting.path.rpartition(".")[0], setting.refusal), []).append(f"`{setting.path}`")
    return [f"| {', '.join(paths)} | {why} |" for (_, why), paths in rows.items()]


PAGES = {
    _FOLDER / "options.md": options_page,
    _FOLDER / "environment.md": environment_page,
    _FOLDER / "from_torchair.md": from_torchair_page,
}


if __name__ == "__main__":
    for page, text in PAGES.items():
        page.write_text(text())
