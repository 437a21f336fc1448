"""Small models of transformers with random weights, and Heddle's programs: what the parts share."""
import os
import shutil
import sys
import tempfile

import numpy
import sentencepiece
import tokenizers
import torch
import transformers
from programs import write

SEQUENCES = 200
PIECES = 600


def train_pieces(text, path, **ids):
    sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=path, vocab_size=PIECES, minloglevel=2,
                                             character_coverage=0.9995, **ids)
    return sentencepiece.SentencePieceProcessor(model_file=path + ".model")


def t5_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/spiece", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    extra = {str(PIECES + n): {"content": f"<extra_id_{9 - n}>", "special": True} for n in range(10)}
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "T5Tokenizer", "extra_ids": 10,
                                                 "added_tokens_decoder": extra})
    return pieces, dict(vocab_size=PIECES + 22, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)


def marian_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/source", pad_id=-1, bos_id=-1, eos_id=0, unk_id=1)
    shutil.copy(directory + "/source.model", directory + "/source.spm")
    shutil.copy(directory + "/source.model", directory + "/target.spm")
    ids = {pieces.id_to_piece(id): id for id in range(PIECES)}
    ids["<pad>"] = PIECES
    write(directory + "/vocab.json", ids)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "MarianTokenizer"})
    return pieces, dict(vocab_size=PIECES + 1, pad_token_id=PIECES, eos_token_id=0, decoder_start_token_id=PIECES,
                        forced_eos_token_id=None, bos_token_id=None)


def separate_marian_vocabulary(text, directory):
    """A vocabulary for each side."""
    pieces, special = marian_vocabulary(text, directory)
    target = train_pieces(text, directory + "/target", pad_id=-1, bos_id=-1, eos_id=0, unk_id=1, model_type="bpe")
    shutil.copy(directory + "/target.model", directory + "/target.spm")
    ids = {target.id_to_piece(id): id for id in range(PIECES)}
    ids.update({"<pad>": PIECES, "<fill>": PIECES + 1})
    write(directory + "/target_vocab.json", ids)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", "separate_vocabs": True})
    return pieces, dict(special, decoder_vocab_size=PIECES + 2)


def madlad_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/spiece", unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "pad_token": "<s>",
                                                 "added_tokens_decoder": {}})
    return pieces, dict(vocab_size=PIECES, pad_token_id=1, eos_token_id=2, decoder_start_token_id=0)


def camembert_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/sentencepiece.bpe")
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "CamembertTokenizer"})
    return pieces, dict(vocab_size=PIECES + 5, pad_token_id=1, bos_token_id=5, eos_token_id=6)


def plain_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/tokenizer")
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"})
    return pieces, dict(vocab_size=PIECES, bos_token_id=1, eos_token_id=2, pad_token_id=None)


def fairseq(tokenizer_class, languages, **options):
    def vocabulary(text, directory):
        pieces = train_pieces(text, directory + "/sentencepiece.bpe", **options)
        first = PIECES + 1
        added = {str(first + n): {"content": name, "special": True} for n, name in enumerate(languages + ["<mask>"])}
        write(directory + "/tokenizer_config.json", {"tokenizer_class": tokenizer_class, "added_tokens_decoder": added})
        return pieces, dict(vocab_size=first + len(languages) + 1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                            decoder_start_token_id=2, forced_eos_token_id=None)
    return vocabulary


fairseq_vocabulary = fairseq("NllbTokenizer", ["eng_Latn", "deu_Latn"])


def mbart50_vocabulary(text, directory):
    """Languages without ids, as mBART-50 was published."""
    pieces = train_pieces(text, directory + "/sentencepiece.bpe")
    names = ["de_DE", "en_XX", "fr_XX"]
    write(directory + "/special_tokens_map.json", {"additional_special_tokens": names, "mask_token": "<mask>"})
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "MBart50Tokenizer"})
    return pieces, dict(vocab_size=PIECES + 1 + len(names) + 1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                        decoder_start_token_id=2, forced_eos_token_id=None)


def pegasus_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/spiece", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "PegasusTokenizer", "offset": 103})
    return pieces, dict(vocab_size=PIECES + 103, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
                        bos_token_id=None, forced_eos_token_id=None)


def llama_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/tokenizer", model_type="bpe", byte_fallback=True)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"})
    return pieces, dict(vocab_size=PIECES, bos_token_id=1, eos_token_id=2, pad_token_id=None)


def byte_level_vocabulary(text, directory):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train(text, vocab_size=PIECES, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False)
    tokenizer.save(directory + "/tokenizer.json")
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                                                 "eos_token": "</s>", "pad_token": "<pad>"})
    return tokenizer, dict(vocab_size=PIECES + 2, bos_token_id=0, pad_token_id=1, eos_token_id=2)


def bert_vocabulary(text, directory):
    tokenizer = tokenizers.BertWordPieceTokenizer()
    tokenizer.train(text, vocab_size=PIECES, show_progress=False)
    tokenizer.save_model(directory)  # vocab.txt: [PAD] [UNK] [CLS] [SEP] [MASK] are its first pieces
    os.chmod(directory + "/vocab.txt", 0o644)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    return tokenizer, dict(vocab_size=tokenizer.get_vocab_size() + 6, pad_token_id=0)


def roberta_vocabulary(text, directory):
    tokenizer, special = byte_level_vocabulary(text, directory)
    tokenizer.add_special_tokens(["<mask>"])
    tokenizer.save(directory + "/tokenizer.json")
    write(directory + "/tokenizer_config.json",
          {"tokenizer_class": "RobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>",
           "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"})
    return tokenizer, special


def xlm_roberta_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/sentencepiece.bpe")
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer"})
    return pieces, dict(vocab_size=PIECES + 2, pad_token_id=1, bos_token_id=0, eos_token_id=2)


def gpt2_vocabulary(text, directory):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train(text, vocab_size=PIECES, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.save_model(directory)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>",
                                                 "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"})
    return tokenizer, dict(vocab_size=PIECES, bos_token_id=0, pad_token_id=None, eos_token_id=0)


def qwen_vocabulary(text, directory):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train(text, vocab_size=PIECES, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.save_model(directory)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>",
                                                 "pad_token": "<|endoftext|>"})
    return tokenizer, dict(vocab_size=PIECES + 8, bos_token_id=None, pad_token_id=0, eos_token_id=0)


def gemma_vocabulary(text, directory):
    pieces = train_pieces(text, directory + "/tokenizer", model_type="bpe", byte_fallback=True, pad_id=0, eos_id=1,
                          bos_id=2, unk_id=3)
    write(directory + "/tokenizer_config.json", {"tokenizer_class": "GemmaTokenizer"})
    return pieces, dict(vocab_size=PIECES, bos_token_id=2, eos_token_id=1, pad_token_id=0)


def t5gemma_vocabulary(text, directory):
    pieces, special = gemma_vocabulary(text, directory)
    return pieces, dict(special, decoder_start_token_id=2)


def bart_vocabulary(text, directory):
    tokenizer, special = byte_level_vocabulary(text, directory)
    return tokenizer, dict(special, decoder_start_token_id=2, forced_eos_token_id=None)


T5 = dict(d_model=48, d_kv=8, d_ff=96, num_layers=3, num_decoder_layers=2, num_heads=4)
FAIRSEQ = dict(d_model=48, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=6,
               encoder_ffn_dim=96, decoder_ffn_dim=64, max_position_embeddings=128)
LLAMA = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128)
BERT = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
            max_position_embeddings=128)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
GPT2 = dict(n_embd=48, n_layer=3, n_head=4, n_positions=128)
OPT = dict(hidden_size=48, ffn_dim=96, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=128)
DISTILBERT = dict(dim=48, hidden_dim=96, n_layers=3, n_heads=4, max_position_embeddings=128)
MPT = dict(d_model=48, n_layers=3, n_heads=6, max_seq_len=128)
BLOOM = dict(hidden_size=48, n_layer=3, n_head=4, seq_length=128)
QWEN_WINDOWS = dict(use_sliding_window=True, sliding_window=6, max_window_layers=1)
GEMMA3 = dict(LLAMA, head_dim=16, query_pre_attn_scalar=9, sliding_window=6,
              layer_types=["sliding_attention", "full_attention", "sliding_attention"])
GEMMA2 = dict(LLAMA, head_dim=16, query_pre_attn_scalar=9, sliding_window=6, attn_logit_softcapping=3.0,
              final_logit_softcapping=5.0)


FAMILIES = {
    "t5": ("T5ForConditionalGeneration", "T5Config", t5_vocabulary, T5),
    "t5-v1.1": ("T5ForConditionalGeneration", "T5Config", t5_vocabulary,
                dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", t5_vocabulary,
            dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "madlad": ("T5ForConditionalGeneration", "T5Config", madlad_vocabulary,
               dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "switch": ("SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", t5_vocabulary,
               dict(T5, num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1)),
    "umt5": ("UMT5ForConditionalGeneration", "UMT5Config", t5_vocabulary, dict(T5, tie_word_embeddings=False)),
    "ul2": ("T5ForConditionalGeneration", "T5Config", t5_vocabulary,
            dict(T5, d_kv=16, feed_forward_proj="gated-silu", tie_word_embeddings=False)),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", pegasus_vocabulary,
                dict(FAIRSEQ, activation_function="relu", scale_embedding=True)),
    "marian": ("MarianMTModel", "MarianConfig", marian_vocabulary,
               dict(FAIRSEQ, activation_function="swish", scale_embedding=True)),
    "marian-separate": ("MarianMTModel", "MarianConfig", separate_marian_vocabulary,
                        dict(FAIRSEQ, activation_function="relu", share_encoder_decoder_embeddings=False)),
    "bart": ("BartForConditionalGeneration", "BartConfig", bart_vocabulary, FAIRSEQ),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", fairseq_vocabulary, dict(FAIRSEQ, scale_embedding=True)),
    "mbart-50": ("MBartForConditionalGeneration", "MBartConfig", mbart50_vocabulary,
                 dict(FAIRSEQ, activation_function="relu", scale_embedding=True)),
    "nllb": ("M2M100ForConditionalGeneration", "M2M100Config", fairseq_vocabulary,
             dict(FAIRSEQ, activation_function="relu")),
    "llama": ("LlamaForCausalLM", "LlamaConfig", llama_vocabulary, LLAMA),
    "llama-bpe": ("LlamaForCausalLM", "LlamaConfig", byte_level_vocabulary, LLAMA),
    "mistral": ("MistralForCausalLM", "MistralConfig", llama_vocabulary, dict(LLAMA, sliding_window=6)),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", llama_vocabulary, dict(LLAMA, num_local_experts=5)),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", llama_vocabulary, dict(LLAMA, head_dim=16)),
    "bert": ("BertForMaskedLM", "BertConfig", bert_vocabulary, BERT),
    "bert-own": ("BertForMaskedLM", "BertConfig", bert_vocabulary,
                 dict(BERT, hidden_act="gelu_new", tie_word_embeddings=False, type_vocab_size=1)),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", roberta_vocabulary, dict(BERT, type_vocab_size=1)),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", xlm_roberta_vocabulary, dict(BERT, type_vocab_size=1)),
    "camembert": ("CamembertForMaskedLM", "CamembertConfig", camembert_vocabulary, dict(BERT, type_vocab_size=1)),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", bert_vocabulary, DISTILBERT),
    "opt": ("OPTForCausalLM", "OPTConfig", gpt2_vocabulary, OPT),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", gpt2_vocabulary, dict(LLAMA, sliding_window=6)),
    "mpt": ("MptForCausalLM", "MptConfig", gpt2_vocabulary, MPT),
    "bloom": ("BloomForCausalLM", "BloomConfig", gpt2_vocabulary, BLOOM),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", llama_vocabulary, dict(LLAMA, sliding_window=6)),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", gpt2_vocabulary, GPT2),
    "llama3": ("LlamaForCausalLM", "LlamaConfig", byte_level_vocabulary, dict(LLAMA, rope_parameters=LLAMA3)),
    "llama-linear": ("LlamaForCausalLM", "LlamaConfig", llama_vocabulary,
                     dict(LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    "llama-biases": ("LlamaForCausalLM", "LlamaConfig", llama_vocabulary, dict(LLAMA, attention_bias=True)),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", qwen_vocabulary, dict(LLAMA, tie_word_embeddings=True)),
    "qwen2-windows": ("Qwen2ForCausalLM", "Qwen2Config", qwen_vocabulary,
                      dict(LLAMA, rope_parameters=YARN, **QWEN_WINDOWS)),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", qwen_vocabulary, dict(LLAMA, head_dim=16)),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", gpt2_vocabulary, LLAMA),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", gemma_vocabulary, GEMMA3),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", gemma_vocabulary, GEMMA2),
    "gemma2-uncapped": ("Gemma2ForCausalLM", "Gemma2Config", gemma_vocabulary,
                        dict(GEMMA2, attn_logit_softcapping=None, final_logit_softcapping=None)),
    "t5gemma": ("T5GemmaForConditionalGeneration", "T5GemmaConfig", t5gemma_vocabulary,
                dict(encoder=GEMMA2, decoder=dict(GEMMA2, num_hidden_layers=2, intermediate_size=64))),
    "t5gemma-widths": ("T5GemmaForConditionalGeneration", "T5GemmaConfig", t5gemma_vocabulary,
                       dict(encoder=dict(GEMMA2, hidden_size=64), decoder=dict(GEMMA2, num_hidden_layers=2))),
}


LARGE = ("shared", "embed_tokens", "lm_head.weight", "embeddings.weight", "decoder.weight", "wte")  # tables of tokens


def randomise(model):
    """Weights that leave no part of the model without effect, norms, biases and buffers of the output included."""
    generator = torch.Generator().manual_seed(1)
    for name, value in list(model.named_parameters()) + list(model.named_buffers()):
        if "embed_positions" in name and "weight" in name and not value.requires_grad:
            continue  # sinusoids
        if value.dtype.is_floating_point and "inv_freq" not in name and "embed_scale" not in name:
            scale = 0.3 / max(value.shape[-1], 1) ** 0.5 if value.dim() > 1 else 0.1
            noise = torch.randn(value.shape, generator=generator) * scale
            is_norm = "norm" in name.lower() or ".ln_" in name
            value.data = noise + (1 if value.dim() == 1 and is_norm and name.endswith("weight") else 0)
            if any(part in name for part in LARGE):
                value.data = torch.randn(value.shape, generator=generator) * 0.3
            unread = {"opt": "embed_positions", "roberta": "position_embeddings", "xlm-roberta": "position_embeddings",
                      "camembert": "position_embeddings"}.get(model.config.model_type)
            if unread and unread in name:
                value.data[:2] = 0  # no token has these positions


def build(family, text, directory):
    model_class, config_class, vocabulary, sizes = FAMILIES[family]
    os.makedirs(directory)
    _, special = vocabulary(text, directory)
    stacks = {name: dict(sizes[name], **special) for name in ("encoder", "decoder") if name in sizes}
    config = getattr(transformers, config_class)(**{**sizes, **stacks}, **special, use_cache=True)
    model = getattr(transformers, model_class)(config).eval().float()
    randomise(model)
    if sizes.get("tie_word_embeddings") is False and config.is_encoder_decoder:
        # T5 v1.1 and mT5 as they were published; transformers 5 ties the output unless a file has it.
        model.lm_head.weight = torch.nn.Parameter(model.shared.weight.detach().roll(1, 0) * 0.7)
    else:
        model.tie_weights()
    model.save_pretrained(directory)
    return model, special


def is_encoder(model):
    return type(model).__name__.endswith("ForMaskedLM")


def logits_of(model, special, pairs):
    rows = []
    with torch.no_grad():
        for source, target in pairs:
            if model.config.is_encoder_decoder:
                inputs = dict(input_ids=torch.tensor([source + [special["eos_token_id"]]]),
                              decoder_input_ids=torch.tensor([[special["decoder_start_token_id"]] + target]))
            else:
                inputs = dict(input_ids=torch.tensor([target]))
            cache = {} if is_encoder(model) else dict(use_cache=False)
            rows.append(model(**inputs, **cache).logits[0].numpy())
    return numpy.concatenate(rows)


def for_each(document, compare, names):
    """The main function of a part with the arguments BUILD TEXT [NAME...]; it fails where a comparison gives False."""
    def main(arguments):
        if len(arguments) < 2:
            sys.exit(document)
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        with tempfile.TemporaryDirectory() as work:
            found = [compare(name, os.path.abspath(arguments[0]), arguments[1], work) for name in arguments[2:] or names]
        sys.exit(False in found)
    return main


def drawn_ids(special):
    """A function that draws ids of a random number of pieces."""
    random = numpy.random.default_rng(1)
    return lambda: [int(id) for id in random.integers(4, special["vocab_size"] - 4, random.integers(1, 40))]


def distance(found, expected):
    """The largest difference of a logit, relative to the largest logit."""
    return abs(found - expected).max() / abs(expected).max()
