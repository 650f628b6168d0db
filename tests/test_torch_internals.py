"""PyTorch's own names are used in one place only, each of them is listed there, and this torch has them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import airgraph
from airgraph.torch_internals import probes
from airgraph.torch_internals.probes import INTERNALS, Internal, is_there

_PACKAGE = Path(airgraph.__file__).parent
_SEAM = _PACKAGE / "torch_internals"
# Not private by their name, but as free to change.
_UNSTABLE = ("torch.fx.experimental.", "torch.multiprocessing.reductions.", "torch._dynamo.", "torch.utils._")
# An operator's type and schema, which hardly change, and operators that are named so.
_ALLOWED = ("torch._ops.", "torch.ops.", "_aten.")
_ALLOWED_ATTRIBUTES = {"_schema", "_overloadname"}
# Names as text, but for those that an operator has too, which is named so.
_LISTED = {
    name for each in INTERNALS for name in each.names if name.startswith("_") and not hasattr(torch.ops.aten, name)
}
# Of Python's own, and of this package.
_OTHERS = {
    "_value_", "_data", "_fields", "_Environ", "_getframe", "_current_frames", "_get_dump", "_owner", "_renew",
    "_let_go",
}  # fmt: skip


def _private(path: Path) -> Iterator[str]:
    """Names of PyTorch's that are private or unstable, as a file has them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            found = [f"{each.name}." for each in node.names]
        elif isinstance(node, ast.Attribute):
            found = [_dotted(node)]
        elif isinstance(node, ast.Constant) and node.value in _LISTED:
            # As getattr takes it.
            found = [f"?.{node.value}"]
        else:
            continue
        yield from (name for name in found if _is_private(name))


def _dotted(node: ast.Attribute) -> str:
    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super":
        return f"self.{node.attr}"
    owner = value.id if isinstance(value, ast.Name) else _dotted(value) if isinstance(value, ast.Attribute) else "?"
    return f"{owner}.{node.attr}"


def _is_private(name: str) -> bool:
    if f"{name}.".startswith(("self.", "cls.", *_ALLOWED)) or name.rpartition(".")[2] in _ALLOWED_ATTRIBUTES:
        return False
    parts = name.split(".")
    private = [each for each in parts if each.startswith("_") and not each.startswith("__")]
    if parts[0] not in ("torch", "torch_npu"):
        return parts[-1] in private and parts[-1] not in _OTHERS and not name.startswith("airgraph")
    return bool(private) or name.startswith(_UNSTABLE)


# In C++, what is promised to nobody: kernels called without the dispatcher, tensors and storages made by hand, what
# PyTorch calls an implementation or a detail, and what CPython keeps to itself.
_OWN_IN_CPP = re.compile(
    r"at::native\b|ATen/native/|\b(c10|at|torch|autograd)::(impl|detail|internal)\b|c10/core/impl/|unsafeGet|make_tensor<|sizeof\((at|c10)::"
    r"|ma_version_tag|PyDict_Watch|_PyObject_GetDict|tp_version_tag|_PyType_Lookup|tp_getattro|c_profile(obj|func)"
    r"|StorageImpl\b|ForwardADLevel|\b_fw_grad\b|weak_intrusive_ptr"
)


def test_nothing_else_uses_what_cpp_does_not_promise() -> None:
    sources = _PACKAGE.parents[1] / "csrc"
    if not sources.is_dir():
        pytest.skip("not a checkout")
    used = {
        f"{path.relative_to(sources)}:{number}: {line.strip()}"
        for path in [*sources.rglob("*.cpp"), *sources.rglob("*.h")]
        if path.parent.name != "internals"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _OWN_IN_CPP.search(line)
    }
    assert used == set()


def test_nothing_else_uses_pytorchs_own_names() -> None:
    used = {
        f"{path.relative_to(_PACKAGE)}: {name}"
        for path in _PACKAGE.rglob("*.py")
        if _SEAM not in path.parents
        for name in _private(path)
    }
    assert used == set()


# Members of what Dynamo, AOTAutograd and symbolic shapes hand out, which have no private names.
_MEMBERS = re.compile(
    r"\.node\.(_?expr|hint|shape_env)\b|\bshape_env\.(guards|replace|var_to|tracked|backed)|\.(output|tx)\.side_effects\b|\btx\.stack\b"
    r"|\.(tensor_hooks|save_for_backward|store_attr_mutations|input_info|output_info|fw_metadata|tracked_fakes)\b"
    r"|\.(python_type|python_type_name|is_tensor|is_python_constant|as_proxy|realize)\(\)|\bvariable\.(source|value)\b"
    r"|\.(orig_guard|create_fn|originating_source)\b|\.(lower|upper)\b(?!\()"
)


def test_nothing_else_uses_members_of_what_tracing_hands_out() -> None:
    used = {
        f"{path.relative_to(_PACKAGE)}:{number}: {line.strip()}"
        for path in _PACKAGE.rglob("*.py")
        if _SEAM not in path.parents
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _MEMBERS.search(line)
    }
    assert used == set()


# What Dynamo writes as text, keys of its nodes, modules of PyTorch's own, and a release that is compared with.
_TEXTS = re.compile(
    r"__builtins_dict|__compiled_fn|__resume_at|^___|__import_(?!_)|^_dynamo|_torchdynamo|list\(dict\.keys\(|^grapharg$"
    r"|^torch(_npu)?\.(\w+\.)*_[a-zA-Z]"
)
# Another's texts: the logger of a module.
_OTHERS_TEXTS = {"cli/demo/models.py: torch.utils._pytree"}


def test_nothing_else_has_texts_of_dynamos() -> None:
    used = {
        f"{path.relative_to(_PACKAGE)}: {text}"
        for path in _PACKAGE.rglob("*.py")
        if _SEAM not in path.parents
        for text in _texts(path)
        if _TEXTS.search(text)
    }
    assert used == _OTHERS_TEXTS


def _texts(path: Path) -> Iterator[str]:
    """All but docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    stand_alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in stand_alone:
            yield node.value


# Where the release is shown, or tells files apart that were made with different ones.
_SHOW_THE_RELEASE = {
    "cache/store/fingerprint.py", "cli/doctor.py", "runtime/cpu/product_times.py", "runtime/engine/loading.py",
    "standin/package.py",
}  # fmt: skip
_RELEASE = re.compile(r"\btorch\.(__version__|torch_version|version\.__version__)|\b[Bb]efore torch \d")


def test_nothing_else_goes_by_the_release() -> None:
    used = {
        str(path.relative_to(_PACKAGE))
        for path in _PACKAGE.rglob("*.py")
        if _SEAM not in path.parents and _RELEASE.search(path.read_text())
    }
    assert used == _SHOW_THE_RELEASE


def test_each_name_is_listed() -> None:
    listed = {name for each in INTERNALS for name in each.names}
    places = [each.place for each in INTERNALS]
    used = {name.rstrip(".") for path in _SEAM.glob("*.py") if path.stem != "probes" for name in _private(path)}
    for name in used:
        is_place = any(place == name or place.startswith(f"{name}.") for place in places)
        assert is_place or listed & set(name.split(".")), name


def test_each_says_what_it_is_for_and_when_it_can_go() -> None:
    assert not [each for each in INTERNALS if not (each.used_for and each.until and each.seen_in and each.names)]


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda each: f"{each.place}: {each.names[0]}")
def test_this_torch_has_them(internal: Internal) -> None:
    there = is_there(internal)
    if there is None:
        pytest.skip(f"this torch is without {internal.part_of}")
    assert there


def test_one_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from airgraph.cli import doctor

    gone = Internal("torch._C", ("_there_never_was",), "nothing", "")
    for each in (gone, Internal("torch.nowhere", ("x",), "", ""), Internal("torch._C.nowhere", ("x",), "", "")):
        assert is_there(each) is False
    assert is_there(Internal("no_such_package", ("x",), "", "", part_of="no_such_package")) is None
    monkeypatch.setattr(doctor, "INTERNALS", (*INTERNALS, gone))
    check = {each.name: each for each in doctor.run_checks()}["PyTorch's internals"]
    assert check.verdict is doctor.Verdict.WARNING
    assert "_there_never_was" in check.found and "nothing" in check.found
    assert probes.INTERNALS is INTERNALS
