#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/demo_data.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands.hpp"

namespace heddle {

int run_demo_data(Arguments const& arguments) {
  namespace po = boost::program_options;
  DemoDataOptions demo;
  std::string directory;
  CommandSyntax syntax;
  syntax.name = "demo-data";
  syntax.usage = "--out DIRECTORY [options]";
  syntax.summary =
      "Writes train.en/.de, valid.en/.de and test.en/.de: numbers below a million in English words and in German\n"
      "words, such as \"three hundred and twelve thousand and five\" and \"dreihundertzwölftausendfünf\".\n"
      "No number is in two of them.";
  syntax.options.add_options()                                                                           //
      ("out", po::value(&directory)->required()->value_name("DIRECTORY"), "where the files go")          //
      ("train", po::value(&demo.train)->value_name("N")->default_value(demo.train), "training pairs")    //
      ("valid", po::value(&demo.valid)->value_name("N")->default_value(demo.valid), "validation pairs")  //
      ("test", po::value(&demo.test)->value_name("N")->default_value(demo.test), "test pairs")           //
      ("seed", po::value(&demo.seed)->value_name("N")->default_value(demo.seed), "chooses the numbers")  //
      ("overwrite", po::bool_switch(&demo.overwrite), "replace files of the same names");
  if (!parse_options(syntax, arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  demo.directory = directory;
  write_demo_data(demo);
  std::cout << fmt::format("{}: {} training, {} validation and {} test pairs (.en, .de)\n", demo.directory.string(),
                           readable_count(demo.train), readable_count(demo.valid), readable_count(demo.test));
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
