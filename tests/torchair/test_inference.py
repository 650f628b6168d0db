"""`inference.cache_compile` keeps graphs where TorchAir's does by default, and takes its settings from a backend."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import airgraph
from airgraph import torchair
from airgraph.errors import NotOffered, OptionError


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + 1


def _eager() -> torchair.CompilerConfig:
    config = torchair.CompilerConfig()
    config.debug.run_eagerly = True
    return config


@torch.no_grad()
def test_graphs_are_kept_below_the_working_directory(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHAIR_CACHE_HOME", raising=False)
    call = torchair.inference.cache_compile(Model().forward, config=torchair.CompilerConfig())
    x = torch.randn(3, device=device)
    torch.testing.assert_close(call(x), x * 2 + 1)
    (file,) = call.files
    assert file.is_relative_to(tmp_path / ".torchair_cache")
    again = torchair.inference.cache_compile(Model().forward)
    torch.testing.assert_close(again(x), x * 2 + 1)
    assert again.files == [file] and again.counts().traces == 0


@torch.no_grad()
def test_the_environment_and_an_argument_say_where(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path / "home"))
    for folder, cache_dir in ((tmp_path / "home", None), (tmp_path / "given", str(tmp_path / "given"))):
        call = torchair.inference.cache_compile(Model().forward, cache_dir=cache_dir)
        call(torch.ones(2, device=device))
        assert call.files[0].is_relative_to(folder)


@torch.no_grad()
def test_settings_come_from_config_or_backend_or_both_where_they_are_equal(device: str, tmp_path: Path) -> None:
    backend = torchair.get_npu_backend(compiler_config=_eager())
    for given in ({"config": _eager()}, {"backend": backend}, {"config": _eager(), "backend": backend}):
        airgraph.reset()
        torchair.inference.cache_compile(Model().forward, cache_dir=tmp_path, **given)(torch.ones(2, device=device))
        assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 1


def _identity(x: Tensor) -> Tensor:
    return x


def test_contradicting_settings_are_a_value_error() -> None:
    backend = torchair.get_npu_backend(compiler_config=_eager())
    with pytest.raises(ValueError, match="config and the settings of backend differ"):
        torchair.inference.cache_compile(Model().forward, config=torchair.CompilerConfig(), backend=backend)
    with pytest.raises(ValueError, match="custom_decompositions and those of backend differ"):
        torchair.inference.cache_compile(
            Model().forward, backend=backend, custom_decompositions={torch.ops.aten.relu.default: _identity}
        )
    with pytest.raises(ValueError, match="backend: expected one of get_npu_backend, got 'npu'"):
        torchair.inference.cache_compile(Model().forward, backend="npu")  # type: ignore[arg-type]


def test_what_only_the_graph_engine_has_is_refused() -> None:
    with pytest.raises(OptionError, match="ge_cache=True"):
        torchair.inference.cache_compile(Model().forward, ge_cache=True)
    with pytest.raises(NotOffered, match="set_dim_gears is not offered"):
        torchair.inference.set_dim_gears(torch.ones(2), {0: [1, 2]})
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such_name'"):
        torchair.inference.cache_compile(Model().forward, no_such_name=1)  # type: ignore[call-arg]


@torch.no_grad()
@pytest.mark.parametrize("prints", [True, False])
def test_a_readable_cache_is_written_whether_it_is_printed_or_not(
    prints: bool, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = torchair.inference.cache_compile(Model().forward, cache_dir=tmp_path / "cache")
    call(torch.ones(2, device=device))
    written = tmp_path / "made" / "prompt.py"
    text = torchair.inference.readable_cache(call.files[0], print_output=prints, file=str(written))
    assert re.search(r"torch\.ops\.(aten\.mul|airgraph\.row_program)", text) and written.read_text() == f"{text}\n"
    assert capsys.readouterr().out == (f"{text}\n" if prints else "")
    compile(text, str(written), "exec")
