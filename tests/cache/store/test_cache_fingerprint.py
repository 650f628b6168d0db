"""A graph is used only under what made it: versions, passes, options, and the code of the function."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from process import start_command
from starts import Starts
from torch import Tensor
from torch.fx import GraphModule

import airgraph
from airgraph.cache.format.fingerprint import Fingerprint
from airgraph.cache.store import fingerprint as module
from airgraph.cache.store.fingerprint import fingerprint
from airgraph.cache.store.patches import patches_of_torch
from airgraph.errors import CacheError
from airgraph.options import Options
from airgraph.passes import fingerprint as passes_module

PACKAGE = Path(airgraph.__file__).parent


def double(x: Tensor) -> Tensor:
    return x * 2


def triple(x: Tensor) -> Tensor:
    return x * 3


def of(options: Options | None = None, **given: Any) -> str:
    function = given.pop("function", double)
    return fingerprint(function, options or Options(), **{"dynamic": True, "decompositions": None, **given}).digest


def _a_pass(gm: GraphModule, example_inputs: Any, options: Any) -> None:
    pass


def test_it_is_the_same_for_what_does_not_change_the_graph() -> None:
    assert of() == of() and len(of()) == 32
    pool = airgraph.graph_pool_handle("cpu")
    assert of() == of(Options(use_graph_pool=pool, clone_output=True, capture_limit=3, verify_every=2))


def test_it_changes_with_what_changes_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        of(),
        of(function=triple),
        of(dynamic=False),
        of(dynamic=None),
        of(decompositions={torch.ops.aten.silu.default: double}),
        of(decompositions={torch.ops.aten.silu.default: triple}),
        of(Options(inplace_pass=False)),
        of(Options(input_inplace_pass=False)),
        of(Options(remove_noop_ops=False)),
        of(Options(remove_cat_ops=False)),
        of(Options(pattern_fusion_pass=False)),
        of(Options(post_grad_custom_pre_pass=_a_pass)),
        of(Options(post_grad_custom_post_pass=_a_pass)),
    ]
    undo = airgraph.register_replacement(lambda x: x + 1, lambda x: x + 2, (torch.ones(2),))
    found.append(of())
    undo()
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    found.append(of())
    monkeypatch.undo()
    monkeypatch.setattr(module, "FORMAT", 99)
    found.append(of())
    monkeypatch.undo()
    assert len(set(found)) == len(found)
    assert of() == found[0]


def test_the_sources_of_the_passes_are_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    shutil.copytree(PACKAGE / "passes", tmp_path / "passes")
    with (tmp_path / "passes" / "noop.py").open("a") as file:
        file.write("\n# changed\n")
    monkeypatch.setattr(passes_module, "__file__", str(tmp_path / "passes" / "fingerprint.py"))
    passes_module.own_sources.cache_clear()
    assert of() != before
    monkeypatch.undo()
    passes_module.own_sources.cache_clear()
    assert of() == before


def test_its_parts_say_what_differs() -> None:
    def made(**given: Any) -> Fingerprint:
        options = given.pop("options", Options())
        return fingerprint(given.pop("function", double), options, **{"dynamic": True, "decompositions": None, **given})

    now = made().parts
    assert now["torch"] == torch.__version__ and now["option inplace_pass"] == "True"
    assert made().difference(now) is None
    assert made(dynamic=False).difference(now) == "dynamic False, now True"
    assert made(function=triple).difference(now) == "the function's sources differ, the function's instructions differ"
    assert made(options=Options(inplace_pass=False)).difference(now) == "option inplace_pass False, now True"
    several = made(dynamic=None, decompositions={torch.ops.aten.silu.default: double}).difference(now)
    assert several == "dynamic None, now True, decompositions differ"
    assert Fingerprint({**now, "torch_npu": "2"}).difference(now) == "torch_npu 2, now nothing"
    with pytest.raises(CacheError, match="parts with a name and a text each"):
        Fingerprint.from_data({"torch": 2})


def test_a_start_says_which_part_differs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(2)
    cached(double, tmp_path)(x)
    caplog.set_level("INFO", logger="airgraph.cache")
    cached(double, tmp_path)(x)
    assert "made under" not in caplog.text
    cached(double, tmp_path, options={"inplace_pass": False})(x)
    (line,) = [each for each in caplog.messages if "made under" in each]
    assert line.endswith("is not for this start: made under option inplace_pass True, now False")


# Three starts of a program with the package that is on the path, each forked where torch is imported and airgraph is
# not. Before the last a pass is edited.
THREE_STARTS = """
import json, os, sys
import torch

torch.set_num_threads(1)
torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
torch._dynamo.reset()
assert "airgraph" not in sys.modules

def start():
    import airgraph

    def double(x):
        return x * 2 + 0

    call = airgraph.inference.cache_compile(double, cache_dir=sys.argv[1], strict=True)
    traced = []
    compile = torch.compile
    torch.compile = lambda *args, **kwargs: traced.append(1) or compile(*args, **kwargs)
    assert call(torch.ones(3)).tolist() == [2.0] * 3
    print(json.dumps({"package": airgraph.__file__, "traced": len(traced), "file": str(call.files[0])}), flush=True)

for edit in ("", "", "\\n# changed\\n"):
    with open(sys.argv[2], "a") as file:
        file.write(edit)
    child = os.fork()
    if child == 0:
        start()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def by_methods(x: Tensor) -> Tensor:
    return torch.nn.SiLU()(x).sin()


@pytest.mark.parametrize(("class_", "name"), [(torch.Tensor, "sin"), (torch.nn.SiLU, "forward")])
def test_a_method_of_torch_that_is_replaced_at_a_later_start(
    class_: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(2)
    # Other packages may have left some.
    before = patches_of_torch()
    plain = cached(by_methods, tmp_path)(x)
    with monkeypatch.context() as patched:
        patched.setattr(class_, name, lambda *given: given[-1] * 0 + 55)
        torch._dynamo.reset()
        assert len(patches_of_torch()) == len(before) + 1
        torch.testing.assert_close(cached(by_methods, tmp_path)(x), by_methods(x))
    torch._dynamo.reset()
    torch.testing.assert_close(cached(by_methods, tmp_path)(x), plain)
    assert len(list(tmp_path.rglob("*.airgraph"))) == 2


def by_functions(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (2,)) + torch.square(x)


def test_a_function_of_torch_that_is_replaced_at_a_later_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called by PyTorch's own code only."""
    x, kept = torch.tensor([1.0, 2.0]), torch.layer_norm
    plain = cached(by_functions, tmp_path)(x)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "layer_norm", lambda *given: kept(*given) * 5)
        torch._dynamo.reset()
        torch.testing.assert_close(cached(by_functions, tmp_path)(x), by_functions(x))
        assert not torch.equal(plain, by_functions(x))
    torch._dynamo.reset()
    torch.testing.assert_close(cached(by_functions, tmp_path)(x), plain)
    assert len(list(tmp_path.rglob("*.airgraph"))) == 2


def test_a_composite_operator_that_is_replaced_at_a_later_start(tmp_path: Path) -> None:
    x = torch.tensor([1.0, 2.0])
    plain = cached(by_functions, tmp_path)(x)
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("square", lambda x: x * 55, "CompositeImplicitAutograd", allow_override=True)
        torch._dynamo.reset()
        torch.testing.assert_close(cached(by_functions, tmp_path)(x), by_functions(x))
        assert not torch.equal(plain, by_functions(x))
    torch._dynamo.reset()
    torch.testing.assert_close(cached(by_functions, tmp_path)(x), plain)


def test_a_changed_pass_is_not_served_an_older_graph(tmp_path: Path) -> None:
    """In processes of their own, with a copy of the package in which one pass is edited before the third."""
    program, source = tmp_path / "program.py", tmp_path / "source"
    program.write_text(THREE_STARTS)
    shutil.copytree(PACKAGE, source / "airgraph")
    noop = source / "airgraph" / "passes" / "noop.py"
    done = start_command(str(program), str(tmp_path / "cache"), str(noop), PYTHONPATH=str(source))
    assert done.returncode == 0, done.stderr
    first, again, edited = (json.loads(line) for line in done.stdout.splitlines())
    assert all(Path(each["package"]).is_relative_to(source) for each in (first, again, edited))
    assert (first["traced"], again["traced"]) == (1, 0) and first["file"] == again["file"]
    assert edited["traced"] == 1 and edited["file"] != first["file"]
    assert Path(first["file"]).exists()


# What is typed. Each start is a process of its own, of what was typed by then.
TYPED = """
import os, pathlib, torch, airgraph
torch.set_num_threads(1)
_ = torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
torch._dynamo.reset()
def start():
    if os.fork():
        os.wait()
        return
    call = airgraph.inference.cache_compile(Model().step, cache_dir=os.environ["CACHE"], strict=True)
    got = call(torch.ones(1)).item()
    files = list(pathlib.Path(os.environ["CACHE"]).rglob("*.airgraph"))
    print(got, call.counts().traces, len(files), flush=True)
    os._exit(0)

class Model:
    def step(self, x):
        return helper(x)

def helper(x):
    return x * 2

start()
def helper(x):
    return x * 3

start()
start()
"""


def test_code_that_was_typed_is_compared_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-q", "-i"],
        input=TYPED,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CACHE": str(tmp_path)},
    )
    assert "Error" not in done.stderr, done.stderr
    assert done.stdout.splitlines() == ["2.0 1 1", "3.0 1 1", "3.0 0 1"], done.stderr


HELPED = """
import torch, airgraph, helper

def double(x):
    return helper.scale(x)

call = airgraph.inference.cache_compile(double, cache_dir={cache!r}, strict=True)
traced = []
compile = torch.compile
torch.compile = lambda *args, **kwargs: traced.append(1) or compile(*args, **kwargs)
result = [call(torch.ones(3)).tolist(), len(traced)]
"""


def test_edited_code_is_traced_anew(tmp_path: Path, starts: Starts) -> None:
    """Code that the function calls, in another file, counts as its own does."""
    program, other = tmp_path / "program.py", tmp_path / "helper.py"
    program.write_text(HELPED.format(cache=str(tmp_path / "cache")))
    for helper, expected in (("x * 2", [[2.0] * 3, 1]), ("x * 2", [[2.0] * 3, 0]), ("x * 3", [[3.0] * 3, 1])):
        other.write_text(f"def scale(x):\n    return {helper}\n")
        assert starts.run(program) == expected
