"""What code reads that Dynamo does not trace, but that decides a graph: nothing guards it, so it is compared itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cached_functions import cached
from starts import Outcome, Starts, check_right, outcomes_of, write
from torch import Tensor

from airgraph.cache.checking.held_values import digest_of_value
from airgraph.errors import CacheError, Unwritable

VALUES = """
    import collections
    import functools
    import os
    import types

    import numpy
    import torch

    GAIN = GIVEN

    def inner(x, by=GAIN):
        return x * by

    def by_keyword(x, *, by=GAIN):
        return x * by

    def closing(number):
        return lambda x: x * number

    class Config:
        gain = GAIN

    class Held:
        def __init__(self):
            self.gain = GAIN

        def times(self, x):
            return x * self.gain

    class Slotted:
        __slots__ = ("gain",)

        def __init__(self):
            self.gain = GAIN

    namespace = types.SimpleNamespace(gain=GAIN)
    nested = types.SimpleNamespace(inner=[{"gain": namespace}])
    closure = closing(GAIN)
    part = functools.partial(by_keyword, by=GAIN)
    held, slotted = Held(), Slotted()
    bound = held.times
    table = collections.OrderedDict(gain=(GAIN,))
    array = numpy.array([GAIN])
"""
READERS = {
    "namespace": "x * values.namespace.gain",
    "by_name": "x * namespace.gain",
    "nested": "x * nested.inner[0]['gain'].gain",
    "of_module": "x * values.GAIN",
    "default": "inner(x)",
    "keyword_default": "by_keyword(x)",
    "closure": "closure(x)",
    "class_attribute": "x * Config.gain",
    "instance": "x * held.gain",
    "slot": "x * slotted.gain",
    "method": "held.times(x)",
    "bound_method": "bound(x)",
    "partial": "part(x)",
    "table": "x * table['gain'][0]",
    "array": "x * float(array[0])",
}


def _project(given: str) -> dict[str, str]:
    readers = "".join(
        f"""
@torch.compiler.allow_in_graph
def allowed_{name}(x):
    return {text}

def read_{name}(x):
    return allowed_{name}(x) * 2
"""
        for name, text in READERS.items()
    )
    own_default = """
@torch.compiler.allow_in_graph
def allowed_own_default(x, by=values.GAIN):
    return x * by

def read_own_default(x):
    return allowed_own_default(x) * 2
"""
    names = [*READERS, "own_default"]
    return {
        "start": f"import readers\nfor name in {names!r}:\n    compare(name, cached(vars(readers)['read_' + name]))\n",
        "readers": f"import torch\nimport values\nfrom values import *\n{readers}{own_default}",
        "values": VALUES.replace("GIVEN", given),
    }


@pytest.fixture(scope="module", params=["edited", "environment"])
def two_starts(
    request: pytest.FixtureRequest, starts: Starts, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Outcome]]:
    """Two starts of each of two versions: a constant that is edited, or read from the environment by the module."""
    folder = tmp_path_factory.mktemp("below")
    found = []
    for gain in ("2", "2", "3", "3"):
        given = gain if request.param == "edited" else 'int(os.environ["GAIN"])'
        script = write(folder / "project", _project(given))
        found.append(outcomes_of(starts, script, folder / "cache", GAIN=gain))
    return found


@pytest.mark.parametrize("name", [*READERS, "own_default"])
def test_values_are_compared_however_they_are_held(name: str, two_starts: list[dict[str, Outcome]]) -> None:
    first, again, other, other_again = (each[name] for each in two_starts)
    check_right([first, other, again, other_again])
    assert [each.traced for each in (first, again, other, other_again)] == [1, 0, 1, 0]


SETS = {
    "start": """
        import sets

        for name in ("of_global", "made", "split", "of_class", "own_default", "comprehension"):
            compare(name, cached(getattr(sets, name)))
        """,
    "sets": """
        import torch

        WORDS = {"a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg"}
        TEXT = "a bb ccc dddd eeeee ffffff ggggggg"

        class Held:
            words = frozenset(WORDS)

        def through(x, words):
            for word in words:
                x = x * 3 + len(word)
            return x

        allowed = torch.compiler.allow_in_graph

        @allowed
        def allowed_of_global(x):
            return through(x, WORDS)

        @allowed
        def allowed_made(x):
            return through(x, set(["a", "bb", "ccc", "dddd", "eeeee"]))

        @allowed
        def allowed_split(x):
            return through(x, set(TEXT.split()))

        @allowed
        def allowed_of_class(x):
            return through(x, Held.words)

        @allowed
        def allowed_own_default(x, words=frozenset(WORDS)):
            return through(x, words)

        @allowed
        def allowed_comprehension(x):
            return through(x, {word for word in TEXT.split()})

        def of_global(x):
            return allowed_of_global(x) * 2

        def made(x):
            return allowed_made(x) * 2

        def split(x):
            return allowed_split(x) * 2

        def of_class(x):
            return allowed_of_class(x) * 2

        def own_default(x):
            return allowed_own_default(x) * 2

        def comprehension(x):
            return allowed_comprehension(x) * 2
        """,
}


def test_sets_of_another_order(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", SETS)
    with Starts(PYTHONHASHSEED="2") as others:
        found = [outcomes_of(each, script, tmp_path / "cache") for each in (starts, others, others)]
    for name in found[0]:
        check_right([each[name] for each in found])
        assert [each[name].traced for each in found] == [1, 1, 0], name


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


def test_tensors_are_compared_by_what_is_in_them() -> None:
    held = [torch.zeros(3), torch.ones(3), torch.ones(3, dtype=torch.int32), torch.ones(3, 1)]
    assert len({digest_of_value({"held": each}).text for each in held}) == len(held)
    assert digest_of_value([torch.ones(3)]) == digest_of_value([torch.ones(3)])


def test_what_is_too_large_to_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="too large"):
        digest_of_value([torch.zeros(1 << 20)])
    with pytest.raises(Unwritable, match="more than"):
        digest_of_value([[i] for i in range(30_000)])
    cycle: list[object] = []
    cycle.append(cycle)
    assert digest_of_value(cycle).text != digest_of_value([[]]).text


def test_how_often_a_tensor_was_written_is_not_a_constant(tmp_path: Path) -> None:
    def versions(x: Tensor) -> Tensor:
        return x * x._version

    with pytest.raises(CacheError, match="how often"):
        cached(versions, tmp_path)(torch.ones(2))


def test_attributes_of_a_returned_tensor_are_not_lost(tmp_path: Path) -> None:
    def noted(x: Tensor) -> Tensor:
        y = x * 2
        y.note = 1  # type: ignore[attr-defined]
        return y

    with pytest.raises(CacheError, match="sets attributes of a Tensor"):
        cached(noted, tmp_path)(torch.ones(2))
