"""Graphs dropped in every order and at any moment, while others run or are captured."""

from interrupted_program import CALLS
from process import output_of


def test_graphs_dropped_in_each_order() -> None:
    """Two graphs, their results and their pool, in all 120 orders: what is left stays as it is."""
    output_of(
        CALLS,
        """
        import itertools
        def made():
            pool = airgraph.graph_pool_handle()
            held = {"pool": pool}
            for i in range(2):
                x, g = torch.full((50 * (i + 1),), float(i)), CPUGraph()
                with graph(g, pool=pool):
                    y = ((x * 2).sin() * 0 + x * 2 + 1).relu()
                g.replay()
                held[f"graph {i}"], held[f"result {i}"] = g, y
            return held
        for order in itertools.permutations(made()):
            held = made()
            for name in order[:-1]:
                del held[name]
                for i in range(2):
                    if f"graph {i}" in held:
                        held[f"graph {i}"].replay()
                    if f"result {i}" in held:
                        assert (held[f"result {i}"] == i * 2 + 1).all(), (order, name, i)
        """,
    )


def test_graphs_dropped_in_every_order_while_others_run() -> None:
    """Graphs, their results, their inputs and their pool, from three threads, in cycles or not."""
    output_of(
        CALLS,
        """
        failures, rounds = [], [0, 0, 0]
        pool = airgraph.graph_pool_handle()
        target = compiled()
        end = time.monotonic() + 4
        def work(number):
            choose = random.Random(number)
            with torch.no_grad():
                try:
                    while time.monotonic() < end:
                        own = pool if choose.random() < 0.7 else airgraph.graph_pool_handle()
                        graphs, results, inputs = [], [], []
                        for i in range(4):
                            x = torch.full((choose.randint(1, 3000),), float(i + number))
                            g = CPUGraph()
                            with graph(g, pool=own, capture_error_mode="relaxed"):
                                y = ((x * 2).sin() * 0 + x * 2 + 1).relu()
                            g.replay()
                            if choose.random() < 0.4:
                                g.cycle = [g]
                            graphs.append(g), results.append((y, i + number)), inputs.append(x)
                        parts = [graphs, results, inputs]
                        del g, x, y
                        while any(parts):
                            part = choose.choice([p for p in parts if p])
                            part.pop(choose.randrange(len(part)))
                            for y, value in results:
                                assert (y == value * 2 + 1).all(), (y, value)
                            if graphs and choose.random() < 0.5:
                                choose.choice(graphs).replay()
                            if choose.random() < 0.1:
                                gc.collect()
                            y = None
                        target.right()
                        rounds[number] += 1
                except BaseException as error:
                    failures.append(error)
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
            assert not thread.is_alive(), "a thread hangs"
        if failures:
            raise failures[0]
        gc.collect()
        assert min(rounds) > 0 and pool.graphs == 0 and pool.nbytes == 0, (rounds, pool.graphs, pool.nbytes)
        """,
    )


def test_graphs_collected_during_the_capture_of_another() -> None:
    """A collection may begin at any allocation, also while the pool's books are open."""
    output_of(
        CALLS,
        """
        pool = airgraph.graph_pool_handle()
        x = torch.ones(100)
        gc.set_threshold(1, 1, 1)
        for i in range(60):
            g = CPUGraph()
            g.cycle = [g]
            with graph(g, pool=pool):
                y = (x * i).sin().cos() * 0 + x * i
            g.replay()
            assert (y == i).all()
            if i % 20 == 0:
                call = torch.compile(rows, backend="airgraph", dynamic=False, options={"use_graph_pool": pool})
            torch.testing.assert_close(call(x[: i + 1]), rows(x[: i + 1]))
            del g
        del y, call
        torch._dynamo.reset()
        gc.collect()
        airgraph.reset()
        assert pool.graphs == 0 and pool.nbytes == 0, (pool.graphs, pool.nbytes)
        """,
    )
