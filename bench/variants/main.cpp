// Prints the tables of variants in docs/reference/kernels.md: bench_variants --help
#include "../main.hpp"

#include "run/configuration/registration.hpp"
#include "variants.hpp"

namespace heddle {
namespace {

constexpr char const* program = "bench_variants";

int run(int argc, char** argv) {
  namespace po = boost::program_options;
  std::vector<std::string> plugins;
  std::vector<std::string> kernels;
  bool timed = false;
  bool decoder = false;
  po::options_description description("Tables of variants of attention and of models as Markdown");
  description.add_options()                                                                     //
      ("help", "show this help")                                                                //
      ("plugin", po::value(&plugins)->composing()->value_name("LIBRARY"), "load this plug-in")  //
      ("kernel", po::value(&kernels)->composing()->value_name("OPERATION=NAME"),
       "compute with this implementation instead of the one that auto selects; can be repeated")    //
      ("decoder", po::bool_switch(&decoder), "print only the table of a decoder's self-attention")  //
      ("time", po::bool_switch(&timed), "also measure a decoder's self-attention, which takes minutes");
  if (!parse(argc, argv, description, program, true)) {
    return static_cast<int>(ExitCode::done);
  }
  std::vector<std::string> overrides;
  for (std::string const& kernel : kernels) {
    overrides.push_back("kernels." + kernel);
  }
  Config const config = read_config({.config = "", .overrides = overrides, .plugins = plugins});
  Runtime runtime;
  Registries registries;
  register_everything({.plugins = read_plugins(config.plugins)}, registries, runtime.execution());
  registries.kernels.require_known(config.kernels);
  VariantsRequest const request{registries, config.kernels, runtime.execution()};
  fmt::print("{}\n", to_markdown(decoder_attention_variants(request, timed)));
  if (!decoder) {
    fmt::print("{}\n", to_markdown(other_attention_variants(request)));
    fmt::print("{}", to_markdown(model_variants(request)));
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  try {
    return heddle::run(argc, argv);
  } catch (heddle::Error const& error) {
    fmt::print(stderr, "{}: {}\n", heddle::program, error.what());
    return static_cast<int>(error.code());
  }
}
