"""`python -m airgraph` is the `airgraph` command."""

from __future__ import annotations

from airgraph.cli.main import main

if __name__ == "__main__":
    main()
