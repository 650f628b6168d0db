"""Finds the C headers of other Pythons: of those installed here, or in packages of Debian, which are only unpacked."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

__all__ = ["downloaded_headers", "installed_headers"]

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_WHERE = "import sysconfig; print(sysconfig.get_path('include'))"


def installed_headers(version: str) -> list[Path] | None:
    """Folders to include for `version` ("3.12") as found on this machine, or None."""
    for folder in _candidates(version):
        if (folder / "Python.h").is_file() and (folder / "pyconfig.h").is_file():
            # Debian's pyconfig.h includes one of a folder beside.
            return [folder, folder.parent]
    return None


def _candidates(version: str) -> Iterator[Path]:
    name = f"python{version}"
    if sysconfig.get_python_version() == version:
        yield Path(sysconfig.get_path("include"))
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    for program in (shutil.which(name), *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/{name}"))):
        if program is not None:
            # A program of pyenv's on PATH may refuse to run: then it is found among the versions.
            said = subprocess.run([program, "-c", _WHERE], capture_output=True, text=True, check=False)
            if said.returncode == 0:
                yield Path(said.stdout.strip())
    for base in ("/usr/include", "/usr/local/include"):
        yield Path(base, name)


def downloaded_headers(version: str, folder: Path) -> list[Path] | None:
    """The same of a package of Debian's newest suite, unpacked into `folder`; None where there is none to be had.

    Needs apt and the network, but no rights: lists and packages stay in `folder`.
    """
    include = folder / "usr" / "include"
    if not (include / f"python{version}" / "Python.h").is_file():
        apt = _apt(folder)
        if apt is None or not _unpacked(f"libpython{version}-dev", apt, folder):
            return None
    return [include / f"python{version}", include]


def _unpacked(package: str, apt: list[str], folder: Path) -> bool:
    fetched = subprocess.run([*apt, "download", package], cwd=folder, capture_output=True, check=False)
    archives = sorted(folder.glob(f"{package}_*.deb"))
    if fetched.returncode != 0 or not archives:
        return False
    return subprocess.run(["dpkg-deb", "-x", archives[-1], folder], check=False).returncode == 0


def _apt(folder: Path) -> list[str] | None:
    """`apt-get` that knows the newest suite of the archive that this machine installs from, and none other."""
    if sys.platform != "linux" or shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    known = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True, check=False
    )
    archive = next((each for each in known.stdout.split() if each.rstrip("/").endswith("/debian")), None)
    if archive is None:
        return None
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.is_file() else ""
    (folder / "sources.list").write_text(f"deb {signed}{archive} sid main\n")
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        # Packages are unpacked, not installed: apt need not change to a user of its own, who may not write here.
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-q", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]
    if not (folder / "updated").exists():
        if subprocess.run([*apt, "update"], capture_output=True, check=False).returncode != 0:
            return None
        (folder / "updated").touch()
    return apt
