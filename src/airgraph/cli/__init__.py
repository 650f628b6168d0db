"""The command line: one file a subcommand, `main.py` composes them."""
