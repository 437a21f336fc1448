#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/demo_data.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands/commands.hpp"

namespace heddle {

ExitCode run_demo_data(Arguments const& arguments) {
  namespace po = boost::program_options;
  DemoDataOptions demo;
  CommandSyntax syntax;
  syntax.name = "demo-data";
  syntax.usage = "--out DIRECTORY [options]";
  syntax.summary = R"(Writes train.en/.de, valid.en/.de and test.en/.de: numbers below a million in English words and
in German words, such as "three hundred and twelve thousand and five" and "dreihundertzwölftausendfünf".
No number is in two of them.)";
  syntax.options.add_options()                                                                 //
      ("out", without_default(demo.directory, "DIRECTORY")->required(), "where the files go")  //
      ("train", with_default(demo.train, "N"), "training pairs")                               //
      ("valid", with_default(demo.valid, "N"), "validation pairs")                             //
      ("test", with_default(demo.test, "N"), "test pairs")                                     //
      ("seed", with_default(demo.seed, "N"), "chooses the numbers")                            //
      ("overwrite", po::bool_switch(&demo.overwrite), "replace files of the same names");
  parse_options(syntax, arguments);
  write_demo_data(demo);
  std::cout << fmt::format("{}: {} training, {} validation and {} test pairs (.en, .de)\n", demo.directory.string(),
                           readable_count(demo.train), readable_count(demo.valid), readable_count(demo.test));
  return ExitCode::done;
}

}  // namespace heddle
