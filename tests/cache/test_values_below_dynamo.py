"""However a value is held that code reads below what Dynamo traces: no guard tells of it, so it is compared itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from starts import Outcome, Starts, check_right, outcomes_of, write

from airgraph.program.held_values import digest_of_value

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


# Of a module that was edited, its text differs too: one in three of them, but in a full sweep.
NAMES = [*READERS, "own_default"]
EDITED = NAMES[::3]


def _project(given: str, names: list[str]) -> dict[str, str]:
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
    return {
        "start": f"import readers\nfor name in {names!r}:\n    compare(name, cached(vars(readers)['read_' + name]))\n",
        "readers": f"import torch\nimport values\nfrom values import *\n{imported}{readers}{own_default}",
        "values": VALUES.replace("GIVEN", given),
    }


def _two_starts_each(starts: Starts, folder: Path, names: list[str], given: dict[str, str]) -> list[dict[str, Outcome]]:
    """Two starts of each of two versions; given: what the constant is in each."""
    found = []
    for gain, text in given.items():
        script = write(folder / "project", _project(text, names))
        found += [outcomes_of(starts, script, folder / "cache", GAIN=gain) for _ in range(2)]
    return found


def _check_compared(name: str, starts: list[dict[str, Outcome]]) -> None:
    first, again, other, other_again = (each[name] for each in starts)
    check_right([first, other, again, other_again])
    assert [each.traced for each in (first, again, other, other_again)] == [1, 0, 1, 0]


@pytest.fixture(scope="module")
def of_environment(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Outcome]]:
    """The module reads the constant from the environment."""
    text = 'int(os.environ["GAIN"])'
    return _two_starts_each(starts, tmp_path_factory.mktemp("below"), NAMES, {"2": text, "3": text})


@pytest.mark.parametrize("name", NAMES)
def test_values_are_compared_however_they_are_held(name: str, of_environment: list[dict[str, Outcome]]) -> None:
    _check_compared(name, of_environment)


@pytest.fixture(scope="module")
def edited(
    request: pytest.FixtureRequest, starts: Starts, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Outcome]]:
    names = NAMES if request.config.getoption("--full-sweep") else EDITED
    return _two_starts_each(starts, tmp_path_factory.mktemp("edited"), names, {"2": "2", "3": "3"})


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.sweep] * (name not in EDITED)) for name in NAMES]
)
def test_values_of_an_edited_module_are_compared(name: str, edited: list[dict[str, Outcome]]) -> None:
    _check_compared(name, edited)


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


def test_sets_of_another_order(starts: Starts, other_starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", SETS)
    found = [outcomes_of(each, script, tmp_path / "cache") for each in (starts, other_starts, other_starts)]
    for name in found[0]:
        check_right([each[name] for each in found])
        assert [each[name].traced for each in found] == [1, 1, 0], name


def test_tensors_are_compared_by_what_is_in_them() -> None:
    held = [torch.zeros(3), torch.ones(3), torch.ones(3, dtype=torch.int32), torch.ones(3, 1)]
    assert len({digest_of_value({"held": each}).text for each in held}) == len(held)
    assert digest_of_value([torch.ones(3)]) == digest_of_value([torch.ones(3)])
