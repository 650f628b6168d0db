"""From programs to captured graphs: keys, the callable that captures and replays, the ledger of what happened."""
