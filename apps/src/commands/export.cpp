#include <fmt/format.h>

#include <charconv>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "exchange/exporting.hpp"

namespace heddle {

namespace po = boost::program_options;

namespace {

/// The bytes of a size as transformers writes it: "500MB", "5GB".
std::int64_t bytes_of(std::string const& size) {
  std::int64_t count = 0;
  char const* const end = size.data() + size.size();
  auto const [rest, error] = std::from_chars(size.data(), end, count);
  std::string_view const unit(rest, static_cast<std::size_t>(end - rest));
  std::int64_t const factor = unit == "KB" ? 1'000 : unit == "MB" ? 1'000'000 : unit == "GB" ? 1'000'000'000 : 0;
  if (error != std::errc() || factor == 0 || count < 1 || count > 1'000'000) {
    throw UsageError("--max-shard-size {}: expected a number of KB, MB or GB, such as 500MB", size);
  }
  return count * factor;
}

}  // namespace

ExitCode run_export(Arguments const& arguments) {
  ExportOptions options;
  std::string directory;
  std::string quantization;
  std::string shard;
  CommandSyntax syntax;
  syntax.name = "export";
  syntax.usage = "CHECKPOINT --out DIRECTORY [options]";
  syntax.summary =
      R"(Writes a model for inference or so that another system reads it. --format heddle is a checkpoint of only
the model, which all commands read that take one: without optimizer state, a third of the size. For Hugging
Face's transformers these are config.json, model.safetensors and the tokenizer's files; --format safetensors has
Heddle's own names and shapes, and [model] in config.json; for Marian model.npz, decoder.yml and the vocabularies. They are
read back before the directory appears: if the logits of a probe differ, nothing is written. For CTranslate2
these are model.bin, config.json and the vocabularies. For PEFT these are the adapters of a model with
adapters, and nothing else. docs/reference/model-families.md lists the models.)";
  syntax.options.add_options()  //
      ("checkpoint", po::value(&options.model.checkpoint)->required()->value_name("CHECKPOINT"),
       "a run's directory, its checkpoints directory, or one checkpoint's")                   //
      ("out", po::value(&directory)->required()->value_name("DIRECTORY"), "a new directory")  //
      ("format", with_default(options.format, "huggingface|safetensors|heddle|marian|ctranslate2|peft"),
       "the system that reads it")                                                               //
      ("merge", po::bool_switch(&options.merge), "fold adapters (LoRA) into the weights")        //
      ("which", with_default(options.model.which, "auto|best|last"), "the checkpoint of a run")  //
      ("family", without_default(options.family, "NAME"),
       "the model_type of config.json; default: the one that the model came from, or the first that fits")  //
      ("base", without_default(options.base, "NAME"),
       "base_model_name_or_path of adapters for PEFT; default: the name that the model had where it was imported")  //
      ("max-shard-size", without_default(shard, "SIZE"),
       "the most of a .safetensors file, as 500MB or 5GB; a larger model gets several, with an index; default: 5GB")  //
      ("dtype", with_default(options.dtype, "float32|bfloat16|float16"), "of the tensors")                            //
      ("quantization", without_default(quantization, "int8|int16|float16|bfloat16"),
       "of the weights in CTranslate2's format");
  syntax.positional.add("checkpoint", 1);
  bool const dtype_given = !parse_options(syntax, arguments)["dtype"].defaulted();
  options.directory = directory;
  if (!shard.empty()) {
    options.max_shard_bytes = bytes_of(shard);
  }
  if (!quantization.empty()) {
    if (options.format != "ctranslate2") {
      throw UsageError("--quantization is for --format ctranslate2; --dtype is for all formats");
    }
    if (dtype_given) {
      throw UsageError("--dtype and --quantization both name the type of the weights; give one of them");
    }
    options.dtype = quantization;
  }
  Runtime runtime;
  ExportedModel const exported = export_model(runtime.execution(), options);
  std::cout << fmt::format("{}: {} tensors of {} → {}\n", exported.family, readable_count(exported.tensors),
                           exported.checkpoint.string(), directory);
  if (exported.largest_difference) {
    std::cout << fmt::format("logits of a probe, read back: at most {:.2g} apart\n", *exported.largest_difference);
  }
  return ExitCode::done;
}

}  // namespace heddle
