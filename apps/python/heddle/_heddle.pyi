"""The extension module: see module.cpp."""

from typing import Sequence

import numpy

__version__: str

class Error(RuntimeError): ...
class UsageError(Error, ValueError): ...
class DataError(Error): ...
class ConfigError(Error): ...

class Sampling:
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int

class GenerationOptions:
    beam_size: int
    n_best: int
    max_length: int
    min_length: int
    length_penalty: float
    word_penalty: float
    patience: float
    batch_tokens: int
    no_repeat_ngram: int
    beam_groups: int
    diversity: float
    allow_unknown: bool
    sampling: Sampling

class Hypothesis:
    text: str
    score: float
    log_probability: float
    tokens: list[int]

class Languages:
    def __init__(self, source: str, target: str) -> None: ...

class ModelOptions:
    checkpoint: str
    which: str
    average: int
    average_by: str
    adapter: str
    ensemble: list[str]
    weights: list[float]
    overrides: list[str]
    quantize: str
    trust_plugins: bool
    plugins: list[str]

class Model:
    def __init__(self, options: ModelOptions) -> None: ...
    def translate(self, lines: Sequence[str], options: GenerationOptions, languages: Languages) -> list[list[Hypothesis]]: ...
    def generate(self, prompts: Sequence[str], options: GenerationOptions) -> list[list[Hypothesis]]: ...
    def score(self, sources: Sequence[str], targets: Sequence[str], languages: Languages) -> list[float]: ...
    def embed(self, lines: Sequence[str], languages: Languages) -> numpy.ndarray: ...
    def digest(self) -> str: ...
    def config(self) -> str: ...

class Dataset:
    def __init__(self, path: str) -> None: ...
    def __len__(self) -> int: ...
    def has_lines(self) -> bool: ...
    def digest(self) -> str: ...
    def read(self, side: str, index: int) -> numpy.ndarray: ...

class Checkpoint:
    def __init__(self, path: str, which: str) -> None: ...
    def read(self, name: str, key: str) -> numpy.ndarray: ...
    def step(self) -> int: ...
    def names(self) -> list[str]: ...
    def keys(self, name: str) -> list[str]: ...
    def shape(self, name: str) -> list[int]: ...

def read_metrics(file: str) -> dict[str, tuple[numpy.ndarray, numpy.ndarray]]: ...
