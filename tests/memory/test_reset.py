"""reset() returns the memory of all pools to the system."""

from process import output_of

_PROGRAM = """
import ctypes, gc, torch, airgraph

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

torch.set_num_threads(1)
pool = airgraph.graph_pool_handle()
with torch.no_grad():
    def program(x):
        return ((x * 2).relu() + 1).sum(-1)
    explicit = torch.compile(program, backend="airgraph", dynamic=True, options={"use_graph_pool": pool})
    default = torch.compile(lambda x: (x + 3).exp().sum(-1), backend="airgraph", dynamic=True)
    # Compilers and kernels take their share before the measurement.
    for run in (explicit, default):
        run(torch.randn(2, 3)), run(torch.randn(4, 5))
    airgraph.reset()
    before = resident()
    for rows in (1000, 4000, 8000):
        x = torch.randn(rows, 1000)
        for run in (explicit, default):
            run(x)
    taken = sum(p["nbytes"] for p in airgraph.explain().to_dict()["pools"])
    del x
    held = resident()
    assert taken > 100 << 20, taken
    assert held - before > 0.9 * taken, (before, held, taken)
    airgraph.reset()
    after = resident()
    assert after - before < 8 << 20, (before, held, after)
    assert pool.nbytes == 0 and airgraph.explain().to_dict()["pools"] == []
    assert torch.equal(explicit(torch.ones(2, 3)), torch.full((2,), 9.0))
    # Without a reset, with the last graph and handle.
    explicit(torch.randn(8000, 1000))
    assert resident() - before > 50 << 20
    del explicit, run
    torch._dynamo.reset()
    del pool
    assert resident() - before < 8 << 20, (before, resident())
"""


def test_reset_and_the_last_reference_return_all_memory() -> None:
    output_of(_PROGRAM)
