"""`airgraph bench`: a model of yours run in several ways, side by side, each checked against eager first."""
