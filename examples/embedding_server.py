"""An embedding server: batches of every size and length, whose graphs share one pool of memory.

python examples/embedding_server.py
"""

import random
import time

import torch
from transformers import BertConfig, BertModel

import airgraph

torch.manual_seed(0)
chance = random.Random(0)
sizes = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
model = BertModel(BertConfig(vocab_size=1000, **sizes)).eval()


def embed(ids: torch.Tensor) -> torch.Tensor:
    """One vector of length 1 for each text of a batch. ids: [batch, length]."""
    return torch.nn.functional.normalize(model(input_ids=ids).last_hidden_state.mean(1), dim=-1)


compiled = torch.compile(embed, backend="airgraph", fullgraph=True, dynamic=True)
times_ms = []
with torch.inference_mode():
    for _ in range(200):
        # Lengths are padded to a multiple of 16, so that shapes come again.
        ids = torch.randint(1000, (chance.choice((2, 4, 8)), 16 * chance.randint(1, 8)))
        start = time.perf_counter()
        vectors = compiled(ids)
        times_ms.append((time.perf_counter() - start) * 1e3)
        torch.testing.assert_close(vectors, embed(ids))

report = airgraph.explain().to_dict()
(pool,) = report["pools"]
apart = sum(graph["nbytes"] for graph in report["graphs"])
print(f"{report['counters']['captures']} shapes captured, {report['counters']['replays']} replays")
print(f"one pool of {pool['nbytes'] / 1e6:.1f} MB; with memory of their own the graphs would take {apart / 1e6:.1f} MB")
print(f"median {sorted(times_ms)[100]:.2f} ms a batch")
