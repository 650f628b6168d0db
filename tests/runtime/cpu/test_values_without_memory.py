"""A value under capture has no memory yet, and one from outside may have lost its own: neither is read as if it had."""

import pytest
from process import output_of

_NUMBERS = """
@torch.library.custom_op("numbers::both", mutates_args=())
def both(x: Tensor) -> tuple[Tensor, int]:
    return x * 2, int(x.sum())

both.register_fake(lambda x: (torch.empty_like(x), 77))

@torch.library.custom_op("numbers::count", mutates_args=())
def count(x: Tensor) -> int:
    return int(x.sum())

count.register_fake(lambda x: 77)

@torch.library.custom_op("numbers::scale", mutates_args=())
def scale(x: Tensor) -> float:
    return float(x.max())

scale.register_fake(lambda x: 77.0)

@torch.library.custom_op("numbers::positive", mutates_args=())
def positive(x: Tensor) -> bool:
    return bool((x > 0).all())

positive.register_fake(lambda x: True)

torch.library.define("numbers::counts", "(Tensor x) -> int[]")
torch.library.impl("numbers::counts", "CPU")(lambda x: [int(x.sum())])
torch.library.register_fake("numbers::counts")(lambda x: [77])
counts = torch.ops.numbers.counts.default

@torch.library.custom_op("numbers::write", mutates_args=("x",))
def write(x: Tensor) -> int:
    x.add_(1)
    return int(x.sum())

write.register_fake(lambda x: 77)

def refused(call, operator):
    '''It raises by name, the process works on, and so does the graph.'''
    x, g = torch.ones(3), CPUGraph()
    try:
        with graph(g):
            call(x + 1)
    except (CaptureError, UnsupportedGraph) as error:
        assert operator in str(error), error
    else:
        raise AssertionError(f"{operator} was captured, with a number that nobody has computed")
    assert torch.equal(x + 1, torch.full((3,), 2.0))
    with graph(g):
        y = x * 3
    g.replay()
    assert torch.equal(y, torch.full((3,), 3.0))
"""


@pytest.mark.parametrize("operator", ["both", "count", "scale", "positive", "counts", "write"])
def test_an_operator_that_returns_a_number_is_refused_by_name(operator: str) -> None:
    """Its fake kernel would say 77, and its own would read memory that is not there; from outside, or too early."""
    output_of(
        _NUMBERS,
        f"outside = torch.ones(3)\nrefused(lambda value: {operator}(outside), 'numbers::{operator}')",
        f"refused(lambda value: {operator}(torch.ones(3)), 'numbers::{operator}')",
        f"refused({operator}, 'numbers::{operator}')",
    )


def test_questions_about_metadata_are_still_answered() -> None:
    """Operators of torch that return numbers, and ask for no values, such as which attention kernel to take."""
    output_of(
        """
        q, g = torch.randn(1, 2, 4, 8), CPUGraph()
        with torch.no_grad(), graph(g):
            y = torch.nn.functional.scaled_dot_product_attention(q * 1, q, q)
            z = (y.t() if y.dim() == 2 else y).numel() + y.stride(0)
            same = y.is_same_size(q), y.is_contiguous(), y.is_floating_point()
        g.replay()
        torch.testing.assert_close(y, torch.nn.functional.scaled_dot_product_attention(q, q, q))
        assert z == y.numel() + y.stride(0) and all(same)
        """
    )


# In groups, since each is a process.
_READS = {
    "values": ["y.sum().item()", "(y + 1)[0].item()", "y.tolist()", "repr(y)", "torch.equal(y, torch.ones(3))"],
    "operators": [
        "y + 1",
        "y.clone()",
        "torch.cat([y, y])",
        "y @ y",
        "y.flip(0)",
        "torch.ones(3).add_(y)",
    ],
    "writes": ["y.fill_(3)", "y.add_(1)", "y[1:].zero_()", "torch.add(x, 1, out=y)", "y.copy_(x)"],
    "conversions": ["y.numpy().sum()", "memoryview(y.numpy())[0]", "torch.from_dlpack(y).sum()", "to_dlpack(y)"],
    "copies": ["torch.save(y, io.BytesIO())", "copy.deepcopy(y)", "pickle.dumps(y)", "torch.ones(3).copy_(y)"],
    "storages": ["y.untyped_storage().tolist()", "y.untyped_storage().clone()", "bytes(y.untyped_storage())"],
}
_IMPORTS = "import copy, io, pickle; from torch.utils.dlpack import to_dlpack"


@pytest.mark.parametrize("group", _READS)
def test_another_thread_that_reads_a_captured_tensor_gets_an_error(group: str) -> None:
    output_of(
        f"{_IMPORTS}; READS = {_READS[group]}; MODES = ['global', 'thread_local', 'relaxed']",
        """
        for read in READS:
            print(read, flush=True)
            x, g, found = torch.ones(3), CPUGraph(), []
            def work():
                try:
                    found.append(eval(read))
                except Exception as error:
                    found.append(error)
            with graph(g, capture_error_mode=MODES[len(read) % 3]):
                y = x + 1
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            assert len(found) == 1 and isinstance(found[0], Exception) and str(found[0]), (read, found)
            g.replay()
            assert torch.equal(y, torch.full((3,), 2.0)) and torch.equal(x, torch.ones(3))
            assert torch.equal(y.clone() + 1, torch.full((3,), 3.0)) and y.numpy().sum() == 6
        """,
    )


def test_the_capturing_thread_reads_in_unusual_ways() -> None:
    output_of(
        _IMPORTS,
        """
        for read in (
            "y.untyped_storage().tolist()", "y.untyped_storage()[0]", "bytes(y.untyped_storage())",
            "y.storage().tolist()", "torch.save(y, io.BytesIO())", "pickle.dumps(y)", "to_dlpack(y)",
            "memoryview(y.numpy())", "y.share_memory_()", "torch.Tensor([y[0]])",
            "y.untyped_storage().fill_(1)", "y.untyped_storage().clone()",
        ):
            print(read, flush=True)
            x, g = torch.ones(3), CPUGraph()
            try:
                with graph(g):
                    y = x + 1
                    eval(read)
            except Exception:
                pass
            else:
                raise AssertionError(f"{read}: something was read that is not there")
            assert torch.equal(x + 1, torch.full((3,), 2.0))
            with graph(g):
                y = x + 1
            g.replay()
            assert torch.equal(y, torch.full((3,), 2.0))
        """,
    )


def test_an_outside_tensor_whose_storage_was_freed() -> None:
    out = output_of(
        """
        x, g = torch.ones(300_000), CPUGraph()
        with graph(g):
            y = x * 2
        g.replay()
        x.untyped_storage().resize_(0)
        for _ in range(2):
            try:
                g.replay()
            except ReplayError as error:
                print(error)
            else:
                raise AssertionError("freed memory was read")
        x.untyped_storage().resize_(300_000 * 4)
        x.fill_(5)
        # Memory again, and the same or other: an error or the result, nothing else.
        try:
            g.replay()
            assert y.eq(10).all()
        except ReplayError:
            pass
        g.reset()
        with graph(g):
            y = x * 3
        g.replay()
        assert y.eq(15).all()
        """
    )
    assert "freed" in out or "moved" in out or "was at" in out or "resized" in out


@pytest.mark.parametrize("how", ["read", "written"])
def test_an_outside_tensor_whose_storage_grew_elsewhere(how: str) -> None:
    """Its old memory belongs to others by now."""
    output_of(
        f"""
        x, g = torch.ones(300), CPUGraph()
        with graph(g):
            y = x * 2 if {how == "read"} else x.add_(1)
        g.replay()
        x.untyped_storage().resize_(3_000_000)
        x.fill_(3)
        others = [torch.zeros(300) for _ in range(20)]
        try:
            g.replay()
            assert y.eq(6 if {how == "read"} else 4).all(), y
        except ReplayError as error:
            pass
        assert not any(other.any() for other in others)
        """
    )


def test_an_outside_tensor_that_was_given_other_memory() -> None:
    """The graph keeps the memory that it captured, as torch.cuda's graphs do."""
    output_of(
        """
        for change in (lambda x: x.set_(torch.full((3,), 5.0)), lambda x: setattr(x, "data", torch.full((3,), 5.0))):
            x, g = torch.ones(3), CPUGraph()
            before = x.detach()
            with graph(g):
                y = x * 2
            change(x)
            for value in (1.0, 4.0):
                before.fill_(value)
                g.replay()
                assert torch.equal(y, before * 2), y
        """
    )


def test_a_result_whose_storage_was_freed_is_not_written() -> None:
    """The memory belongs to somebody else by then."""
    output_of(
        """
        x, g = torch.ones(300_000), CPUGraph()
        with graph(g):
            y = x * 2
        g.replay()
        y.untyped_storage().resize_(0)
        others = [torch.zeros(300_000) for _ in range(3)]
        try:
            g.replay()
        except ReplayError as error:
            print(error)
        assert not any(other.any() for other in others)
        y.untyped_storage().resize_(1_200_000)
        others += [torch.zeros(300_000) for _ in range(3)]
        try:
            g.replay()
            assert y.eq(2).all()
        except ReplayError as error:
            print(error)
        assert not any(other.any() for other in others)
        """
    )
