"""The commands of `reodsl`: one module each, with one click command named `command`."""
