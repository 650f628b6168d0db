"""What code reads that Dynamo does not trace, but that decides a graph: nothing guards it, so it is compared itself."""

from __future__ import annotations

import contextvars
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from starts import Outcome, Starts, check_right, outcomes_of, write
from torch import Tensor

from airgraph.cache.checking.held_values import digest_of_value
from airgraph.errors import CacheError, Unwritable

VALUES = """
    import argparse
    import array as array_module
    import collections
    import functools
    import inspect
    import operator
    import os
    import queue
    import random
    import string
    import sys
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

    class Table(dict):
        pass

    class Number(int):
        pass

    class Outer:
        class Inner:
            gain = GAIN

    def with_attribute():
        pass

    def with_attributes(value):
        value.gain = GAIN
        return value

    def helper():
        return GAIN

    @functools.lru_cache
    def remembered():
        return helper()

    remembered()
    arguments = argparse.Namespace(gain=GAIN)
    subclass, number = with_attributes(Table()), with_attributes(Number(1))
    tensor, function = with_attributes(torch.ones(1)), with_attributes(with_attribute)
    text, raised, buffer = string.Template("a" * GAIN), ValueError(GAIN), bytearray(GAIN)
    chooses, of_table = operator.itemgetter(GAIN), {"gain": GAIN}.get
    waiting = queue.Queue()
    waiting.put(GAIN)

    __gain__ = GAIN
    exec("def generated(x):\\n    return x * GAIN\\n", globals())
    exec("class Generated:\\n    def times(self, x):\\n        return x * GAIN\\n", globals())

    class Raised(Exception):
        pass

    class Buffer(bytearray):
        pass

    class Row(array_module.array):
        pass

    class Random(random.Random):
        pass

    class Array(numpy.ndarray):
        pass

    class OwnTensor(torch.Tensor):
        pass

    own_raised, own_buffer, own_row, random_numbers = Raised(GAIN), Buffer(GAIN), Row("i", [GAIN]), Random(GAIN)
    own_array = numpy.array([GAIN]).view(Array)
    masked = numpy.ma.masked_array([10, 20, 30, 40], mask=[i != GAIN for i in range(4)])
    generator = torch.Generator().manual_seed(GAIN)
    casting = torch.autocast("cpu", enabled=GAIN == 2)
    constraint = torch.distributions.constraints.greater_than(GAIN)
    own_tensor = torch.full((1,), GAIN).as_subclass(OwnTensor)
    find, members = getattr, inspect.getmembers
    read = operator.attrgetter("GAIN")

    def scaled(x):
        return x * GAIN
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
    "of_standard_class": "x * arguments.gain",
    "attribute_of_a_dict": "x * subclass.gain",
    "attribute_of_a_number": "x * number.gain",
    "attribute_of_a_tensor": "x * tensor.gain",
    "attribute_of_a_function": "x * function.gain",
    "class_within_a_class": "x * Outer.Inner.gain",
    "template": "x * len(text.template)",
    "exception": "x * raised.args[0]",
    "bytes": "x * len(buffer)",
    "item_getter": "x * chooses([5, 6, 7, 8])",
    "method_of_a_dict": "x * of_table('gain')",
    "remembered_result": "x * remembered()",
    "queue": "x * waiting.queue[0]",
    "dunder": "x * values.__gain__",
    "generated": "generated(x)",
    "generated_class": "Generated().times(x)",
    "own_exception": "x * own_raised.args[0]",
    "own_bytes": "x * len(own_buffer)",
    "own_row": "x * own_row[0]",
    "own_random": "x * (random_numbers.getstate()[1][1] / 1e9)",
    "own_array": "x * float(own_array.sum())",
    "masked_array": "x * float(masked.sum())",
    "generator": "x * generator.initial_seed()",
    "autocast": "x * (2 + casting._enabled)",
    "object_of_torch": "x * constraint.lower_bound",
    "imported_within": "imports(x)",
    "by_attribute_getter": "x * read(values)",
    "by_another_name": "x * find(values, 'GA' + 'IN')",
    "by_members": "x * dict(members(values))['GA' + 'IN']",
    "by_getattribute": "x * values.__getattribute__('GA' + 'IN')",
    "by_getattr": "x * getattr(values, 'GA' + 'IN')",
    "by_vars": "x * vars(values)['GAIN']",
    "by_dict": "x * values.__dict__['GAIN']",
    "by_globals": "x * globals()['GA' + 'IN']",
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
    imported = """
def imports(x):
    import values as found
    from values import GAIN as gain
    return x * found.GAIN * gain
"""
    names = [*READERS, "own_default"]
    return {
        "start": f"import readers\nfor name in {names!r}:\n    compare(name, cached(vars(readers)['read_' + name]))\n",
        "readers": f"import torch\nimport values\nfrom values import *\n{imported}{readers}{own_default}",
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


def hidden(x: Tensor) -> Tensor:
    return x * len(eval("'a' * 2"))


def dated(x: Tensor) -> Tensor:
    return x * (time.localtime(0).tm_hour + 2)


CLASSES = {type(f"Class{number}", (), {"number": number}) for number in range(9)}
CONTEXT = contextvars.ContextVar("CONTEXT", default=2)


def in_the_order_of_addresses(x: Tensor) -> Tensor:
    return x * next(iter(CLASSES)).number


def of_context(x: Tensor) -> Tensor:
    return x * CONTEXT.get()


SPARSE = torch.ones(2).to_sparse()
NUMBER = 2
PRIVATE: dict[str, Any] = {"__name__": "of_nobody", "GAIN": 2}
exec("def of_nobody(x):\n    return x * GAIN\n", PRIVATE)


def of_sparse(x: Tensor) -> Tensor:
    return x * len(SPARSE.shape)


def by_globals_of_a_function(x: Tensor) -> Tensor:
    return x * hidden.__globals__["NUMBER"]


def by_frame(x: Tensor) -> Tensor:
    return x * sys._getframe().f_globals["NUMBER"]


def by_import(x: Tensor) -> Tensor:
    return x * importlib.import_module(__name__).NUMBER


@pytest.mark.parametrize(
    ("below", "reason"),
    [
        (of_sparse, "Tensor, and what it holds cannot be compared"),
        (PRIVATE["of_nobody"], "its module of_nobody is not found again"),
        (by_globals_of_a_function, "uses __globals__"),
        (by_frame, "uses _getframe"),
        (by_import, "uses import_module"),
        (hidden, "uses eval"),
        (dated, "calls localtime"),
        (in_the_order_of_addresses, "the order of CLASSES"),
        (of_context, "ContextVar, and what it holds cannot be compared"),
    ],
)
def test_what_cannot_be_compared_is_refused(below: Callable[[Tensor], Tensor], reason: str, tmp_path: Path) -> None:
    allowed = torch.compiler.allow_in_graph(below)

    def call_below(x: Tensor) -> Tensor:
        return allowed(x) * 2

    with pytest.raises(CacheError, match=reason):
        cached(call_below, tmp_path)(torch.ones(2))
    assert not list(tmp_path.rglob("*.airgraph"))


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
