"""What is replaced, edited or set below what Dynamo traces is not taken for what it was at an earlier start."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cached_functions import cached
from starts import Outcome, Starts, check_right, outcomes_of, write
from torch import Tensor

OUTSIDE = {
    "start": """
        import warnings
        import outside

        warnings.simplefilter("ignore")
        for name in outside.names:
            compare(name, cached(getattr(outside, name), strict=False))
        """,
    "outside": """
        import os
        import pathlib
        import sys

        import torch

        HERE = os.path.dirname(os.path.abspath(__file__))
        readers = {
            "file": lambda: int(open(HERE + "/number.py").read()),
            "path": lambda: int(pathlib.Path(HERE, "number.py").read_text()),
            "exists": lambda: 2 + os.path.exists(HERE + "/flag.py"),
            "listed": lambda: len(os.listdir(HERE)),
            "modules": lambda: 2 + ("marker_of_a_test" in sys.modules),
            "threads": lambda: torch.get_num_threads(),
            "onednn": lambda: 2 + torch.backends.mkldnn.enabled,
            "arguments": lambda: len(sys.argv),
        }
        names = list(readers)
        for name in names:
            exec(
                f"def read_{name}(x):\\n    return x * readers['{name}']()\\n"
                f"torch.compiler.allow_in_graph(read_{name})\\n"
                f"def {name}(x):\\n    return read_{name}(x) * 2\\n"
            )
        """,
}


def test_files_settings_and_the_process_are_not_taken_for_granted(starts: Starts, tmp_path: Path) -> None:
    changes = (
        "import sys, torch\nsys.modules['marker_of_a_test'] = sys\nsys.argv.append('more')\ntorch.set_num_threads(2)\n"
        "torch.backends.mkldnn.enabled = False\n"
    )
    files = {**OUTSIDE, "number": "2"}
    first = outcomes_of(starts, write(tmp_path / "project", files), tmp_path / "cache")
    files |= {"number": "3", "flag": "", "start": changes + OUTSIDE["start"].replace("        ", "")}
    second = outcomes_of(starts, write(tmp_path / "project", files), tmp_path / "cache")
    for name in first:
        assert (first[name].error, second[name].error) == ("", ""), name
        assert first[name].eager != second[name].eager, name


REPLACED = {
    "start": """
        import replaced
        compare("replaced", cached(replaced.read_replaced, strict=False))
        """,
    "replaced": """
        import os
        import sys
        import types
        import torch

        GAIN = int(os.environ["GAIN"])

        def below(x):
            return x * GAIN

        torch.compiler.allow_in_graph(below)

        def read_replaced(x):
            return below(x) * 2

        class Lazy(types.ModuleType):
            pass

        lazy = Lazy(__name__)
        lazy.__file__ = __file__
        lazy.read_replaced = read_replaced
        sys.modules[__name__] = lazy
        """,
}


def test_a_module_that_has_put_another_in_its_place(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", REPLACED)
    found = [outcomes_of(starts, script, tmp_path / "cache", GAIN=gain) for gain in ("2", "3")]
    check_right([each["replaced"] for each in found])


PATCHED = {
    "start": """
        import builtins
        import torch.nn.functional
        import patched

        PATCH
        for name in ("in_graph", "inlined", "builtin", "builtin_inlined"):
            compare(name, cached(getattr(patched, name)))
        """,
    "patched": """
        import torch
        import torch.nn.functional as F

        @torch.compiler.allow_in_graph
        def allowed(x):
            return F.gelu(x)

        @torch.compiler.allow_in_graph
        def allowed_builtin(x):
            return x * abs(-2)

        def in_graph(x):
            return allowed(x) * 2

        def inlined(x):
            return F.gelu(x) * 2

        def builtin(x):
            return allowed_builtin(x) * 2

        def builtin_inlined(x):
            return x * abs(-2)
        """,
}
_PATCH = "torch.nn.functional.gelu = lambda x: x * 55; builtins.abs = lambda number: 7"


def test_functions_that_a_process_replaces_in_modules(starts: Starts, tmp_path: Path) -> None:
    found = []
    for patch in ("", "", _PATCH, _PATCH):
        files = {**PATCHED, "start": PATCHED["start"].replace("PATCH", patch)}
        found.append(outcomes_of(starts, write(tmp_path / "project", files), tmp_path / "cache"))
    for name in found[0]:
        check_right([found[0][name], found[2][name]])
        check_right([found[1][name], found[3][name]])
        assert [each[name].traced for each in found] == [1, 0, 1, 0], name


def test_a_built_in_function_that_is_replaced_within_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scale(x: Tensor) -> Tensor:
        return x * abs(-2)

    call, x = cached(scale, tmp_path), torch.ones(3)
    assert torch.equal(call(x), scale(x))
    monkeypatch.setattr("builtins.abs", lambda number: 7)
    assert torch.equal(call(x), scale(x))
    monkeypatch.undo()
    assert torch.equal(call(x), scale(x)) and len(call.files) == 2


LOADED = """
    import warnings
    import kept

    warnings.simplefilter("ignore")
    EDIT
    for name in ("in_graph", "inlined", "method"):
        compare(name, cached(getattr(kept, name), strict=False))
"""
KEPT = """
    import torch
    from parts import Part, inner

    @torch.compiler.allow_in_graph
    def allowed(x):
        return inner(x)

    @torch.compiler.allow_in_graph
    def allowed_method(x):
        return Part().times(x)

    def in_graph(x):
        return allowed(x) * 2

    def inlined(x):
        return inner(x) * 2

    def method(x):
        return allowed_method(x) * 2
"""
PARTS = """
    def inner(x):
        return x * EDITED

    class Part:
        def times(self, x):
            return x * EDITED
"""


def test_what_was_imported_before_its_file_was_edited(starts: Starts, tmp_path: Path) -> None:
    """A file may hold what a graph was traced from, and the process the code of before."""

    def run(number: str, edit: str) -> dict[str, Outcome]:
        files = {"start": LOADED.replace("EDIT", edit), "kept": KEPT, "parts": PARTS.replace("EDITED", number)}
        return outcomes_of(starts, write(tmp_path / "project", files), tmp_path / "cache")

    path = tmp_path / "project" / "parts.py"
    edit = f"text = open({str(path)!r}).read(); open({str(path)!r}, 'w').write(text.replace('* 2', '* 3'))"
    first, second = run("3", ""), run("2", edit)
    for name in first:
        check_right([first[name], second[name]])


NAMED_AS_PYTHONS = {
    "start": """
        import sys, importlib.util

        def load(name):
            file = __file__.replace("start.py", f"{name}.py")
            spec = importlib.util.spec_from_file_location(name, file)
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        profile = load("profile")
        helpers = load("lib2to3")

        def by_method(x, part=profile.Part()):
            return part.times(x) * 2

        @torch.compiler.allow_in_graph
        def allowed(x):
            return helpers.times(x)

        def by_function(x):
            return allowed(x) * 2

        compare("method", cached(by_method))
        compare("function", cached(by_function))
        """,
}


def test_modules_that_are_named_as_pythons_own(starts: Starts, tmp_path: Path) -> None:
    found = []
    for number in ("2", "2", "3"):
        files = {
            **NAMED_AS_PYTHONS,
            "profile": f"class Part:\n    def times(self, x):\n        return x * {number}\n",
            "lib2to3": f"def times(x):\n    return x * {number}\n",
        }
        found.append(outcomes_of(starts, write(tmp_path / "project", files), tmp_path / "cache"))
    for name in found[0]:
        check_right([found[index][name] for index in (0, 2, 1)])
        assert [each[name].traced for each in found] == [1, 0, 1], name


REGISTERED = """
    import abc, os

    class Base(abc.ABC):
        pass

    class Part:
        pass

    if os.environ["REGISTERS"]:
        Base.register(Part)
    part = Part()

    def function(x):
        return x * 2 if isinstance(part, Base) else x * 3

    compare("function", cached(function))
"""


def test_classes_that_are_registered_with_another(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", {"start": REGISTERED})
    found = [outcomes_of(starts, script, tmp_path / "cache", REGISTERS=each)["function"] for each in ("", "1", "")]
    check_right(found)
    assert found[0].eager != found[1].eager
