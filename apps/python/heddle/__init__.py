"""Heddle in Python: translate, generate, score and embed with trained models, read datasets, checkpoints and the
numbers of runs, and train.

    import heddle

    translator = heddle.Translator("runs/m30k")
    print(translator.translate_batch(["A dog runs."], beam_size=4)[0].text)

Everything is computed on one thread of its own, without Python's lock: any thread may call, and calls wait for one
another. A process that was forked from one that has used a model raises Error; multiprocessing's "spawn" works.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

import numpy

from . import _heddle
from ._heddle import ConfigError, DataError, Error, Hypothesis, UsageError, __version__

__all__ = [
    "Checkpoint", "ConfigError", "DataError", "Dataset", "Error", "Generator", "Hypothesis", "Result", "Run",
    "Translator", "UsageError", "train", "__version__",
]

PathLike = Union[str, "os.PathLike[str]"]
_OPTIONS = {"num_hypotheses": "n_best", "max_decoding_length": "max_length", "min_decoding_length": "min_length",
            "no_repeat_ngram_size": "no_repeat_ngram", "max_batch_size": "batch_tokens"}
_SAMPLING = {"sampling_temperature": "temperature", "sampling_topk": "top_k", "sampling_topp": "top_p", "seed": "seed",
             "sampling_min_p": "min_p"}


@dataclasses.dataclass(frozen=True)
class Result:
    """The hypotheses for one line, the best first."""

    hypotheses: list[Hypothesis]

    @property
    def text(self) -> str:
        """The best hypothesis."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """Its log-probability, divided by its length to the power of length_penalty."""
        return self.hypotheses[0].score


def _generation_options(given: Mapping[str, Any]) -> _heddle.GenerationOptions:
    options = _heddle.GenerationOptions()
    sampling = _heddle.Sampling()
    for name, value in given.items():
        if name in _SAMPLING:
            setattr(sampling, _SAMPLING[name], value)
            continue
        own = _OPTIONS.get(name, name)
        if own == "sampling" or not hasattr(options, own):
            known = sorted(key for key in dir(options) if not key.startswith("_") and key != "sampling")
            raise TypeError(f"there is no option {name}; there are {', '.join(known + sorted(_SAMPLING))}")
        setattr(options, own, value)
    if options.n_best > options.beam_size and "beam_size" not in given:
        options.beam_size = options.n_best
    options.sampling = sampling
    return options


def _lines(lines: Iterable[str]) -> list[str]:
    if isinstance(lines, (str, bytes)):
        raise TypeError("expected a list of lines, not one string")
    return list(lines)


class _Model:
    def __init__(self, checkpoint: PathLike, *, which: str = "auto", quantize: str = "", adapter: PathLike = "",
                 ensemble: Sequence[PathLike] = (), weights: Sequence[float] = (), average: int = 1,
                 overrides: Mapping[str, Any] = {}, trust_plugins: bool = False) -> None:
        """Opens a run, its checkpoints directory or one checkpoint, and verifies what it reads.

        which: "best", "last", or "auto": the best where there is one. quantize: "int8" or "". adapter: a run with
        adapters on this checkpoint. ensemble, weights: further models that compute together with it, and the weights
        of all. average: the number of newest checkpoints whose parameters are averaged. overrides: keys of the
        configuration ("kernels.gemm") and their values.
        """
        options = _heddle.ModelOptions()
        options.checkpoint = os.fspath(checkpoint)
        options.which = which
        options.quantize = quantize
        options.adapter = os.fspath(adapter)
        options.ensemble = [os.fspath(each) for each in ensemble]
        options.weights = list(weights)
        options.average = average
        options.overrides = [f"{key}={value}" for key, value in overrides.items()]
        options.trust_plugins = trust_plugins
        self._model = _heddle.Model(options)

    @property
    def digest(self) -> str:
        """The SHA-256 of the checkpoint's manifest: equal ones compute the same."""
        return self._model.digest()

    @property
    def config(self) -> str:
        """The configuration that it was trained with, in TOML."""
        return self._model.config()


class Translator(_Model):
    """An encoder-decoder model."""

    def translate_batch(self, source: Iterable[str], *, source_language: str = "", target_language: str = "",
                        **options: Any) -> list[Result]:
        """Translates lines; a line with only white space gives one empty hypothesis.

        options: beam_size, n_best (num_hypotheses), length_penalty, max_length, min_length, no_repeat_ngram,
        patience, sampling_temperature, sampling_topk, …: those of `heddle translate`, or CTranslate2's names.
        """
        languages = _heddle.Languages(source_language, target_language)
        found = self._model.translate(_lines(source), _generation_options(options), languages)
        return [Result(hypotheses) for hypotheses in found]

    def translate(self, line: str, **options: Any) -> str:
        """The best translation of one line."""
        return self.translate_batch([line], **options)[0].text

    def score_batch(self, source: Iterable[str], target: Iterable[str], *, source_language: str = "",
                    target_language: str = "") -> list[float]:
        """The natural logarithm of the probability of each target with its end; NaN where a side is too long."""
        languages = _heddle.Languages(source_language, target_language)
        return self._model.score(_lines(source), _lines(target), languages)

    def embed_batch(self, lines: Iterable[str], *, source_language: str = "") -> numpy.ndarray:
        """[lines, d_model]: the mean of the encoder's output over each line's tokens."""
        return self._model.embed(_lines(lines), _heddle.Languages(source_language, ""))


class Generator(_Model):
    """A decoder-only model."""

    def generate_batch(self, prompts: Iterable[str], **options: Any) -> list[Result]:
        """Continues prompts; options as those of Translator.translate_batch."""
        return [Result(hypotheses) for hypotheses in self._model.generate(_lines(prompts), _generation_options(options))]

    def embed_batch(self, lines: Iterable[str]) -> numpy.ndarray:
        """[lines, d_model]: the mean of the last layer's output over each line's tokens."""
        return self._model.embed(_lines(lines), _heddle.Languages("", ""))


class Dataset:
    """Sentence pairs, or the lines of a text, as token ids: what `heddle prepare` wrote."""

    def __init__(self, path: PathLike) -> None:
        self._dataset = _heddle.Dataset(os.fspath(path))

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Union[numpy.ndarray, tuple[numpy.ndarray, numpy.ndarray]]:
        """The ids of a pair's source and target, or of a line; without begin and end tokens."""
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"sample {index} of {size}")
        index %= size
        if self._dataset.has_lines():
            return self._dataset.read("line", index)
        return self._dataset.read("source", index), self._dataset.read("target", index)

    @property
    def digest(self) -> str:
        """The SHA-256 of its content and vocabulary."""
        return self._dataset.digest()


class Checkpoint(Mapping[str, numpy.ndarray]):
    """The verified tensors of a checkpoint, by name, whole and in float32."""

    def __init__(self, path: PathLike, *, which: str = "auto") -> None:
        self._checkpoint = _heddle.Checkpoint(os.fspath(path), which)
        self._names = self._checkpoint.names()

    def __getitem__(self, name: str) -> numpy.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._checkpoint.read(name, "value")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def keys_of(self, name: str) -> list[str]:
        """The keys of its arrays: "value", and those that the optimizer keeps ("adam.first_moment")."""
        return self._checkpoint.keys(name)

    def read(self, name: str, key: str = "value") -> numpy.ndarray:
        """One of its arrays."""
        return self._checkpoint.read(name, key)

    @property
    def step(self) -> int:
        """The updates that it has seen."""
        return self._checkpoint.step()


class Run:
    """The directory of a run."""

    def __init__(self, directory: PathLike) -> None:
        self.directory = Path(directory)

    @property
    def series(self) -> dict[str, tuple[numpy.ndarray, numpy.ndarray]]:
        """The steps and the values of each number, finite ones only."""
        return _heddle.read_metrics(os.fspath(self.directory / "metrics.jsonl"))

    @property
    def metrics(self) -> Any:
        """A pandas DataFrame with a row for each step, or `series` where pandas is not installed."""
        series = self.series
        try:
            import pandas
        except ImportError:
            return series
        return pandas.DataFrame({key: pandas.Series(values, index=steps.astype("int64"))
                                 for key, (steps, values) in series.items()}).rename_axis("step")

    @property
    def checkpoint(self) -> Checkpoint:
        """Its best checkpoint or, where none is called so, its newest."""
        return Checkpoint(self.directory)


def train(config: PathLike, *, ranks: int = 1, overrides: Mapping[str, Any] = {}, launcher: Sequence[str] = ("mpirun",),
          program: str = "heddle", stop: Optional[Callable[[dict[str, Any]], bool]] = None) -> Iterator[dict[str, Any]]:
    """Trains as `mpirun -np RANKS heddle train CONFIG` does, and yields the lines of metrics.jsonl as they come.

    overrides: keys of the configuration and their values. stop: is called with each line; where it returns true, or where
    the iterator is closed, the run writes a checkpoint and ends. Raises Error with the program's last words where it
    fails.
    """
    words = [word for key, value in overrides.items() for word in ("--set", f"{key}={_toml(value)}")]
    command = [program, "train", os.fspath(config), *words]
    if ranks > 1:
        command = [*launcher, "-np", str(ranks), *command]
    resolved = subprocess.run([program, "config", os.fspath(config), *words], capture_output=True, text=True)
    if resolved.returncode != 0:
        raise ConfigError(resolved.stderr.strip())
    directory = _run_directory(resolved.stdout)
    metrics = directory / "metrics.jsonl"
    seen = metrics.stat().st_size if metrics.exists() else 0
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while True:
                ended = process.poll() is not None
                lines, seen = _new_lines(metrics, seen)
                for line in lines:
                    yield line
                    if stop is not None and stop(line):
                        return
                if ended:
                    break
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGUSR1)
            process.wait()
        if process.returncode not in (0, 75):
            errors.seek(0)
            raise Error(f"{' '.join(command)} ended with {process.returncode}: {errors.read().strip()[-2000:]}")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json.dumps(each) if isinstance(each, str) else _toml(each) for each in value) + "]"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _run_directory(resolved: str) -> Path:
    for line in resolved.splitlines():
        key, _, value = line.partition("=")
        if key.strip() in ("directory", "run.directory"):
            return Path(json.loads(value.split("#")[0].strip()))
    raise Error("the configuration has no run.directory")


def _new_lines(path: Path, seen: int) -> tuple[list[dict[str, Any]], int]:
    """The whole lines after the first `seen` bytes, and the bytes up to their end."""
    if not path.exists():
        return [], seen
    with open(path, "rb") as file:
        seen = 0 if file.seek(0, os.SEEK_END) < seen else seen  # a fresh run has written it anew
        file.seek(seen)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], seen + len(whole)
