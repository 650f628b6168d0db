"""Settings around a call act as they do in eager: a replay neither ignores them nor lets them reach into kernels."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Context
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from reports import counters
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.overrides import TorchFunctionMode

import airgraph
from airgraph.cpu import CPUGraph, graph
from airgraph.errors import ReplayError


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    deterministic = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    precision, threads, dtype = torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.get_default_dtype()
    yield
    torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
    torch.utils.deterministic.fill_uninitialized_memory = fill
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_flush_denormal(False)


def distances(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y)


def products(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        x @ y.t(),
        torch.nn.functional.linear(x, y),
        torch.einsum("ij,kj->ik", x, y),
        torch.addmm(x @ y.t(), x, y.t()),
    )


def norms(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return nn.functional.layer_norm(x, (x.shape[-1],)), torch.linalg.norm(x @ y.t()), torch.logsumexp(x, -1)


def attention(x: Tensor, y: Tensor) -> Tensor:
    q, k = x.view(1, 2, -1, x.shape[-1]), y.view(1, 2, -1, y.shape[-1])
    return nn.functional.scaled_dot_product_attention(q, k, k)


def convolution(x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.conv1d(x[None, None].flatten(1, 2), y[:, None, :3].expand(-1, x.shape[0], -1))


@torch.library.custom_op("airgraph_ambient::multiplies", mutates_args=())
def multiplies(x: Tensor, y: Tensor) -> Tensor:
    return x @ y.t()


multiplies.register_fake(lambda x, y: x.new_empty(x.shape[0], y.shape[0]))


def with_custom_operator(x: Tensor, y: Tensor) -> Tensor:
    return multiplies(x, y).relu()


_PROGRAMS = [distances, products, norms, attention, convolution]


def _inputs() -> tuple[Tensor, Tensor]:
    """Large enough for cdist to multiply matrices within its kernel."""
    return torch.randn(40, 32), torch.randn(40, 32)


def _autocast(dtype: torch.dtype = torch.bfloat16, enabled: bool = True) -> Context:
    return torch.autocast("cpu", dtype, enabled)


def _same(ours: Any, theirs: Any) -> None:
    """With their dtypes."""
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (ours, theirs)), strict=True):
        assert a.dtype == b.dtype, (a.dtype, b.dtype)
        torch.testing.assert_close(a, b)


# Autocast.


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("program", _PROGRAMS)
def test_autocast_around_the_call(door: str, program: Callable[..., Any], tmp_path: Path) -> None:
    """On, off, of another dtype, and off within on: what eager does there, in whatever order."""
    call = through(door, program, tmp_path)
    settings = (
        contextlib.nullcontext,
        _autocast,
        contextlib.nullcontext,
        lambda: _autocast(torch.float16),
        _autocast,
        lambda: _autocast(enabled=False),
    )
    for setting in settings * 2:
        x, y = _inputs()
        with setting():
            try:
                expected = program(x, y)
            except RuntimeError:
                continue
            _same(call(x, y), expected)


@torch.no_grad()
@pytest.mark.parametrize("within", [True, False], ids=["captured within autocast", "captured without"])
@pytest.mark.parametrize("program", _PROGRAMS)
def test_autocast_around_the_replay_of_a_graph_by_hand(program: Callable[..., Any], within: bool) -> None:
    """What was captured is replayed, and nothing more: as in torch.cuda's graphs, casts are part of the capture."""
    x, y = _inputs()
    g = CPUGraph()
    with _autocast(enabled=within):
        expected = program(x, y)
        with airgraph.cpu.graph(g):
            out = program(x, y)
    for setting in (
        contextlib.nullcontext,
        _autocast,
        lambda: _autocast(enabled=False),
        lambda: _autocast(torch.float16),
    ):
        for each in out if isinstance(out, tuple) else (out,):
            each.zero_()
        with setting():
            g.replay()
        _same(out, expected)


@torch.no_grad()
def test_autocast_does_not_reach_into_python_kernels_of_a_graph_by_hand() -> None:
    x, y = _inputs()
    g = CPUGraph()
    with airgraph.cpu.graph(g):
        out = with_custom_operator(x, y)
    with _autocast():
        g.replay()
    _same(out, with_custom_operator(x, y))


@torch.no_grad()
def test_verification_of_python_kernels_under_autocast() -> None:
    """They see no autocast, as under torch.compile in general, in the replay and in what it is compared with."""
    call = torch.compile(with_custom_operator, backend="airgraph", options={"verify_every": 1})
    x, y = _inputs()
    for setting in (contextlib.nullcontext, _autocast, _autocast, contextlib.nullcontext):
        with setting():
            _same(call(x, y), with_custom_operator(x, y) if setting is contextlib.nullcontext else call(x, y))


@torch.no_grad()
@pytest.mark.parametrize("program", _PROGRAMS)
def test_verification_under_autocast(program: Callable[..., Any]) -> None:
    call = torch.compile(program, backend="airgraph", options={"verify_every": 1})
    for setting in (contextlib.nullcontext, _autocast, _autocast, contextlib.nullcontext):
        x, y = _inputs()
        with setting():
            _same(call(x, y), program(x, y))


# Determinism.


def uninitialised(x: Tensor) -> tuple[Tensor, ...]:
    return torch.empty(4) + x.sum() * 0, torch.empty_like(x), x.new_empty(3, dtype=torch.int64)


@torch.no_grad()
@both_doors
def test_deterministic_algorithms_fill_memory_also_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, uninitialised, tmp_path)
    x = torch.ones(5)
    call(x)
    for on in (True, False, True, True):
        torch.use_deterministic_algorithms(on)
        for _ in range(2):
            dirty = [torch.full((5,), 3.0) for _ in range(20)]
            del dirty
            out, expected = call(x), uninitialised(x)
            if on:
                assert all(e.isnan().all() for e in expected[:2]), "eager fills"
                assert out[0].isnan().all() and out[1].isnan().all()
                assert torch.equal(out[2], expected[2])
    torch.utils.deterministic.fill_uninitialized_memory = False
    held = [call(x) for _ in range(3)]
    assert len(held) == 3
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert call(x)[1].isnan().all()


def accumulates(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(4).index_put((index,), x, accumulate=True) + torch.zeros(4).index_add(0, index, x)


def has_no_deterministic_kernel(x: Tensor) -> Tensor:
    return refuses(x) * 2


@torch.library.custom_op("airgraph_ambient::refuses", mutates_args=())
def refuses(x: Tensor) -> Tensor:
    """As kernels without a deterministic form do."""
    if torch.are_deterministic_algorithms_enabled():
        raise RuntimeError("airgraph_ambient::refuses does not have a deterministic implementation")
    return x + 1


refuses.register_fake(torch.empty_like)


@torch.no_grad()
@both_doors
def test_deterministic_kernels_are_taken_also_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, accumulates, tmp_path)
    index = torch.randint(4, (2000,))
    for on in (False, True, False, True):
        torch.use_deterministic_algorithms(on)
        x = torch.randn(2000)
        torch.testing.assert_close(call(x, index), accumulates(x, index))


@torch.no_grad()
@both_doors
def test_what_has_no_deterministic_form_raises_also_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, has_no_deterministic_kernel, tmp_path)
    x = torch.ones(3)
    for _ in range(2):
        torch.use_deterministic_algorithms(False)
        assert torch.equal(call(x), has_no_deterministic_kernel(x))
        torch.use_deterministic_algorithms(True)
        with pytest.raises(Exception, match="does not have a deterministic implementation"):
            call(x)


# Precision and other settings of the process.


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("program", [products, attention, with_custom_operator])
def test_the_precision_of_products_set_after_a_capture(door: str, program: Callable[..., Any], tmp_path: Path) -> None:
    call = through(door, program, tmp_path)
    x, y = torch.randn(64, 256), torch.randn(64, 256)
    for precision in ("highest", "medium", "high", "highest", "medium"):
        torch.set_float32_matmul_precision(precision)
        for _ in range(2):
            ours, theirs = call(x, y), program(x, y)
            for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (ours, theirs)), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=2e-5)


@torch.no_grad()
@pytest.mark.parametrize("first", ["highest", "medium"])
def test_the_precision_of_products_in_a_graph_by_hand(first: str) -> None:
    """Either the capture's or the replay's, but one of them: not the one in one kernel, the other in the next."""
    x, y = torch.randn(64, 256), torch.randn(64, 256)
    expected = {}
    for precision in ("highest", "medium"):
        torch.set_float32_matmul_precision(precision)
        expected[precision] = products(x, y)
    torch.set_float32_matmul_precision(first)
    g = CPUGraph()
    with airgraph.cpu.graph(g):
        out = products(x, y)
    for precision in ("highest", "medium", "highest"):
        torch.set_float32_matmul_precision(precision)
        g.replay()
        assert any(
            all(torch.allclose(a, b, rtol=1e-6, atol=2e-5) for a, b in zip(out, each, strict=True))
            for each in (expected[first], expected[precision])
        )


def denormal(x: Tensor) -> tuple[Tensor, ...]:
    return x * 0.5, (x * 2).sum(), x.exp().log() * 1e-38


@torch.no_grad()
@both_doors
def test_flushing_of_denormals_set_after_a_capture(door: str, tmp_path: Path) -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    torch.set_flush_denormal(False)
    call = through(door, denormal, tmp_path)
    x = torch.full((40,), 1e-40)
    for on in (False, True, False):
        torch.set_flush_denormal(on)
        _same_bits(call(x), denormal(x))


def _same_bits(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)), (ours, theirs)


@torch.no_grad()
@both_doors
def test_the_number_of_threads_set_after_a_capture(door: str, tmp_path: Path) -> None:
    def sums(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.sum(), (x @ y).relu(), x.softmax(-1)

    call = through(door, sums, tmp_path)
    x, y = torch.randn(300, 300), torch.randn(300, 300)
    for threads in (2, 1, 3, 1, 2):
        torch.set_num_threads(threads)
        for a, b in zip(call(x, y), sums(x, y), strict=True):
            torch.testing.assert_close(a, b)


def makes_new(x: Tensor) -> tuple[Tensor, ...]:
    return torch.ones(3) * x.to(torch.get_default_dtype()), torch.arange(3) * 1.5, torch.full((2,), 1.0)


@torch.no_grad()
@both_doors
def test_the_default_dtype_set_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, makes_new, tmp_path)
    x = torch.ones(3)
    for dtype in (torch.float32, torch.float64, torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        for ours, theirs in zip(call(x), makes_new(x), strict=True):
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


@torch.no_grad()
@both_doors
def test_oneDNN_switched_off_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, products, tmp_path)
    x, y = _inputs()
    for enabled in (True, False, True):
        with torch.backends.mkldnn.flags(enabled=enabled):
            _same(call(x, y), products(x, y))


@torch.no_grad()
@both_doors
def test_attention_kernels_switched_after_a_capture(door: str, tmp_path: Path) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    call = through(door, attention, tmp_path)
    for backends in ([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], [SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION]):
        x, y = _inputs()
        with sdpa_kernel(backends):
            _same(call(x, y), attention(x, y))
    _same(call(x, y), attention(x, y))


def asks(x: Tensor) -> tuple[Tensor, ...]:
    """Python decides by a setting, so that another one is another program."""
    return (
        x * 2 if torch.are_deterministic_algorithms_enabled() else x * 3,
        x * 2 if torch.get_default_dtype() == torch.float32 else x * 3,
        x * 2 if torch.is_grad_enabled() else x * 3,
        x * 2 if torch.is_inference_mode_enabled() else x * 3,
        x * torch.get_num_threads(),
    )


def asks_for_precision(x: Tensor) -> Tensor:
    return x * 2 if torch.get_float32_matmul_precision() == "highest" else x * 3


def asks_for_autocast(x: Tensor) -> Tensor:
    return x * 2 if torch.is_autocast_enabled("cpu") else x * 3


@both_doors
@pytest.mark.parametrize("program", [asks, asks_for_precision, asks_for_autocast])
def test_programs_that_ask_for_settings(door: str, program: Callable[..., Any], tmp_path: Path) -> None:
    call = through(door, program, tmp_path)
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_num_threads(3),
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.use_deterministic_algorithms(False),
        lambda: torch.set_float32_matmul_precision("highest"),
        lambda: torch.set_default_dtype(torch.float32),
        lambda: torch.set_num_threads(1),
    ]
    with torch.no_grad():
        for change in changes:
            change()
            x = torch.ones(3, dtype=torch.float32)
            _same(call(x), program(x))
            with _autocast():
                _same(call(x), program(x))
        with torch.inference_mode():
            _same(call(x), program(x))
        _same(call(x), program(x))


# Gradient modes.


@both_doors
@pytest.mark.parametrize("first", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes_around_the_call(door: str, first: Callable[[], Context], tmp_path: Path) -> None:
    """Results, and whether they are inference tensors and need gradients, are those of eager."""
    call = through(door, products, tmp_path)
    for mode in (first, torch.no_grad, torch.inference_mode, torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            x, y = _inputs()
            for ours, theirs in zip(call(x, y), products(x, y), strict=True):
                torch.testing.assert_close(ours, theirs)
                assert ours.is_inference() == theirs.is_inference()
                assert ours.requires_grad == theirs.requires_grad


def advance(cache: Tensor, x: Tensor) -> Tensor:
    cache.add_(x)
    return cache * 2


@both_doors
def test_inference_tensors_and_others_by_turns(door: str, tmp_path: Path) -> None:
    """As inputs and as caches; what one mode made is used in the other."""
    call = through(door, advance, tmp_path)
    made = {}
    with torch.no_grad():
        made["plain"] = torch.zeros(3)
    with torch.inference_mode():
        made["inference"] = torch.zeros(3)
    for mode in (torch.inference_mode, torch.no_grad) * 2:
        for name in ("plain", "inference", "plain"):
            with mode():
                cache = made[name].clone() if mode is torch.inference_mode else made[name]
                before = cache.clone()
                x = torch.ones(3)
                if name == "inference" and mode is torch.no_grad:
                    # Eager writes no inference tensor there; it may be read.
                    torch.testing.assert_close(call(torch.zeros(3), cache), cache * 2)
                    continue
                torch.testing.assert_close(call(cache, x), advance(before, x))


@torch.no_grad()
def test_a_replay_leaves_the_settings_as_they_were() -> None:
    call = torch.compile(distances, backend="airgraph")
    x, y = _inputs()
    g = CPUGraph()
    with airgraph.cpu.graph(g):
        distances(x, y)

    def state() -> tuple[Any, ...]:
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch._C._len_torch_dispatch_stack(),
            torch._C._dispatch_tls_local_include_set().raw_repr(),
            torch._C._dispatch_tls_local_exclude_set().raw_repr(),
        )

    for setting in (contextlib.nullcontext, _autocast, torch.inference_mode, torch.enable_grad):
        with setting():
            before = state()
            call(x, y)
            g.replay()
            call(x, y)
            assert state() == before


@torch.no_grad()
def test_settings_of_one_thread_do_not_reach_another() -> None:
    """Autocast is a thread's own; a capture made within it serves only calls within it."""
    call = torch.compile(distances, backend="airgraph")
    x, y = _inputs()
    failures: list[BaseException] = []

    def work(on: bool) -> None:
        try:
            with torch.no_grad(), _autocast(enabled=on):
                for _ in range(30):
                    _same(call(x, y), distances(x, y))
        except BaseException as error:
            failures.append(error)

    work(True), work(False)
    threads = [threading.Thread(target=work, args=(bool(n % 2),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


@torch.no_grad()
def test_settings_by_turns_do_not_end_in_eager_calls() -> None:
    """Each has its capture, or the one capture is made anew; the limit counts what is kept."""
    call = torch.compile(products, backend="airgraph", dynamic=False, options={"capture_limit": 4})
    x, y = _inputs()
    for i in range(20):
        torch.use_deterministic_algorithms(bool(i % 2))
        _same(call(x, y), products(x, y))
    assert counters()["eager_calls"] == 0


@torch.no_grad()
def test_settings_that_stay_cost_no_capture() -> None:
    """Set again to what they were, they change nothing."""
    call = torch.compile(products, backend="airgraph", dynamic=False)
    x, y = _inputs()
    for _ in range(10):
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)
        _same(call(x, y), products(x, y))
    assert counters()["captures"] == 1 and counters()["eager_calls"] == 0


@torch.no_grad()
def test_integers_by_hand_under_another_default_dtype() -> None:
    numbers, weight = torch.arange(5), torch.ones(5)
    roots, plain = CPUGraph(), CPUGraph()
    with graph(roots):
        y = torch.sqrt(numbers)
    with graph(plain):
        z = weight * 2
    torch.set_default_dtype(torch.bfloat16)
    plain.replay()
    with pytest.raises(ReplayError, match=r"default dtype torch\.float32, now torch\.bfloat16"):
        roots.replay()
    torch.set_default_dtype(torch.float32)
    roots.replay()
    assert torch.equal(y, torch.sqrt(numbers)) and torch.equal(z, weight * 2)


def squares(x: Tensor) -> Tensor:
    return (x @ x).relu()


@pytest.mark.parametrize("door", ["compiled", "cached"])
@pytest.mark.parametrize("mode", [FunctionalTensorMode, lambda: FakeTensorMode(allow_non_fake_inputs=True)])
@pytest.mark.filterwarnings("ignore:airgraph. a call of .* is not cached")
def test_a_first_call_under_a_dispatch_mode_spoils_no_later_one(
    mode: Callable[[], Context[Any]], door: str, tmp_path: Path
) -> None:
    call = through(door, squares, tmp_path, dynamic=True)
    with torch.no_grad():
        for size in (3, 4):
            call(torch.randn(size, size))
        x = torch.randn(5, 5)
        with mode(), contextlib.suppress(RuntimeError):
            call(x)
        before = counters()["eager_calls"]
        for _ in range(3):
            torch.testing.assert_close(call(x), squares(x))
        assert counters()["eager_calls"] == before


class Counting(TorchFunctionMode):
    """Would see what a capture calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(torch.overrides.resolve_name(function) or "")
        return function(*args, **(kwargs or {}))


def test_a_function_mode_sees_nothing_of_a_capture() -> None:
    call = torch.compile(squares, backend="airgraph", dynamic=True)
    with torch.no_grad():
        for size in (3, 4):
            call(torch.randn(size, size))
        with Counting() as mode:
            call(torch.ones(6, 6))
            first = len(mode.seen)
            call(torch.ones(6, 6))
        assert len(mode.seen) - first == first


def test_casts_that_autocast_keeps_stay_out_of_graphs_by_hand_and_theirs_within() -> None:
    weight, x, captured = nn.Linear(8, 8), torch.randn(2, 8), CPUGraph()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = weight(x)
        with torch.no_grad(), graph(captured):
            made = weight(x)
        torch.testing.assert_close(weight(x), expected)
        with torch.no_grad():
            weight.weight.mul_(3)
    captured.replay()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(made, weight(x).detach())
