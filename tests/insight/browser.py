"""A real browser, for pages that draw themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["drawn_by_a_browser", "needs_a_browser"]

_BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_a_browser = pytest.mark.skipif(
    _BROWSER is None and not os.environ.get("CI"), reason="no Chromium; `CI=1 make browser` installs one where it may"
)


def drawn_by_a_browser(page: Path, profile: Path) -> str:
    """What a browser makes of the page: its elements after all scripts have run."""
    if _BROWSER is None:
        pytest.fail("no Chromium, and CI is set, where nobody would see a skip. `make browser` installs one")
    done = subprocess.run(
        [
            _BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={profile}", "--virtual-time-budget=20000", "--enable-logging=stderr", "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not re.findall(r"CONSOLE.*(?:Uncaught|Error)", done.stderr), done.stderr
    return done.stdout
