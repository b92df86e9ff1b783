"""The command ``foveola``."""


def main() -> int:
    """Run the command line and return its exit code."""
    return 2
