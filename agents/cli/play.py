"""Write a trained policy as a file that runs without this package."""

EXAMPLES = ""


def add_options(parser):
    pass


def run(options):
    return 0
