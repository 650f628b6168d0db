"""`airgraph run`: runs a program that was written for torch_npu and TorchAir, on what is here."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from airgraph.cli.devices import DEVICES, check_device
from airgraph.cli.failure import UsageProblem
from airgraph.cli.script import run_script

__all__ = ["command"]


def command(
    script: Annotated[str, typer.Argument(help="A Python file, or with -m a module's name.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own.", show_default=False)
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module's name, as after `python -m`.")] = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="What serves npu: cpu, cuda, or npu itself; without it npu where torch_npu is, else cpu."
        ),
    ] = None,
    upstream: Annotated[
        bool, typer.Option("--upstream", help="`import torchair` gives TorchAir itself, which torch_npu brings along.")
    ] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Run the real torch_npu on the simulated Ascend runtime.")
    ] = False,
) -> int:
    """Run SCRIPT, unchanged, whose device is npu and which imports torchair: on Ascend, CUDA or CPU.

    The exit code is the script's.
    """
    has_npu = importlib.util.find_spec("torch_npu") is not None
    device = ("npu" if has_npu or simulate else "cpu") if device is None else device
    if device not in DEVICES:
        raise UsageProblem(f"--device {device}: expected one of {', '.join(DEVICES)}")
    if simulate and device != "npu":
        raise UsageProblem(f"--simulate is for the device npu, and --device {device} is another")
    if device == "npu" and not has_npu:
        raise UsageProblem(
            "--device npu: torch_npu is not installed here. Leave the option out to run on CPU, or give --simulate, "
            "for which `make test-npu` makes an environment in a source checkout"
        )
    if upstream and device != "npu":
        raise UsageProblem("--upstream: TorchAir comes with torch_npu, and runs on npu only")
    if device == "cuda":
        check_device(device)
    if device != "npu":
        from airgraph.standin import install

        install(device)
    elif not upstream:
        from airgraph.torchair.mount import mount

        mount()
    return run_script(script, arguments or [], module=module)
