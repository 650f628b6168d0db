"""The beginning of programs that are interrupted, forked or reset: what they call, and whether it is right."""

__all__ = ["CALLS"]

CALLS = """
import gc, os, random, signal, sys, tempfile, time
torch.set_grad_enabled(False)
warnings.simplefilter("ignore")
random.seed(0)

def step(cache, row, x):
    cache.index_copy_(0, row, x)
    return torch.softmax(cache * 2 + x.sum(), -1).sum(0)

def rows(x):
    return (x * 2 + 1).relu() + x.sum(0)

ROW, X = torch.tensor([1]), torch.randn(1, 8)

class Target:
    '''call: what is interrupted. right: compares with eager, on inputs of its own.'''
    def __init__(self, call, right):
        self.call, self.right = call, right

def decode(compiled):
    cache = torch.zeros(4, 8)
    def right():
        ours, theirs = torch.ones(4, 8), torch.ones(4, 8)
        torch.testing.assert_close(compiled(ours, ROW, X), step(theirs, ROW, X))
        torch.testing.assert_close(ours, theirs)
    right()
    return Target(lambda: compiled(cache, ROW, X), right)

def compiled():
    return decode(torch.compile(step, backend="airgraph", dynamic=False))

def cached():
    return decode(airgraph.inference.cache_compile(step, cache_dir=tempfile.mkdtemp(), dynamic=False, strict=True))

def by_hand():
    cache, g = torch.zeros(4, 8), CPUGraph()
    with graph(g):
        y = step(cache, ROW, X)
    def right():
        g.replay()
        torch.testing.assert_close(y, step(cache.clone(), ROW, X))
    return Target(g.replay, right)

def several_keys():
    call = torch.compile(rows, backend="airgraph", dynamic=True)
    given = [torch.randn(n, 8) for n in (2, 3, 4)]
    def right():
        for x in given:
            torch.testing.assert_close(call(x), rows(x))
    right()
    return Target(lambda: call(random.choice(given)), right)

def held_outputs():
    target = several_keys()
    held = []
    def call():
        held.append(target.call())
        del held[:-3]
    return Target(call, target.right)

def two_pools():
    targets = [compiled(), by_hand(), several_keys()]
    return Target(lambda: [t.call() for t in targets], lambda: [t.right() for t in targets])

def two_streams():
    from airgraph.runtime.cpu import beside
    # Beside one another, whatever it brings: a signal falls while workers have a part of the replay.
    beside._LEAST_GAIN_NS, beside._cores = float("-inf"), lambda: 3
    weights = torch.randn(2, 96, 96) / 10
    forked, done = airgraph.Event("forked"), airgraph.Event("done")
    def program(x):
        x = x + 1
        forked.record()
        with airgraph.scope.stream("side"):
            forked.wait()
            side = x
            for _ in range(6):
                side = (side @ weights[0]).relu()
            done.record()
        main = x
        for _ in range(6):
            main = (main @ weights[1]).relu()
        done.wait()
        return main + side
    call = torch.compile(program, backend="airgraph", fullgraph=True, dynamic=False)
    given = torch.randn(48, 96)
    def right():
        x = torch.randn(48, 96)
        torch.testing.assert_close(call(x), program(x))
    right()
    (row,) = airgraph.explain().to_dict()["graphs"]
    assert (row["streams"], row["threads"]) == (2, 2)
    return Target(lambda: call(given), right)

def captured_anew():
    # Through the door without Dynamo, which signals in its own midst can leave half done.
    call = airgraph.inference.cache_compile(rows, cache_dir=tempfile.mkdtemp(), options={"force_recapture": True})
    x = torch.randn(5, 8)
    def right():
        torch.testing.assert_close(call(x), rows(x))
    right()
    return Target(lambda: call(x), right)

def moved():
    compiled = torch.compile(step, backend="airgraph", dynamic=False, options={"capture_limit": 1 << 30})
    caches = [torch.zeros(4, 8) for _ in range(3)]
    target = decode(compiled)
    return Target(lambda: compiled(random.choice(caches), ROW, X), target.right)

def captured_by_hand():
    x, held = torch.ones(3), []
    def call():
        g = CPUGraph()
        held[:] = [g]
        with graph(g):
            y = x * 2
        g.replay()
        return y
    def right():
        assert torch.equal(call(), torch.full((3,), 2.0))
    # The first capture imports what torch itself cannot have interrupted.
    right()
    return Target(call, right)

def with_resets():
    target = several_keys()
    def call():
        target.call()
        airgraph.reset()
    return Target(call, target.right)
"""
