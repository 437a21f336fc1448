#!/usr/bin/env python3
"""Compares Heddle with other systems: models after import, export and training, and tokenizers.

    python3 bench/parity PART BUILD ...

The parts are exchange, languages, training, finetuned, lora, tokenization and marian; without arguments a part prints its own.
They need pip's torch, transformers, tokenizers, safetensors, sentencepiece and ctranslate2, lora also peft, and the target
`benchmarks` of BUILD. Models have small random weights.
"""
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.append(os.path.join(HERE, "..", "..", "tests", "golden", "exchange"))

if len(sys.argv) < 2 or not os.path.exists(os.path.join(HERE, sys.argv[1] + ".py")):
    sys.exit(__doc__)
importlib.import_module(sys.argv[1]).main(sys.argv[2:])
