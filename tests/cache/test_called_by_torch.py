"""What callables hold that PyTorch calls while it traces is compared at another start, or refused."""

from __future__ import annotations

from pathlib import Path

from starts import Starts, check_right, outcomes_of, write

MODULE = """
    import enum
    import functools
    import os
    import re

    import torch

    GAIN = int(os.environ["GAIN"])
    names = []


    class Held:
        def __init__(self, gain):
            self.gain = gain

        def times(self, x):
            return x * self.gain

        def __call__(self, x):
            return x * self.gain


    def times(x, gain):
        return x * gain


    def made(held):
        def over(x):
            return x * held.gain

        return over


    def made_of_number(gain):
        def over_number(x):
            return x * gain

        return over_number


    class Member(enum.Enum):
        ONE = 1

        def __init__(self, number):
            self.gain = number * GAIN


    PATTERN = re.compile("a?" * 150 + "b" * GAIN)


    @torch.compiler.allow_in_graph
    def of_member(x):
        return x * Member.ONE.gain


    @torch.compiler.allow_in_graph
    def of_pattern(x):
        return x * len(PATTERN.pattern)


    library = torch.library.Library("airgraph_called", "DEF")


    def add(name, kernel):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, kernel, "CompositeImplicitAutograd")
        operator = getattr(torch.ops.airgraph_called, name)
        globals()[f"call_{name}"] = eval(f"lambda x: torch.ops.airgraph_called.{name}(x) * 2")
        names.append(name)


    def fake(x, size):
        return x.new_empty(x.shape[0] + size)


    add("by_partial", functools.partial(times, gain=GAIN))
    add("by_partial_of_object", functools.partial(lambda x, held: x * held.gain, held=Held(GAIN)))
    add("by_method", Held(GAIN).times)
    add("by_object", Held(GAIN))
    add("by_closure", made(Held(GAIN)))
    add("by_closure_over_number", made_of_number(GAIN))

    method = torch.compiler.allow_in_graph(Held(GAIN).times)
    closure = torch.compiler.allow_in_graph(made(Held(GAIN)))
    """

START = """
    import warnings
    import called

    warnings.simplefilter("ignore")

    def of_member(x):
        return called.of_member(x) * 2

    def of_pattern(x):
        return called.of_pattern(x) * 2

    def by_method(x):
        return called.method(x) * 2

    def by_closure(x):
        return called.closure(x) * 2

    for function in (of_member, of_pattern, by_method, by_closure):
        compare(function.__name__, cached(function))
    """

OPERATORS = """
    import warnings
    import called

    warnings.simplefilter("ignore")

    def through(name):
        operator = getattr(torch.ops.airgraph_called, name)
        def call(x):
            return operator(x) * 2
        return call

    for name in called.names:
        compare(name, cached(through(name), strict=False))
    """


def test_values_that_a_name_leads_to_are_compared(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", {"start": START, "called": MODULE})
    found = [outcomes_of(starts, script, tmp_path / "cache", GAIN=gain) for gain in ("2", "3", "2", "2")]
    for name in found[0]:
        check_right([each[name] for each in found])
        # Still cached.
        assert found[-1][name].traced == 0, name


def test_kernels_that_hold_something_are_right_at_every_start(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", {"start": OPERATORS, "called": MODULE})
    found = [outcomes_of(starts, script, tmp_path / "cache", GAIN=gain) for gain in ("2", "3", "2")]
    for name in found[0]:
        check_right([each[name] for each in found])


PASSES = """
    import warnings
    import torch
    import passes

    warnings.simplefilter("ignore")

    def function(x):
        return x.sin() + 1

    def times(x):
        return x * passes.GAIN + 1

    for name, made in passes.decompositions.items():
        call = cached(function, custom_decompositions={torch.ops.aten.sin.default: made})
        compare(f"decomposition {name}", call, eager=times)

    def added(x):
        return x + 1

    def gained(x):
        return x + passes.GAIN

    for name, made in passes.passes.items():
        call = cached(added, options={"post_grad_custom_post_pass": made})
        compare(f"pass {name}", call, eager=gained)
    """

HELD_BY_PASSES = """
    import functools
    import os

    import torch

    GAIN = int(os.environ["GAIN"])


    class Held:
        def __init__(self, gain):
            self.gain = gain

        def times(self, x):
            return x * self.gain

        def rewrite(self, gm, inputs, options):
            rewrite(gm, inputs, options, self)


    def times(x, held):
        return x * held.gain


    def over(held):
        def decomposed(x):
            return x * held.gain

        def rewritten(gm, inputs, options):
            rewrite(gm, inputs, options, held)

        return decomposed, rewritten


    def rewrite(gm, inputs, options, held):
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
            node.args = (node.args[0], held.gain)


    held = Held(GAIN)
    decompositions = {
        "by partial": functools.partial(times, held=Held(GAIN)),
        "by closure": over(Held(GAIN))[0],
        "by method": Held(GAIN).times,
    }
    passes = {
        "by partial": functools.partial(rewrite, held=Held(GAIN)),
        "by closure": over(Held(GAIN))[1],
        "by method": Held(GAIN).rewrite,
    }
    """


def test_what_decompositions_and_passes_hold_is_compared(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", {"start": PASSES, "passes": HELD_BY_PASSES})
    found = [outcomes_of(starts, script, tmp_path / "cache", GAIN=gain) for gain in ("2", "3", "2")]
    for name in found[0]:
        check_right([each[name] for each in found])
        assert found[-1][name].traced == 0, name


HOOKS = """
    import os
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(5, 5)
    if os.environ["GAIN"] == "3":
        nn.modules.module.register_module_forward_hook(lambda module, given, result: result + 3)
    compare("hooked", cached(model.forward), eager=model.forward)
    compare("called", cached(nn.Sequential(model).forward), eager=nn.Sequential(model).forward)
    """


def test_hooks_of_all_modules_are_compared(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path / "project", {"start": HOOKS})
    found = [outcomes_of(starts, script, tmp_path / "cache", GAIN=gain) for gain in ("2", "3", "2")]
    assert found[0]["called"].eager != found[1]["called"].eager
    for each in found:
        assert {outcome.error for outcome in each.values()} == {""}
