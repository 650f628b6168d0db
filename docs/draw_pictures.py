"""Draws docs/pictures/memory.png: the memory page of a small Llama, its graphs in one pool, as a browser shows it.

python docs/draw_pictures.py CHROMIUM   with airgraph[plots] and transformers installed
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import airgraph

_PICTURE = Path(__file__).parent / "pictures" / "memory.png"
_SIZE = "1160,960"


@torch.no_grad()
def main(browser: str) -> None:
    config = LlamaConfig(
        hidden_size=64, intermediate_size=172, num_hidden_layers=2, num_attention_heads=4, vocab_size=256
    )
    model = LlamaForCausalLM(config).eval()
    options = {"use_graph_pool": airgraph.graph_pool_handle()}
    model.forward = torch.compile(model.forward, backend="airgraph", options=options)
    for length in (12, 5):
        model.generate(
            torch.arange(length)[None], max_new_tokens=6, cache_implementation="static", disable_compile=True
        )
    with tempfile.TemporaryDirectory() as folder:
        page = airgraph.explain().save(Path(folder) / "memory.html")
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={_SIZE}",
                f"--user-data-dir={folder}/profile", "--virtual-time-budget=20000", f"--screenshot={_PICTURE}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
