"""Runs the program that it is given, and says what was captured as the last line; tests start it by `airgraph run`."""

import json
import runpy
import sys

import airgraph
from airgraph.capture.ledger import ledger

# The program's functions are gone when it is over.
ledger.keep_functions()
runpy.run_path(sys.argv[1], run_name="__main__")
print("captured:", json.dumps(airgraph.explain().to_dict(), default=str))
