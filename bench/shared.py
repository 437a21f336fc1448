"""Shared by the programs of this folder: programs that are run, their environment and data, and figures of runs."""
import json
import os
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def mpi_environment(**changes):
    """This process's environment with the variables of scripts/mpi-environment, and these."""
    script = f"set -a; source '{ROOT}/scripts/mpi-environment'; env -0"
    output = subprocess.run(["bash", "-c", script], check=True, capture_output=True).stdout.decode()
    return dict(entry.split("=", 1) for entry in output.split("\0") if "=" in entry) | changes


def environment(**changes):
    """This process's environment with these variables, in which mpirun starts as root, too."""
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **changes)


def ended(command, **options):
    """A program that has ended, with its output."""
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)


def run(command, **options):
    """Returns a program's output; a failure ends this one."""
    done = ended(command, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


@dataclass(frozen=True)
class Model:
    """The sizes of an encoder-decoder model."""
    layers: int  # on either side
    d_model: int
    d_ff: int
    heads: int

    def keys(self):
        return {"model.encoder_layers": self.layers, "model.decoder_layers": self.layers, "model.d_model": self.d_model,
                "model.d_ff": self.d_ff, "model.heads": self.heads}


def settings(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def make_data(heddle, work, pairs, **options):
    """Pairs of `heddle demo-data` in work/text, as datasets in work/data."""
    text = work / "text"
    run([heddle, "demo-data", "--out", text, "--train", pairs, "--valid", pairs // 10, "--test", 20], **options)
    run([heddle, "prepare", "--source", text / "train.en", "--target", text / "train.de", "--valid-source", text / "valid.en",
         "--valid-target", text / "valid.de", "--vocab-size", 250, "--out", work / "data"], **options)


def after_each_step(metrics, skipped):
    """Tokens and seconds of each step after the first ones."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [(after["tokens"] - before["tokens"], after["seconds"] - before["seconds"])
            for before, after in zip(lines[skipped - 1:], lines[skipped:])]


def step_seconds(metrics, skipped):
    """The median over the steps after the first ones."""
    return statistics.median(seconds for _, seconds in after_each_step(metrics, skipped))
