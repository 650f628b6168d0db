"""Arguments that have no plain memory, or stand for something else, are not read as if they had."""

import pytest
from process import output_of

_DOORS = """
import tempfile
def double(x):
    return x * 2 + 1

def doors():
    yield torch.compile(double, backend="airgraph")
    yield torch.compile(double, backend="airgraph", options={"clone_input": False})
    yield airgraph.inference.cache_compile(double, cache_dir=tempfile.mkdtemp())

def check(call, given):
    '''A result like eager's, or an error; never the end of the process.'''
    try:
        out = call(given)
    except Exception as error:
        print(type(given).__name__, type(error).__name__, error)
        return None
    # Of a class with a __torch_function__ of its own torch.compile returns plain tensors, whatever the backend.
    assert type(out) is type(double(given)) or type(given).__name__ == "Otherwise", (type(out), type(double(given)))
    return out

def right(call):
    x = torch.randn(3)
    with torch.no_grad():
        assert torch.equal(call(x), double(x))
warnings.simplefilter("ignore")
"""


@pytest.mark.parametrize("first", [True, False], ids=["at first", "later"])
def test_fake_tensors_are_not_read(first: bool) -> None:
    output_of(
        _DOORS,
        f"FIRST = {first}",
        """
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
        for call in doors():
            if not FIRST:
                right(call)
            mode = FakeTensorMode()
            fake = mode.from_tensor(torch.ones(3))
            with torch.no_grad():
                check(call, fake)
                with mode:
                    check(call, fake)
                    check(call, torch.ones(3))
            right(call)
            right(call)
        """,
    )


@pytest.mark.parametrize("first", [True, False], ids=["at first", "later"])
def test_subclasses_are_taken_for_what_they_are(first: bool) -> None:
    """One with tensors inside, one that only has a name of its own, one that computes otherwise, one without memory."""
    output_of(
        _DOORS,
        f"FIRST = {first}",
        """
        from torch.testing._internal.two_tensor import TwoTensor
        class Named(torch.Tensor):
            pass
        class Otherwise(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                out = super().__torch_function__(func, types, args, kwargs)
                return out + 100 if func is torch.Tensor.mul else out
        class Hollow(torch.Tensor):
            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            def __init__(self, inner):
                self.inner = inner
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                plain = [a.inner if isinstance(a, Hollow) else a for a in args]
                return Hollow(func(*plain, **(kwargs or {})))
        makers = [
            lambda x: TwoTensor(x, x + 1), lambda x: x.as_subclass(Named), lambda x: x.as_subclass(Otherwise), Hollow,
            lambda x: torch.nn.Parameter(x, False), lambda x: torch.nn.Buffer(x),
        ]
        for make in makers:
            for call in doors():
                torch._dynamo.reset()
                if not FIRST:
                    right(call)
                with torch.no_grad():
                    for _ in range(2):
                        given = make(torch.arange(3.0))
                        out = check(call, given)
                        expected = double(given)
                        if type(out) is TwoTensor:
                            assert torch.equal(out.a, expected.a) and torch.equal(out.b, expected.b)
                        elif type(out) is Hollow:
                            assert torch.equal(out.inner, expected.inner)
                        elif out is not None:
                            assert torch.equal(torch.Tensor(out), torch.Tensor(expected)), (make, out, expected)
                right(call)
        """,
    )


def test_a_fake_tensor_where_the_graph_writes_into_what_it_has_made() -> None:
    output_of(
        """
        import tempfile
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
        warnings.simplefilter("ignore")
        def affine(x, w, b):
            return (x @ w + b).relu() @ w
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        for call in (
            torch.compile(affine, backend="airgraph"),
            airgraph.inference.cache_compile(affine, cache_dir=tempfile.mkdtemp()),
        ):
            x, w, b = torch.ones(3, 3), torch.ones(3, 3), torch.ones(3)
            with torch.no_grad():
                expected = call(x, w, b)
                assert isinstance(call(x, w, mode.from_tensor(b)), FakeTensor)
                zeros = torch._efficientzerotensor(3, 3)
                assert torch.equal(call(zeros, w, b), affine(torch.zeros(3, 3), w, b))
                assert torch.equal(call(x, w, b), expected)
        """,
    )


def test_wrapped_by_vmap_and_its_relatives() -> None:
    output_of(
        _DOORS,
        """
        from torch.func import functionalize, grad, jvp, vmap
        x = torch.randn(4, 3)
        for call in doors():
            for _ in range(2):
                torch.testing.assert_close(vmap(call)(x), double(x))
                torch.testing.assert_close(vmap(vmap(call))(x), double(x))
                # The cached door has no gradients.
                if type(call).__name__ != "CachedFunction":
                    torch.testing.assert_close(grad(lambda v: call(v).sum())(x), torch.full_like(x, 2))
                torch.testing.assert_close(jvp(call, (x,), (x,))[1], 2 * x)
                torch.testing.assert_close(functionalize(call)(x), double(x))
                right(call)
        """,
    )


def test_layouts_and_devices_without_plain_memory() -> None:
    output_of(
        _DOORS,
        """
        x = torch.randn(4, 3)
        others = [
            x.to("meta"), x.to_sparse(), x.to_sparse_csr(), torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
            torch._efficientzerotensor(4, 3), torch.empty(0),
            torch.nested.nested_tensor([x, x], layout=torch.jagged), x.to_mkldnn(),
        ]
        for other in others:
            for call in doors():
                torch._dynamo.reset()
                with torch.no_grad():
                    right(call)
                    try:
                        expected = double(other)
                    except Exception:
                        expected = None
                    if expected is not None:
                        for _ in range(2):
                            out = check(call, other)
                            assert out is None or (out.layout, out.device) == (expected.layout, expected.device)
                    right(call)
        """,
    )


def test_a_hand_made_graph_refuses_subclasses_and_fakes() -> None:
    output_of(
        """
        from torch._subclasses.fake_tensor import FakeTensorMode
        class Named(torch.Tensor):
            pass
        x = torch.ones(3)
        for given in (FakeTensorMode().from_tensor(x), x.as_subclass(Named), x.to("meta")):
            g, x = CPUGraph(), torch.ones(3)
            try:
                with graph(g):
                    y = given * 2
                g.replay()
            except (CaptureError, RuntimeError, TypeError, AssertionError) as error:
                assert str(error)
            else:
                # Taken for what it is, or not at all.
                assert type(given) is Named and torch.equal(y.as_subclass(torch.Tensor), torch.full((3,), 2.0)), given
            with graph(h := CPUGraph()):
                y = x * 2
            h.replay()
            assert torch.equal(y, x * 2)
        """
    )
