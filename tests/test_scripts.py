"""The scripts hand on what they are given."""

import os
import re
import shutil
import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"


def test_the_demo_gets_its_options_and_the_set_up_does_not(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "demo", tmp_path / "scripts")
    theirs = re.findall(r"^(\w+)=", (SCRIPTS / "_env").read_text(), re.MULTILINE)  # which the set-up may change
    (tmp_path / "scripts" / "_env").write_text("".join([f"{name}=x\n" for name in theirs] + ['echo "groups: $*"\n']))
    (tmp_path / "rapkit").write_text('#!/bin/sh\necho "rapkit $*"\n')
    (tmp_path / "rapkit").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    for options in ((), ("--live",)):
        ended = subprocess.run(
            [tmp_path / "scripts" / "demo", *options],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )

        assert [line.strip() for line in ended.stdout.splitlines()[:2]] == [
            "groups:",
            " ".join(("rapkit demo", *options)),
        ]
