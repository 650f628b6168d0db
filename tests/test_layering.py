"""What import-linter cannot see of the layers; the rest is in pyproject.toml."""

import ast
from pathlib import Path

import airgraph

_PACKAGE = Path(airgraph.__file__).parent
# Of Ascend: its device, its private names, and the program's own torch_npu where there is none.
_TORCH_NPU = {"runtime/npu.py", "torch_internals/allocators.py"}


def test_every_folder_is_a_package() -> None:
    # Others are passed over where imports are checked.
    folders = {path.parent for path in _PACKAGE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_torch_npu_is_imported_for_its_device_only() -> None:
    found = set()
    for path in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] == "torch_npu" for name in names):
                found.add(str(path.relative_to(_PACKAGE)))
    assert found <= _TORCH_NPU
