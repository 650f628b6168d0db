"""`airgraph` with the arguments given, and what was captured as the last line of what it says; run by tests."""

import atexit
import json
import sys


def _say() -> None:
    import airgraph

    print("captured:", json.dumps(airgraph.explain().to_dict(), default=str))


if __name__ == "__main__":
    from airgraph.capture.ledger import ledger

    # A script's functions are gone when it is over.
    ledger.keep_functions()
    atexit.register(_say)
    from airgraph_command import main

    sys.exit(main())
