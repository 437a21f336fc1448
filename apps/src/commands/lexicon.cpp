#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/lexicon.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/text/text_writer.hpp>
#include <iostream>
#include <limits>

#include "command_line/options.hpp"
#include "commands.hpp"

namespace heddle {

namespace po = boost::program_options;

ExitCode run_lexicon(Arguments const& arguments) {
  std::vector<std::string> datasets;
  std::string output;
  LexiconTraining training;
  CommandSyntax syntax;
  syntax.name = "lexicon";
  syntax.usage = "--dataset DATASET --output LEXICON [options]";
  syntax.summary = R"(Finds the target pieces that translate each source piece in a dataset of sentence pairs, with IBM
model 1, and writes a text "TARGET SOURCE PROBABILITY", as Marian's lex.s2t. `translate --shortlist LEXICON`
chooses only from these pieces.)";
  syntax.options.add_options()  //
      ("dataset", po::value(&datasets)->required()->composing()->value_name("DATASET"),
       "a dataset of `heddle prepare`, or its directory; may be repeated")  //
      ("output", po::value(&output)->required()->value_name("LEXICON"),
       "the file, which is replaced; compressed if its name ends with .gz or .zst")                                //
      ("best", with_default(training.best, "N"), "translations of a source piece; less likely ones are left out")  //
      ("max-pairs", with_default(training.max_pairs, "N"),
       "read at most N pairs, evenly spread: their tokens are kept in memory");
  parse_options(syntax, arguments);
  constexpr std::int64_t max_best = 1'000'000;
  constexpr std::int64_t max_pairs = std::numeric_limits<std::int32_t>::max();
  if (training.best < 1 || training.best > max_best || training.max_pairs < 1 || training.max_pairs > max_pairs) {
    throw UsageError("lexicon: --best {} and --max-pairs {}: expected 1 to {} and 1 to {}", training.best,
                     training.max_pairs, max_best, max_pairs);
  }
  for (std::string& dataset : datasets) {
    dataset = dataset_in(dataset, "train.h5");
  }
  Dataset const dataset = Dataset::open(datasets);
  require_replaceable(output);
  Lexicon const lexicon = learn_lexicon(dataset, training);
  std::string const text = lexicon_text(lexicon, dataset.vocabulary());
  replace_file(output, compress(text, compression_of(output)));
  std::int64_t pieces = 0;
  std::int64_t entries = 0;
  for (auto const& translations : lexicon.translations) {
    pieces += translations.empty() ? 0 : 1;
    entries += std::ssize(translations);
  }
  std::cout << fmt::format("{} translations of {} source pieces → {}\n", readable_count(entries),
                           readable_count(pieces), output);
  return ExitCode::done;
}

}  // namespace heddle
