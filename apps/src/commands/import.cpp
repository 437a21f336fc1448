#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "exchange/adapters.hpp"
#include "exchange/importing.hpp"

namespace heddle {

namespace po = boost::program_options;

ExitCode run_import(Arguments const& arguments) {
  std::string from;
  std::string run;
  std::string base;
  ImportOptions options;
  bool no_probe = false;
  CommandSyntax syntax;
  syntax.name = "import";
  syntax.usage = "MODEL --out RUN [options]";
  syntax.summary =
      R"(Makes a run of another system's model. MODEL is a directory that save_pretrained of Hugging Face's
transformers wrote, with config.json, *.safetensors and the tokenizer's files; or a .npz file of Marian,
or the directory that has it, its vocabularies and decoder.yml; or, with --base, the directory of an adapter
that PEFT wrote, adapter_config.json and adapter_model.safetensors. The run has one checkpoint, of step 0, with
the vocabulary: `translate`, `generate` and `evaluate` use it, and train.initialize_from starts a run
with it. docs/reference/model-families.md lists the families of models.)";
  syntax.options.add_options()                                                                                   //
      ("from", po::value(&from)->required()->value_name("MODEL"), "a directory or a .npz file")                  //
      ("out", po::value(&run)->required()->value_name("RUN"), "the run's directory, which must be new")          //
      ("base", without_default(base, "RUN"), "the run of the model that MODEL, an adapter of PEFT, belongs to")  //
      ("set", po::value(&options.overrides)->composing()->value_name("KEY=VALUE"),
       "replace a key of the model's configuration, such as model.dropout=0.1")  //
      ("no-probe", po::bool_switch(&no_probe),
       "do not load the imported model to compute the logits of a probe: less memory");
  syntax.positional.add("from", 1);
  parse_options(syntax, arguments);
  if (is_peft(from) == base.empty()) {
    throw UsageError(base.empty() ? from + " is an adapter of PEFT: --base RUN names the run of its model"
                                  : from + " has no adapter_config.json; --base is for adapters of PEFT");
  }
  Runtime runtime;
  options.probe = !no_probe;
  ImportedModel const imported = base.empty() ? import_model(runtime.execution(), from, run, options)
                                              : import_peft(runtime.execution(), from, base, run, options);
  std::cout << fmt::format("{}: {} tensors, {} parameters → {}\n", imported.family, readable_count(imported.tensors),
                           readable_count(imported.parameters), imported.checkpoint.string());
  if (imported.largest_logit) {
    std::cout << fmt::format("largest logit of a probe: {:.4g}\n", *imported.largest_logit);
  }
  return ExitCode::done;
}

}  // namespace heddle
