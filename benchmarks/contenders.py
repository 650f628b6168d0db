"""Build every way of running a workload, each checked against eager before it may be timed.

All contenders share one set of weights and caches; only AOTInductor's package carries a copy. Those that go
through torch.compile get a forward of their own (a copy of the code object), so that Dynamo keeps their compiled
code apart and none of them searches a neighbour's guards.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import FunctionType
from typing import Any

import torch
from measure import Contender
from torch import Tensor, nn
from workloads import Workload

EAGER = "eager"
EAGER_NO_GRAD = "eager, no_grad"
INDUCTOR = "Inductor"
CPP_WRAPPER = "Inductor, cpp_wrapper"
AOTI = "AOTInductor"
AOTI_BARE = "AOTInductor, bare runner"
AIRGRAPH = "airgraph"
AIRGRAPH_EXACT = "airgraph, exact kernels"
CACHED = "airgraph, cached"
REPLAY = "airgraph, bare replay"
REPLAY_EXACT = "airgraph, bare replay, exact kernels"
# Of workloads with products of many rows.
REPLAY_PACKED = "airgraph, bare replay, weights packed"
PACKABLE = ("d",)

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Build:
    """A contender ready to run. `result`: the output of its latest call."""

    contender: Contender
    result: Callable[[], Tensor]
    shares_buffers: bool = True


def with_own_code(model: nn.Module, name: str) -> nn.Module:
    """The same module, tensors shared, whose class has a private copy of forward's code."""
    forward = type(model).forward
    assert isinstance(forward, FunctionType)
    code = forward.__code__.replace(co_name=f"forward_{''.join(c for c in name if c.isalnum())}")
    own = FunctionType(code, forward.__globals__, code.co_name, forward.__defaults__, forward.__closure__)
    twin = copy.copy(model)
    twin.__class__ = type(type(model).__name__, (type(model),), {"forward": own})
    return twin


def _calling(name: str, call: Call, workload: Workload, context: Any = torch.inference_mode, **kwargs: Any) -> Build:
    contender = Contender(name, call, workload.args, context)

    def result() -> Tensor:
        with contender.context():
            output = call(*workload.args)
        assert isinstance(output, Tensor)
        return output

    return Build(contender, result, **kwargs)


def _compiled(name: str, workload: Workload, **kwargs: Any) -> Build:
    return _calling(name, torch.compile(with_own_code(workload.model, name), **kwargs), workload)


def _aot_inductor(workload: Workload, folder: Path) -> Iterator[Build]:
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with torch.no_grad():
        program = torch.export.export(workload.model, workload.args)
        package = aoti_compile_and_package(program, package_path=str(folder / f"{workload.name}.pt2"))
    loaded = aoti_load_package(package)
    # The package carries its own copy of weights and caches.
    yield _calling(AOTI, loaded, workload, shares_buffers=False)
    run = loaded.loader.boxed_run

    def bare(*args: Tensor) -> Tensor:
        output: Tensor = run(list(args))[0]
        return output

    yield _calling(AOTI_BARE, bare, workload, shares_buffers=False)


def _cached(workload: Workload, folder: Path, **options: Any) -> Call:
    import airgraph

    return airgraph.inference.cache_compile(
        workload.model.forward,
        cache_dir=folder / ("-".join(f"{name}={value}" for name, value in options.items()) or "default"),
        dynamic=False,
        strict=True,
        options=options,
    )


def _bare_replay(name: str, call: Call, workload: Workload) -> Build:
    """The graph that a cached call replays, without the call, by which its results are looked at."""
    from airgraph.capture.ledger import ledger

    known = list(ledger.callables)
    with torch.inference_mode():
        call(*workload.args)
    (graph,) = (graph for made in ledger.callables if made not in known for graph in made.captures)

    def result() -> Tensor:
        graph.device_graph.replay()
        with torch.inference_mode():
            output = call(*workload.args)
        assert isinstance(output, Tensor)
        return output

    return Build(Contender(name, graph.device_graph.replay), result)


def builds(workload: Workload, folder: Path) -> Iterator[Build]:
    """Make the contenders one after another; compilation happens in the first call at the latest.

    folder: where AOTInductor's package goes; it must outlive the contenders.
    """
    yield _calling(EAGER, workload.model, workload)
    yield _calling(EAGER_NO_GRAD, workload.model, workload, torch.no_grad)
    yield _compiled(INDUCTOR, workload)
    yield _compiled(CPP_WRAPPER, workload, options={"cpp_wrapper": True})
    yield from _aot_inductor(workload, folder)
    yield _compiled(AIRGRAPH, workload, backend="airgraph")
    yield _compiled(AIRGRAPH_EXACT, workload, backend="airgraph", options={"kernels": "exact"})
    yield _calling(CACHED, _cached(workload, folder), workload)
    yield _bare_replay(REPLAY, _cached(workload, folder / "bare"), workload)
    yield _bare_replay(REPLAY_EXACT, _cached(workload, folder / "bare", kernels="exact"), workload)
    if workload.name in PACKABLE:
        yield _bare_replay(REPLAY_PACKED, _cached(workload, folder / "bare", pack_weights=True), workload)


@dataclass(frozen=True, slots=True)
class Reference:
    """What eager makes of a workload: output and buffers after a call, from known buffers before it."""

    workload: Workload
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    output: Tensor

    @classmethod
    def of(cls, workload: Workload) -> Reference:
        buffers = dict(workload.model.named_buffers())
        before = {name: buffer.clone() for name, buffer in buffers.items()}
        with torch.no_grad():
            output = workload.model(*workload.args).clone()
        after = {name: buffer.clone() for name, buffer in buffers.items()}
        return cls(workload, before, after, output)

    def check(self, build: Build, calls: int = 3) -> float:
        """Call the contender several times; return the largest difference of an output to eager's.

        Raises AssertionError, naming the contender, where an output or a buffer is not close to eager's.
        """
        buffers = dict(self.workload.model.named_buffers())
        difference = 0.0
        for number in range(calls):
            for name, buffer in buffers.items():
                buffer.copy_(self.before[name])
            output = build.result()
            what = f"workload {self.workload.name}, {build.contender.name}, call {number + 1}"
            self._close(output, self.output, what)
            difference = max(difference, (output - self.output).abs().max().item())
            if build.shares_buffers:
                for name, buffer in buffers.items():
                    self._close(buffer, self.after[name], f"{what}, buffer {name}")
        return difference

    @staticmethod
    def _close(actual: Tensor, expected: Tensor, what: str) -> None:
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5, msg=lambda message: f"{what}: {message}")


def _first_call_s(workload: Workload, name: str, **kwargs: Any) -> float:
    torch._dynamo.reset()
    model = with_own_code(workload.model, name)
    with torch.inference_mode():
        start = perf_counter()
        torch.compile(model, **kwargs)(*workload.args)
        return perf_counter() - start


def first_calls(workload: Workload) -> dict[str, float]:
    """Seconds that the first call takes through Inductor and through airgraph, and airgraph's own capture_ms.

    Dynamo is reset before each; an untimed trace before both fills the memo tables Dynamo keeps for a process,
    so that the second one gains nothing from the first.
    """
    import airgraph

    _first_call_s(workload, "warm", backend="aot_eager")
    inductor_s = _first_call_s(workload, INDUCTOR)
    airgraph_s = _first_call_s(workload, AIRGRAPH, backend="airgraph")
    capture_ms = airgraph.explain().to_dict()["graphs"][-1]["capture_ms"]
    torch._dynamo.reset()
    return {"inductor_s": inductor_s, "airgraph_s": airgraph_s, "airgraph_capture_ms": capture_ms}


def warm_compilers() -> None:
    """Compile something tiny, so that imports and precompiled headers are not charged to a workload."""
    tiny = Workload("tiny", "", nn.Softplus().eval(), (torch.ones(8),))
    _first_call_s(tiny, INDUCTOR)
    _first_call_s(tiny, AIRGRAPH, backend="airgraph")
    torch._dynamo.reset()
