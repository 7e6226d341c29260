"""python -m labengine demo"""

from __future__ import annotations

import argparse
import sys

from labengine.config import ConfigError


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 2 for what it cannot do."""
    parser = argparse.ArgumentParser(prog="python -m labengine", description="labengine on the command line")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="two equal requests, one step: eight blocks, or five (nano-vLLM #219/#243)")
    demo.add_argument("--model", default="smollm2", help="a model name or a directory of safetensors")
    chosen = parser.parse_args(arguments)
    try:
        from labengine.demo import main as run_demo

        run_demo(sys.stdout, chosen.model)
    except ConfigError as error:
        print(f"labengine: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
