"""Objects that are one at a second start, and what objects and modules have there that they lacked at the first."""

from __future__ import annotations

from pathlib import Path

from starts import Starts, check_right, outcomes_of, write

ONE_OBJECT = """
    import airgraph

    class Part:
        def __init__(self):
            self.t, self.l = torch.ones(5), [torch.ones(5)]

    def written(x, p, q):
        p.t = x * 5
        return q.t * 2

    def compared(x, p, q):
        return x * 2 if p is q else x * 3

    def inner(x, p, q):
        return x * 2 if p.l is q.l else x * 3

    def among(x, p, q):
        return x * 2 if any(p is each for each in q) else x * 3

    def lists(x, p, q):
        return x * 2 if p is q else x * 3

    class Holder:
        def __init__(self, part):
            self.part = part

        def method(self, x, p, q):
            return x * 2 if p is self.part else x * 3

    a, b, one, two = Part(), Part(), [1], [1]
    OTHER
    compare("written", cached(written), a, b)
    compare("compared", cached(compared), a, b)
    compare("inner", cached(inner), a, b)
    compare("among", cached(among), a, [b])
    compare("lists", cached(lists), one, two)
    compare("method", cached(Holder(b).method), a, b)
"""


def test_arguments_that_become_one_object(starts: Starts, tmp_path: Path) -> None:
    found = []
    for other in ("", "", "b, two = a, one", "b, two = a, one"):
        script = write(tmp_path / "project", {"start": ONE_OBJECT.replace("OTHER", other)})
        found.append(outcomes_of(starts, script, tmp_path / "cache"))
    for name in found[0]:
        assert [each[name].error for each in found] == [""] * 4, name
        assert [each[name].traced for each in found] == [1, 0, 1, 0], name


LACKING = """
    import contextlib
    from types import SimpleNamespace

    import config

    class Part:
        b = 3

    def attribute(x, p):
        try:
            return x * p.a
        except AttributeError:
            return x * 9

    def suppressed(x, p):
        by = 9
        with contextlib.suppress(AttributeError):
            by = p.a
        return x * by

    def key(x, d):
        try:
            return x * d["a"]
        except KeyError:
            return x * 9

    def in_dict(x, p):
        return x * 2 if "a" in p.__dict__ else x * 9

    def counted(x, p):
        return x * (len(vars(p)) + 2)

    def of_module(x, p):
        return x * getattr(config, "a", 9)

    def module_has(x, p):
        return x * 2 if hasattr(config, "a") else x * 9

    part, space, table = Part(), SimpleNamespace(b=1), {"b": 1}
    OTHER
    for name in ("attribute", "suppressed", "in_dict", "counted", "of_module", "module_has"):
        compare(name, cached(globals()[name]), part)
        compare(f"{name} of a namespace", cached(globals()[name]), space)
    compare("key", cached(key), table)
"""


def test_what_objects_and_modules_gain(starts: Starts, tmp_path: Path) -> None:
    found = []
    for other in ("", "", "part.a = space.a = table['a'] = 5", "part.a = space.a = table['a'] = 5"):
        files = {"start": LACKING.replace("OTHER", other), "config": "b = 1\n" + ("a = 5\n" if other else "")}
        found.append(outcomes_of(starts, write(tmp_path / "project", files), tmp_path / "cache"))
    for name in found[0]:
        check_right([found[0][name], found[2][name]])
        check_right([found[1][name], found[3][name]])
        assert (found[1][name].traced, found[3][name].traced) == (0, 0), name
