"""`python -m entity_encoder.agents` is the command line `entity-encoder`."""

import sys

from entity_encoder.agents.cli import main

if __name__ == "__main__":
    sys.exit(main())
