#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/vocabularies/added_pieces.hpp>
#include <iostream>

#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "exchange/vocabulary_growth.hpp"
#include "run/directory/warning.hpp"

namespace heddle {

namespace po = boost::program_options;

namespace {

void read_pieces(std::string const& path, std::vector<std::string>& pieces) {
  LineReader reader(path, InvalidUtf8::fail);
  for (std::string line; reader.next(line);) {
    if (!line.empty()) {
      pieces.push_back(line);
    }
  }
}

/// Prints the parts of the new pieces, and warns of those of which a part is unknown.
void print_parts(Tokenizer const& vocabulary, VocabularyGrowth const& growth) {
  std::vector<std::string> const& pieces = growth.pieces;
  constexpr std::size_t shown = 10;
  std::vector<std::string> unknown;
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    std::vector<std::string> texts;
    bool known = true;
    for (std::int32_t const id : parts_of(vocabulary, pieces[index])) {
      texts.push_back(vocabulary.piece(id));
      known = known && id != vocabulary.special_ids().unknown;
    }
    if (index < shown) {
      std::cout << fmt::format("  {} {}: the mean of {}\n", vocabulary.size() + static_cast<std::int32_t>(index),
                               pieces[index], fmt::join(texts, " "));
    }
    if (!known) {
      unknown.push_back(pieces[index]);
    }
  }
  if (pieces.size() > shown) {
    std::cout << fmt::format("  … and {} more\n", readable_count(pieces.size() - shown));
  }
  if (!growth.languages.empty()) {
    std::cout << fmt::format("  {} {}: the mean of the vocabulary's {}\n", counted(growth.languages.size(), "language"),
                             fmt::join(growth.languages, ", "),
                             counted(vocabulary.form().languages.size(), "language"));
  }
  if (!unknown.empty()) {
    warn(
        fmt::format("{} of {} new pieces have a part that the vocabulary does not know, the first is {}: they start "
                    "like the unknown piece, and have more to learn",
                    readable_count(unknown.size()), readable_count(pieces.size()), unknown.front()));
  }
}

}  // namespace

ExitCode run_extend_vocabulary(Arguments const& arguments) {
  VocabularyGrowth growth;
  std::string run;
  std::string file;
  std::string side = "both";
  CommandSyntax syntax;
  syntax.name = "extend-vocabulary";
  syntax.usage = "CHECKPOINT --out RUN (--piece TEXT … | --pieces FILE | --language NAME …) [options]";
  syntax.summary =
      R"(Makes a run of a trained model with more pieces in its vocabulary: words, or tokens such as "<2de>". The
embedding and the output of a new piece start as the mean of the pieces that the vocabulary had for it; all
other numbers, and the ids of texts without new pieces, stay. The run has one checkpoint, of step 0, without
optimizer state. `prepare --vocab-model RUN/source.model --target-vocab-model RUN/target.model` makes data for
it, and train.initialize_from starts a run with it.)";
  syntax.options.add_options()  //
      ("checkpoint", po::value(&growth.model.checkpoint)->required()->value_name("CHECKPOINT"),
       "a run's directory, its checkpoints directory, or one checkpoint's")               //
      ("out", po::value(&run)->required()->value_name("RUN"), "the new run's directory")  //
      ("piece", po::value(&growth.pieces)->composing()->value_name("TEXT"),
       "a new piece; a space before it stands for the start of a word; may be repeated")        //
      ("pieces", po::value(&file)->value_name("FILE"), "a file with a new piece in each line")  //
      ("language", po::value(&growth.languages)->composing()->value_name("NAME"),
       "the token of a new language for --source-language and --target-language, named as the vocabulary's own are: "
       "gsw_Latn, __gsw__, >>gsw<<; may be repeated")                                                         //
      ("side", with_default(side, "source|target|both"), "the vocabulary that grows; both, if they are one")  //
      ("which", with_default(growth.model.which, "auto|best|last"), "the checkpoint of a run");
  add_plugin_options(syntax.options, growth.model);
  syntax.positional.add("checkpoint", 1);
  parse_options(syntax, arguments);
  if (!file.empty()) {
    read_pieces(file, growth.pieces);
  }
  if (growth.pieces.empty() && growth.languages.empty()) {
    throw UsageError("there is no new piece; name some by --piece, or a file by --pieces, or a --language");
  }
  growth.source = side != "target";
  growth.target = side != "source";
  growth.run = run;
  Runtime runtime;
  GrownModel const grown = extend_vocabulary(runtime.execution(), growth);
  Tokenizer const& before = growth.target ? grown.before.target : grown.before.source;
  std::cout << fmt::format("{} new pieces, from {} on; new rows in {} → {}\n",
                           readable_count(growth.pieces.size() + growth.languages.size()),
                           readable_count(before.size()), fmt::join(grown.tables, ", "), grown.checkpoint.string());
  print_parts(before, growth);
  return ExitCode::done;
}

}  // namespace heddle
