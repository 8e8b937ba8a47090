"""Choose the command, and turn bad input into one clear line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import gymnasium

from entity_encoder.agents.cli import bench, envs, evaluate, export, play, plot, train, watch
from entity_encoder.agents.cli.options import Parser
from entity_encoder.errors import nearest
from entity_encoder.version import __version__

__all__ = ["COMMANDS", "build_parsers", "main"]

COMMANDS = {
    "train": train,
    "eval": evaluate,
    "envs": envs,
    "plot": plot,
    "watch": watch,
    "play": play,
    "export": export,
    "bench": bench,
}
EXAMPLES = """examples:
  entity-encoder train                              the default task, about two minutes
  entity-encoder train Entity/CherryPick-v0 --total-steps 200_000
  entity-encoder eval runs/cherrypick-seed1 --video play.gif
  entity-encoder watch runs                         TensorBoard
"""
# What the user can put right. Anything else is a fault of ours, and keeps its traceback.
BAD_INPUT = (ValueError, OSError, ImportError, gymnasium.error.Error)
INTERRUPTED = 130  # what a shell expects after Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: What stands behind ``entity-encoder``; by default what this process was
            started with.

    Returns:
        0 for success, 2 for bad input (said in one line), 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:  # so that `train my_file:MyEnv-v0` finds my_file.py, as python -m does
        sys.path.append(os.getcwd())
    parser, parsers = build_parsers()
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        close = nearest(words[0], COMMANDS)
        parser.error(f"command must be one of {', '.join(COMMANDS)}, got {words[0]!r}{close}")
    options, unknown = parser.parse_known_args(words)
    if not options.command:
        parser.print_help()
        return 0
    parsers[options.command].refuse_unknown(unknown)
    try:
        return COMMANDS[options.command].run(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BAD_INPUT as error:
        if os.environ.get("ENTITY_ENCODER_TRACEBACK"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"entity-encoder {options.command}: error: {message}", file=sys.stderr)
        return 2


def build_parsers() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of the whole command line, and that of each command."""
    parser = Parser(
        prog="entity-encoder",
        description="Train, evaluate and look at policies over sets of entities.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"entity-encoder {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="command", title="commands", parser_class=Parser
    )
    parsers = {}
    for name, module in COMMANDS.items():
        text = (module.__doc__ or "").strip().splitlines()[0]
        parsers[name] = commands.add_parser(
            name, help=text, description=text, epilog=module.EXAMPLES
        )
        module.add_options(parsers[name])
    return parser, parsers
