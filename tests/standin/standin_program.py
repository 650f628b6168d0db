"""Run by test_standin.py with the device that npu stands for: prints what came of each question, as JSON."""

import importlib
import io
import json
import sys
import tempfile

import torch

_before = {name: getattr(torch, name) for name in ("zeros", "ones", "tensor", "device", "load", "manual_seed")}

from airgraph.standin import install  # noqa: E402

TARGET = sys.argv[1]
install(TARGET)
install(TARGET)
import torch_npu  # noqa: E402

import airgraph  # noqa: E402

found = {}


def question(name):
    def ask(function):
        try:
            found[name] = str(function())
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"

    return ask


def _on_target(*tensors):
    return all(each.device.type == TARGET for each in tensors)


def _are(tensor, *numbers):
    return tensor.tolist() == list(numbers)


@question("no torch function is replaced")
def _():
    return all(getattr(torch, name) is held for name, held in _before.items())


@question("factories")
def _():
    names = ("zeros", "ones", "empty", "rand", "randn")
    made = [getattr(torch, name)(2, 3, device="npu") for name in names]
    made += [torch.arange(5, device="npu:0"), torch.full((2,), 3.0, device=torch.device("npu"))]
    made += [torch.tensor([1.0], device="npu"), torch.as_tensor([1.0], device="npu"), torch.randperm(3, device="npu")]
    made += [torch.ones(2).new_zeros(3, device="npu"), torch.zeros_like(made[0], device="npu")]
    return _on_target(*made) and made[1].sum() == 6 and made[6].tolist() == [3.0, 3.0]


@question("moves")
def _():
    x = torch.rand(3)
    moved = [x.npu(), x.npu(0), x.to("npu"), x.to("npu:0", torch.float64), x.to(device="npu", non_blocking=True)]
    return _on_target(*moved) and all(torch.equal(each.float().cpu(), x) and each.is_npu for each in moved)


@question("modules")
def _():
    made = [torch.nn.Linear(2, 2).npu(), torch.nn.Linear(2, 2).to("npu"), torch.nn.Linear(2, 2, device="npu")]
    return all(_on_target(*each.parameters()) and each(torch.ones(2, device="npu")).shape == (2,) for each in made)


@question("default device")
def _():
    torch.set_default_device("npu")
    try:
        with torch.device("npu"):
            return _on_target(torch.ones(2))
    finally:
        torch.set_default_device(None)


@question("loading")
def _():
    file = io.BytesIO()
    torch.save({"a": torch.arange(3)}, file)
    file.seek(0)
    return torch.load(file, map_location="npu")["a"].tolist() == [0, 1, 2]


@question("the device of a tensor")
def _():
    return torch.ones(2, device=torch.ones(2).npu().device).device.type == TARGET


@question("random numbers")
def _():
    drawn = []
    for _ in range(2):
        torch.npu.manual_seed(1)
        generator = torch.npu.Generator().manual_seed(2)
        drawn.append((torch.rand(1, device="npu").item(), torch.rand(1, generator=generator, device="npu").item()))
    torch.manual_seed(1)
    return drawn[0] == drawn[1] and torch.rand(1, device=TARGET).item() == drawn[0][0]


@question("devices")
def _():
    torch.npu.set_device("npu:0")
    torch.npu.set_device(0)
    with torch.npu.device(0):
        counts = torch.npu.is_available(), torch.npu.device_count(), torch.npu.current_device()
    return counts == (True, 1, 0) and torch_npu.npu is torch.npu and TARGET in torch.npu.get_device_name(0)


@question("streams")
def _():
    side, event = torch.npu.Stream(), torch.npu.Event()
    with torch.npu.stream(side):
        y = torch.ones(2, device="npu") * 2
        event.record()
    event.wait()
    torch.npu.current_stream().wait_stream(side)
    torch.npu.synchronize()
    return y.tolist() == [2.0, 2.0]


@question("times between events")
def _():
    first, last = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    first.record()
    torch.ones(64, 64, device="npu") @ torch.ones(64, 64, device="npu")
    last.record(torch.npu.Stream(device="npu:0", priority=-1))
    torch.npu.synchronize()
    return 0 < first.elapsed_time(last) < 10_000 and torch.npu.default_stream() == torch.npu.current_stream()


@question("states of random numbers")
def _():
    state = torch.npu.get_rng_state()
    first = torch.rand(1, device="npu")
    with torch.random.fork_rng():
        torch.rand(3, device="npu")
    second = torch.rand(1, device="npu")
    torch.npu.set_rng_state(state)
    generator = torch.Generator(device="npu").manual_seed(5)
    drawn = torch.rand(2, generator=generator, device="npu")
    again = torch.rand(2, generator=torch.Generator(TARGET).manual_seed(5), device=TARGET)
    repeated = [torch.rand(1, device="npu") for _ in range(2)]
    return torch.equal(torch.cat(repeated), torch.cat([first, second])) and torch.equal(drawn, again)


@question("pinned memory")
def _():
    loaded = list(torch.utils.data.DataLoader([1.0, 2.0], pin_memory=True))
    return torch.ones(2).pin_memory().tolist() == [1.0, 1.0] and loaded[1].item() == 2.0


@question("storages")
def _():
    storage = torch.UntypedStorage(4, device="npu")
    torch.accelerator.synchronize()
    return len(storage) == 4 and storage.device.type == TARGET


@question("streams within a graph by hand")
def _():
    x, graph, side = torch.ones(2, device="npu"), torch.npu.NPUGraph(), torch.npu.Stream()
    with torch.npu.graph(graph):
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            beside = x * 2
        y = x + 1
        torch.npu.current_stream().wait_stream(side)
        y = y + beside
    x.fill_(3)
    graph.replay()
    return y.tolist() == [10.0, 10.0]


@question("how CANN compiles")
def _():
    torch.npu.set_compile_mode(jit_compile=False)
    torch.npu.config.allow_internal_format = True
    return torch.npu.config.allow_internal_format


@question("graphs by hand")
def _():
    x, graph = torch.ones(2, device="npu"), torch.npu.NPUGraph()
    with torch.npu.graph(graph, pool=torch.npu.graph_pool_handle(), auto_dispatch_capture=True):
        y = x * 3
    x.fill_(2)
    graph.replay()
    return y.tolist() == [6.0, 6.0]


@question("memory figures")
def _():
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    held = torch.ones(32 << 20, dtype=torch.uint8, device="npu")
    peak = torch.npu.max_memory_allocated()
    torch.npu.empty_cache()
    free, total = torch.npu.mem_get_info()
    return peak >= before + len(held) // 2 and 0 < free < total


def _double(x):
    return x * 2 + torch.ones(2, device=x.device)


@question("compiled")
def _():
    call = torch.compile(_double, backend="airgraph", fullgraph=True)
    with torch.no_grad():
        return _are(call(torch.ones(2).npu()), 3.0, 3.0)


@question("moved within a compiled function")
def _():
    call = torch.compile(lambda x: (x * 2).npu() + 1, backend="airgraph", fullgraph=True)
    with torch.no_grad():
        return _are(call(torch.ones(2).npu()), 3.0, 3.0)


@question("cached")
def _():
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        call = airgraph.inference.cache_compile(_double, cache_dir=folder, strict=True)
        return _are(call(torch.ones(2).npu()), 3.0, 3.0) and len(call.files) == 1


@question("torch.npu.nonsense")
def _():
    assert not hasattr(torch.npu, "nonsense")
    return torch.npu.nonsense


@question("torch_npu.npu_nonsense")
def _():
    return torch_npu.npu_nonsense


@question("autocast")
def _():
    return torch.autocast("npu", torch.bfloat16)


@question("second device")
def _():
    return torch.npu.set_device(1)


def _made_within(x):
    mask = torch.tril(torch.ones(2, 2, device="npu:0"))
    positions = torch.arange(2, device="npu") + torch.tensor([1, 2], device=torch.device("npu"))
    return (x.to("npu") + positions) @ mask + x.new_zeros(2, device="npu") + torch.zeros_like(x, device="npu")


@question("made within a compiled function")
def _():
    call = torch.compile(_made_within, backend="airgraph", fullgraph=True)
    with torch.no_grad():
        return torch.equal(call(torch.ones(2).npu()), _made_within(torch.ones(2).npu()))


@question("made within a cached function")
def _():
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        made = []
        for _ in range(2):
            call = airgraph.inference.cache_compile(_made_within, cache_dir=folder, strict=True)
            made.append(torch.equal(call(torch.ones(2).npu()), _made_within(torch.ones(2).npu())))
        return made == [True, True] and call.counts().traces == 0


@question("npugraph_ex")
def _():
    call = torch.compile(_double, backend="npugraph_ex", options={"clone_input": False}, fullgraph=True)
    with torch.no_grad():
        compiled = _are(call(torch.ones(2).npu()), 3.0, 3.0)
    named = torch.npu.npugraph_ex
    return compiled and all(
        hasattr(named, each) for each in ("inference", "scope", "register_replacement", "compile_fx")
    )


@question("another config")
def _():
    torch.npu.config.nonsense = 1


@question("module")
def _():
    return importlib.import_module("torch_npu.contrib.transfer_to_npu")


@question("installed twice for another")
def _():
    return install("tpu")


print(json.dumps(found))
