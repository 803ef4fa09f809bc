"""One check in this process: `python -m tools.soak.child NAME AMOUNT FOLDER`."""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path

from tools.soak.checks import CHECKS


def main() -> None:
    """Run the check, and print what it finds as JSON in one line."""
    faulthandler.enable()
    name, amount, folder = sys.argv[1:]
    check = next(check for check in CHECKS if check.name == name)
    print(json.dumps(check.function()(int(amount), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
