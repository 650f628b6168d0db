"""Is there a PyTorch to run on? Asked before anything imports it, so that the answer is a sentence."""

from __future__ import annotations

__all__ = ["MINIMUM_TORCH", "require_torch"]

MINIMUM_TORCH = (2, 11)


def require_torch() -> None:
    """Raise ImportError, with the reason and what to install, where torch cannot be imported."""
    wanted = "torch>=" + ".".join(map(str, MINIMUM_TORCH))
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name == "torch":
            message = f"airgraph needs PyTorch, which is not installed: install it with `pip install '{wanted}'`"
        else:
            message = f"airgraph needs PyTorch, which lacks the package {error.name}: `pip install {error.name}`"
        cause: Exception = error
    except Exception as error:
        # Whatever torch's libraries raise, and the extensions of devices that it loads.
        message = (
            f"airgraph needs PyTorch, which is installed and cannot be imported ({_one_line(error)}): "
            f"reinstall it with `pip install --force-reinstall '{wanted}'`, or repair what the reason names"
        )
        cause = error
    else:
        return
    # With the name of the package that is being imported, `python -m airgraph` prints the sentence and no traceback.
    raise ImportError(message, name="airgraph") from cause


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
