"""A graph that one start has cached is right at the next, whatever was edited, set or loaded otherwise in between."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from starts import Outcome, Starts, check_right, outcomes_of, write

NUMBER = ("2", "3")
SCRIPT = """
def scale(x):
    return EDITED


def decode(x):
    return scale(x) * 2


class Decoder:
    def __init__(self):
        self.held = lambda x: EDITED

    def helper(self, x):
        return EDITED

    def decode(self, x):
        return self.helper(x) * 2

    def decode_by_held(self, x):
        return self.held(x) * 2


compare("function", cached(decode))
compare("method", cached(Decoder().decode))
compare("attribute", cached(Decoder().decode_by_held))
"""


def test_scripts_that_share_a_cache(starts: Starts, tmp_path: Path) -> None:
    scripts = [
        write(tmp_path / name, {"start": SCRIPT.replace("EDITED", version)})
        for name, version in (("first", "x + 1"), ("second", "x - 1"))
    ]
    found = [outcomes_of(starts, script, tmp_path / "cache") for script in (*scripts, *reversed(scripts))]
    for name in found[0]:
        check_right([each[name] for each in found])
    assert [each.traced for each in found[2].values()] == [0, 0, 0]


def test_checkouts_that_share_a_cache(starts: Starts, tmp_path: Path) -> None:
    files = {
        "start": """
            import model

            compare("global", cached(model.decode))
            compare("method", cached(model.Model().decode))
            compare("imported within", cached(model.decode_late))
            """,
        "model": """
            import torch
            from helpers import Layer, helper

            def decode(x):
                return helper(x) * 2

            def decode_late(x):
                from late import helper
                return helper(x) * 2

            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = Layer()

                def decode(self, x):
                    return self.layer(x) * 2
            """,
    }
    scripts = []
    for name, version in (("first", "x + 1"), ("second", "x - 1")):
        helper = f"def helper(x):\n    return {version}\n"
        layer = f"import torch\nclass Layer(torch.nn.Module):\n    def forward(self, x):\n        return {version}\n"
        scripts.append(write(tmp_path / name, {**files, "helpers": helper + layer, "late": helper}))
    found = [outcomes_of(starts, script, tmp_path / "cache") for script in (*scripts, *reversed(scripts))]
    for name in found[0]:
        check_right([each[name] for each in found])
    assert [found[2][name].traced for name in ("global", "method")] == [0, 0]


READERS = {
    "start": """
        import os
        import readers

        names = ("in_function", "in_helper", "in_allow_in_graph", "in_composite", "at_import", "at_import_allowed")
        held = {name: cached(getattr(readers, name)) for name in names}
        for name, call in held.items():
            compare(name, call)
        os.environ["GAIN"] = "5"
        for name, call in held.items():
            compare(f"{name} set", call)
        del os.environ["GAIN"]
        for name, call in held.items():
            compare(f"{name} deleted", call)
        """,
    "readers": """
        import os
        import torch
        from helpers import GAIN, by_environment

        @torch.compiler.allow_in_graph
        def opaque(x):
            return by_environment(x)

        @torch.compiler.allow_in_graph
        def opaque_of_import(x):
            return x * GAIN

        library = torch.library.Library("second_starts_environment", "DEF")
        library.define("act(Tensor x) -> Tensor")
        library.impl("act", by_environment, "CompositeImplicitAutograd")
        act = torch.ops.second_starts_environment.act.default

        def in_function(x):
            return x * int(os.getenv("GAIN", "4"))

        def in_helper(x):
            return by_environment(x) * 2

        def in_allow_in_graph(x):
            return opaque(x) * 2

        def in_composite(x):
            return act(x) * 2

        def at_import(x):
            return x * GAIN

        def at_import_allowed(x):
            return opaque_of_import(x) * 2
        """,
    "helpers": """
        import os

        GAIN = int(os.getenv("GAIN", "4"))

        def by_environment(x):
            return x * int(os.getenv("GAIN", "4"))
        """,
}


@pytest.fixture(scope="module")
def in_environments(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Outcome]]:
    """Outcomes of a start with GAIN=2 and of one with GAIN=3; both then set it to 5, and delete it."""
    folder = tmp_path_factory.mktemp("environment")
    script = write(folder / "project", READERS)
    return [outcomes_of(starts, script, folder / "cache", GAIN=gain) for gain in NUMBER]


@pytest.mark.parametrize("name", ["in_function", "in_helper", "in_allow_in_graph", "in_composite"])
def test_the_environment_is_looked_up(name: str, in_environments: list[dict[str, Outcome]]) -> None:
    first, second = ([each[f"{name}{when}"] for when in ("", " set", " deleted")] for each in in_environments)
    check_right([first[0], second[0]])
    for start in (first, second):
        check_right(start)
        assert start[1].eager != start[2].eager
    assert [each.traced for each in first] == [1, 1, 1]
    assert [each.traced for each in second] == [1, 0, 0]


@pytest.mark.parametrize("name", ["at_import", "at_import_allowed"])
def test_a_global_that_was_looked_up_at_import(name: str, in_environments: list[dict[str, Outcome]]) -> None:
    check_right([each[name] for each in in_environments])


HIDDEN = {
    "start": """
        import os
        import helpers

        if os.environ["HIDES"] == "own":
            abs = torch.neg
        elif os.environ["HIDES"] == "helpers":
            helpers.abs = torch.neg


        def in_function(x):
            return abs(x) + 1


        def in_helper(x):
            return helpers.larger(x) * 2


        held = {"in_function": cached(in_function), "in_helper": cached(in_helper)}
        for name, call in held.items():
            compare(name, call)
        helpers.abs = abs = torch.exp
        for name, call in held.items():
            compare(f"{name} later", call)
        """,
    "helpers": """
        def larger(x):
            return abs(x)
        """,
}


def test_a_module_that_hides_a_function_of_pythons_at_one_start(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", HIDDEN)
    plain, again, own, helpers = (
        outcomes_of(starts, script, tmp_path / "cache", HIDES=hides) for hides in ("", "", "own", "helpers")
    )
    assert [each.traced for each in again.values()] == [0, 0, 0, 0]
    check_right([each["in_function"] for each in (plain, own, again, helpers)])
    check_right([each["in_helper"] for each in (plain, helpers, again, own)])
    for each in (plain, again, own, helpers):
        check_right([each["in_function"], each["in_function later"]])
        check_right([each["in_helper"], each["in_helper later"]])


SETS = {
    "start": """
        import sets

        model = sets.Model()
        for name in ("literal", "of_global", "default", "hash_of_text", "in_allow_in_graph", "in_composite"):
            compare(name, cached(getattr(sets, name)))
        compare("attribute", cached(model.decode))
        compare("argument", cached(sets.of_argument), sets.WORDS)
        compare("in_decomposition", cached(sets.erf, custom_decompositions=sets.table), eager=sets.literal)
        """,
    "sets": """
        import torch

        WORDS = {"a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg"}

        def of_argument(x, words):
            for word in words:
                x = x * 3 + len(word)
            return x

        def literal(x):
            for word in {"a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg"}:
                x = x * 3 + len(word)
            return x

        def of_global(x):
            return of_argument(x, WORDS)

        def default(x, words=frozenset(WORDS)):
            return of_argument(x, words)

        def hash_of_text(x):
            return x * (hash("airgraph") % 1000)

        @torch.compiler.allow_in_graph
        def opaque(x):
            return literal(x)

        def in_allow_in_graph(x):
            return opaque(x) * 2

        library = torch.library.Library("second_starts_sets", "DEF")
        library.define("act(Tensor x) -> Tensor")
        library.impl("act", literal, "CompositeImplicitAutograd")
        act = torch.ops.second_starts_sets.act.default

        def in_composite(x):
            return act(x) * 2

        def erf(x):
            return x.erf()

        table = {torch.ops.aten.erf.default: literal}

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words = set(WORDS)

            def decode(self, x):
                return of_argument(x, self.words)
        """,
}


@pytest.fixture(scope="module")
def with_seeds(
    starts: Starts, other_starts: Starts, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Outcome]]:
    """Outcomes of a start under one seed of hashes, of two under another, and of one more under the first."""
    folder = tmp_path_factory.mktemp("seeds")
    script = write(folder / "project", SETS)
    order = (starts, other_starts, other_starts, starts)
    return [outcomes_of(each, script, folder / "cache") for each in order]


@pytest.mark.parametrize(
    "name",
    [
        *("literal", "of_global", "default", "attribute", "argument"),
        *("hash_of_text", "in_allow_in_graph", "in_composite", "in_decomposition"),
    ],
)
def test_another_seed_of_hashes(name: str, with_seeds: list[dict[str, Outcome]]) -> None:
    found = [each[name] for each in with_seeds]
    check_right(found)
    assert found[2].traced == 0


LOADED = """
import importlib.util
import os
from pathlib import Path

spec = importlib.util.spec_from_file_location("second_starts_plugin", Path(__file__).with_name("plugin.py"))
plugin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plugin)


def allowed(x):
    return plugin.opaque(x) + 1


compare("function", cached(plugin.decode))
compare("method", cached(plugin.Model().decode))
compare("allow_in_graph", cached(allowed))
"""
PLUGIN = """
import torch


def helper(x):
    return x * EDITED


@torch.compiler.allow_in_graph
def opaque(x):
    return helper(x)


def decode(x):
    return helper(x) + 1


class Model(torch.nn.Module):
    def part(self, x):
        return helper(x)

    def decode(self, x):
        return self.part(x) + 1
"""


def test_a_module_that_is_not_in_sys_modules(starts: Starts, tmp_path: Path) -> None:
    found, counts = [], []
    for version in ("2", "3", "3", "3", "2"):
        script = write(tmp_path / "project", {"start": LOADED, "plugin": PLUGIN.replace("EDITED", version)})
        found.append(outcomes_of(starts, script, tmp_path / "cache"))
        counts.append(len(list((tmp_path / "cache").rglob("*.airgraph"))))
    for name in found[0]:
        outcomes = [each[name] for each in found]
        if name == "allow_in_graph":
            # Another start could not find the code that ran, so this one is not cached.
            assert all("is not among sys.modules" in each.error for each in outcomes)
        else:
            check_right(outcomes)
            assert [each.traced for each in outcomes] == [1, 1, 0, 0, 1], name
    assert counts == [2] * 5


@pytest.mark.parametrize("name", ["function", "method"])
def test_checkouts_of_a_module_that_is_not_in_sys_modules(name: str, starts: Starts, tmp_path: Path) -> None:
    found = []
    for version in NUMBER:
        script = write(tmp_path / version, {"start": LOADED, "plugin": PLUGIN.replace("EDITED", version)})
        found.append(outcomes_of(starts, script, tmp_path / "cache")[name])
    check_right(found)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="enum.StrEnum is new in Python 3.11")
def test_members_of_a_str_enum(starts: Starts, tmp_path: Path) -> None:
    script = """
        import enum

        class Text(enum.StrEnum):
            A = "a"
            B = "b"

        def by_text(x, text):
            if text is Text.A:
                return x * 2
            return x * 3 if text == "a" else x * 5

        call = cached(by_text)
        for name, text in {"A": Text.A, "B": Text.B, "a": "a", "B again": Text.B}.items():
            compare(name, call, text)
        """
    first, second = (outcomes_of(starts, write(tmp_path, {"start": script}), tmp_path / "cache") for _ in range(2))
    for each in (first, second):
        check_right(list(each.values()))
    assert [each.traced for each in first.values()] == [1, 1, 1, 0]
    assert [each.traced for each in second.values()] == [0, 0, 0, 0]


def test_infinite_numbers_and_closures_under_autocast(starts: Starts, tmp_path: Path) -> None:
    script = """
        def times(x, factor):
            return x * factor

        call = cached(times)
        compare("infinite", call, complex(float("inf"), 1.0))
        compare("finite", call, complex(1.0, 1.0))
        compare("not a number", call, complex(float("nan"), 1.0))

        def make(factor):
            @torch.autocast("cpu", dtype=torch.bfloat16)
            def closure(x, weight):
                return weight @ x * factor
            return closure

        weight = torch.arange(25.0).reshape(5, 5) / 7
        compare("closure", cached(make(2)), weight)
        compare("other closure", cached(make(3)), weight)
        inner = make(2)
        compare("called closure", cached(lambda x, weight: inner(x, weight) + 1), weight)
        """
    found = [outcomes_of(starts, write(tmp_path, {"start": script}), tmp_path / "cache") for _ in range(2)]
    for each, traced in zip(found, (1, 0), strict=True):
        check_right(list(each.values()))
        assert [outcome.traced for outcome in each.values()] == [traced] * 6
        assert "bfloat16" in each["closure"].eager
