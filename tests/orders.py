"""Orders of work on up to four streams, and what leads to what in them."""

from hypothesis import strategies as st

from airgraph.program.order import WorkOrder


@st.composite
def _orders(draw: st.DrawFn) -> WorkOrder:
    streams = draw(st.lists(st.integers(0, draw(st.integers(0, 3))), min_size=1, max_size=24))
    waits = {
        step: draw(st.lists(st.integers(0, step - 1), max_size=2)) if draw(st.booleans()) else []
        for step in range(1, len(streams))
    }
    return WorkOrder(streams, waits)


ORDERS = _orders()


def reaches(order: WorkOrder, step: int, other: int) -> bool:
    """Whether a chain of waits and of steps of one stream leads from one to the other."""
    pending, seen = [other], set()
    while pending:
        current = pending.pop()
        earlier = [i for i in range(current) if order.stream_of[i] == order.stream_of[current]]
        for source in (*order.waits.get(current, ()), *earlier):
            if source == step:
                return True
            if source not in seen:
                seen.add(source)
                pending.append(source)
    return False
