"""`python -m airgraph` is the `airgraph` command."""

from __future__ import annotations

from airgraph_command import main

if __name__ == "__main__":
    main()
