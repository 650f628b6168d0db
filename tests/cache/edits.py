"""Edits of two modules between starts of a program, and the program that calls a cached function of each."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """Two modules of a package: in `edited` the word EDITED is one version, then the other; `kept` stays as it is, and
    has `function`, its `others` arguments, `given` for cache_compile, and `eager` where that is not the function."""

    edited: str
    kept: str
    versions: tuple[str, str]


# Neither is ever edited.
BASE = """
import torch


class Base(torch.nn.Module):
    def part(self, x):
        return x + 1

    def decode(self, x):
        return self.part(x) * 2


class Steps:
    def part(self, x):
        return x + 1
"""


OVERRIDE = ("pass", "def part(self, x): return x - 1")


OPERATOR = ("x.relu()", "x.sigmoid()")


NUMBER = ("2", "3")


EDITS = {
    "subclass": Edit(
        "from base import Base\nclass Own(Base):\n    EDITED",
        "from .edited import Own\nfunction = Own().decode",
        OVERRIDE,
    ),
    "class_of_submodule": Edit(
        "from base import Base\nclass Layer(Base):\n    EDITED",
        """
        import torch
        from .edited import Layer

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def decode(self, x):
                return self.layer.part(x) * 2

        function = Model().decode
        """,
        OVERRIDE,
    ),
    "class_of_argument": Edit(
        "from base import Steps\nclass OwnSteps(Steps):\n    EDITED",
        """
        from .edited import OwnSteps
        others = [OwnSteps()]
        def function(x, steps):
            return steps.part(x) * 2
        """,
        OVERRIDE,
    ),
    "member": Edit(
        "import enum\nclass Mode(enum.IntEnum):\n    ADD = EDITED",
        """
        from .edited import Mode
        def function(x):
            return x * Mode.ADD + Mode.ADD.value
        """,
        NUMBER,
    ),
    "member_as_argument": Edit(
        "import enum\nclass Mode(enum.IntEnum):\n    ADD = EDITED",
        """
        from .edited import Mode
        others = [Mode.ADD]
        def function(x, mode):
            return x * mode
        """,
        NUMBER,
    ),
    "default_of_field": Edit(
        "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    gain: int = EDITED",
        """
        from .edited import Config
        def function(x):
            return x * Config().gain
        """,
        NUMBER,
    ),
    "default_of_argument": Edit(
        "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    gain: int = EDITED",
        """
        from .edited import Config
        others = [Config()]
        def function(x, config):
            return x * config.gain
        """,
        NUMBER,
    ),
    "allow_in_graph": Edit(
        "def inner(x):\n    return EDITED",
        """
        import torch
        from .edited import inner
        @torch.compiler.allow_in_graph
        def opaque(x):
            return inner(x)
        def function(x):
            return opaque(x) * 2
        """,
        OPERATOR,
    ),
    "composite": Edit(
        """
        import torch
        library = torch.library.Library("second_starts", "DEF")
        library.define("act(Tensor x) -> Tensor")
        def act(x):
            return EDITED
        library.impl("act", act, "CompositeImplicitAutograd")
        """,
        """
        import torch
        from . import edited
        act = torch.ops.second_starts.act.default
        def function(x):
            return act(x) * 2
        """,
        OPERATOR,
    ),
    "composite_by_name": Edit(
        """
        import torch
        library = torch.library.Library("second_starts_by_name", "DEF")
        library.define("act(Tensor x) -> Tensor")
        def act(x):
            return EDITED
        library.impl("act", act, "CompositeImplicitAutograd")
        """,
        """
        import torch
        from . import edited
        def function(x):
            return torch.ops.second_starts_by_name.act(x) * 2
        """,
        OPERATOR,
    ),
    "assume_constant_result": Edit(
        "import torch\n@torch._dynamo.assume_constant_result\ndef width():\n    return EDITED",
        """
        from .edited import width
        given = {"strict": False}
        def function(x):
            return x * width()
        """,
        NUMBER,
    ),
    "decomposition": Edit(
        "def inner(x):\n    return EDITED",
        """
        import torch
        from .edited import inner
        def decomposed(x):
            return inner(x)
        given = {"custom_decompositions": {torch.ops.aten.erf.default: decomposed}}
        def function(x):
            return x.erf() * 2
        def eager(x):
            return decomposed(x) * 2
        """,
        OPERATOR,
    ),
    "pass": Edit(
        "import torch\ndef chosen():\n    return torch.ops.aten.EDITED.default",
        """
        import torch
        from .edited import chosen
        def replace_erf(gm, example_inputs, options):
            for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.erf.default):
                node.target = chosen()
        given = {"options": {"post_grad_custom_pre_pass": replace_erf}}
        def function(x):
            return x.erf() * 2
        def eager(x):
            return chosen()(x) * 2
        """,
        ("relu", "sigmoid"),
    ),
    "imported_within": Edit(
        "def helper(x):\n    return x * EDITED",
        """
        def function(x):
            from .edited import helper
            return helper(x) * 2
        """,
        NUMBER,
    ),
    "constant_of_helper": Edit(
        "SCALE = EDITED\ndef helper(x):\n    return x * SCALE",
        """
        from .edited import helper
        def function(x):
            return helper(x) * 2
        """,
        NUMBER,
    ),
    "constant_of_allow_in_graph": Edit(
        "SCALE = EDITED",
        """
        import torch
        from .edited import SCALE
        @torch.compiler.allow_in_graph
        def opaque(x):
            return x * SCALE
        def function(x):
            return opaque(x) * 2
        """,
        NUMBER,
    ),
    "constant_of_composite": Edit(
        "SCALE = EDITED",
        """
        import torch
        from .edited import SCALE
        library = torch.library.Library("second_starts_constant", "DEF")
        library.define("act(Tensor x) -> Tensor")
        library.impl("act", lambda x: x * SCALE, "CompositeImplicitAutograd")
        act = torch.ops.second_starts_constant.act.default
        def function(x):
            return act(x) * 2
        """,
        NUMBER,
    ),
    "constant_of_decomposition": Edit(
        "SCALE = EDITED",
        """
        import torch
        from .edited import SCALE
        def decomposed(x):
            return x * SCALE
        given = {"custom_decompositions": {torch.ops.aten.erf.default: decomposed}}
        def function(x):
            return x.erf() * 2
        def eager(x):
            return decomposed(x) * 2
        """,
        NUMBER,
    ),
    "constant_of_pass": Edit(
        "CHOSEN = 'EDITED'",
        """
        import torch
        from .edited import CHOSEN
        def replace_erf(gm, example_inputs, options):
            for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.erf.default):
                node.target = getattr(torch.ops.aten, CHOSEN).default
        given = {"options": {"post_grad_custom_pre_pass": replace_erf}}
        def function(x):
            return x.erf() * 2
        def eager(x):
            return getattr(x, CHOSEN)() * 2
        """,
        ("relu", "sigmoid"),
    ),
    "fake_kernel": Edit(
        """
        import torch
        @torch.library.custom_op("second_starts_fake::repeated", mutates_args=())
        def repeated(x: torch.Tensor) -> torch.Tensor:
            return x.repeat(EDITED)
        @repeated.register_fake
        def fake(x):
            return x.new_empty(x.shape[0] * EDITED)
        """,
        """
        from .edited import repeated
        def function(x):
            y = repeated(x)
            return y * y.shape[0]
        """,
        NUMBER,
    ),
    "decorator": Edit(
        """
        import functools
        def doubled(inner):
            @functools.wraps(inner)
            def outer(x):
                return inner(x) * EDITED
            return outer
        """,
        """
        from .edited import doubled
        @doubled
        def function(x):
            return x + 1
        """,
        NUMBER,
    ),
    "decorator_of_method": Edit(
        """
        import functools
        def doubled(inner):
            @functools.wraps(inner)
            def outer(self, *args):
                return inner(self, *args) * EDITED
            return outer
        """,
        """
        import torch
        from .edited import doubled
        class Model(torch.nn.Module):
            @doubled
            def decode(self, x):
                return x + 1
        function = Model().decode
        """,
        NUMBER,
    ),
    "text_that_is_executed": Edit(
        "TEXT = 'def inner(x): return x * EDITED'",
        """
        from .edited import TEXT
        exec(TEXT)
        def function(x):
            return inner(x) + 1
        """,
        NUMBER,
    ),
    "text_of_the_function": Edit(
        "TEXT = 'def function(x): return x * EDITED'",
        "from .edited import TEXT\nexec(TEXT)",
        NUMBER,
    ),
    "metaclass": Edit(
        "class Meta(type):\n    gain = EDITED",
        """
        from .edited import Meta
        class Config(metaclass=Meta):
            pass
        def function(x):
            return x * Config.gain
        """,
        NUMBER,
    ),
    # The last: it is registered for the rest of the start.
    "constant_of_replacement": Edit(
        "SCALE = EDITED",
        """
        import torch
        import airgraph
        from .edited import SCALE
        def pattern(x):
            return x.erf() * 7
        def replacement(x):
            return x * SCALE
        airgraph.register_replacement(pattern, replacement, (torch.ones(4),))
        def function(x):
            return x.erf() * 7 + 1
        def eager(x):
            return replacement(x) + 1
        """,
        NUMBER,
    ),
}


START = f"""
import importlib
import warnings

for name in {list(EDITS)}:
    held = vars(importlib.import_module(f"{{name}}.kept"))
    call = cached(held["function"], **held.get("given", {{}}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(name, call, *held.get("others", []), eager=held.get("eager"))
"""
