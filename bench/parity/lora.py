"""Compares models of transformers that have adapters of PEFT with Heddle's.

    python3 bench/parity lora BUILD TEXT [FAMILY...]

The models are those of the part exchange, with random adapters. Printed are the largest differences of a logit, relative to the
largest logit, of: PEFT's adapter after `heddle import --base`; `heddle export --format peft` of that, as PEFT loads it; and
`heddle export --merge`, as transformers loads it.
"""
import models
import numpy
import peft
import safetensors.torch
import programs
import torch

TARGETS = {"marian": ["q_proj", "v_proj", "decoder.layers.1.fc1", "encoder.layers.0.self_attn.out_proj"],
           "llama": ["q_proj", "v_proj", "gate_proj", "down_proj"]}


def adapted(model, family):
    settings = dict(r=5, lora_alpha=9, target_modules=TARGETS.get(family, ["q_proj", "v_proj"]), use_rslora=family == "llama")
    with_adapter = peft.get_peft_model(model, peft.LoraConfig(**settings)).eval()
    generator = torch.Generator().manual_seed(2)
    for name, value in with_adapter.named_parameters():
        if "lora_" in name:
            value.data = torch.randn(value.shape, generator=generator) * 0.2
    return with_adapter


def compare(family, build_directory, text, work):
    heddle, theirs = build_directory + "/apps/heddle", f"{work}/{family}"
    model, special = models.build(family, text, theirs)
    base = lambda: type(model).from_pretrained(theirs).eval().float()
    draw = models.drawn_ids(special)
    pairs = [(draw(), draw()) for _ in range(models.SEQUENCES)]
    plain = models.logits_of(model, special, pairs)
    with_adapter = adapted(model, family)
    with_adapter.save_pretrained(theirs + ".adapter")
    expected = models.logits_of(with_adapter, special, pairs)
    apart = lambda found: models.distance(found, expected)

    programs.run(heddle, "import", theirs, "--out", theirs + ".run")
    programs.run(heddle, "import", theirs + ".adapter", "--base", theirs + ".run", "--out", theirs + ".lora",
                 "--set", "adapter.save_base=false")
    logits = programs.model_logits(build_directory, theirs + ".lora", pairs)
    imported = apart(numpy.frombuffer(logits, numpy.float32).reshape(expected.shape))

    programs.run(heddle, "export", theirs + ".lora", "--format", "peft", "--out", theirs + ".back")
    back = apart(models.logits_of(peft.PeftModel.from_pretrained(base(), theirs + ".back").eval(), special, pairs))
    old, new = (safetensors.torch.load_file(each + "/adapter_model.safetensors") for each in (theirs + ".adapter", theirs + ".back"))
    same = sum(torch.equal(old[name], new[name]) for name in old) if old.keys() == new.keys() else -1

    programs.run(heddle, "export", theirs + ".lora", "--merge", "--out", theirs + ".merged")
    merged = apart(models.logits_of(type(model).from_pretrained(theirs + ".merged").eval().float(), special, pairs))
    print(f"{family:9} the adapter moves logits by {apart(plain):.1e}; imported {imported:.1e} apart; back {back:.1e}, "
          f"{same} of {len(old)} tensors equal; merged {merged:.1e}", flush=True)
    return max(imported, back, merged) < 1e-4


main = models.for_each(__doc__, compare, ["marian", "llama", "nllb", "mistral"])
