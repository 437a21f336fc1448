#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/dataset/lexicon.hpp>
#include <heddle/io/text/text.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "alignment/model_one.hpp"

namespace heddle {
namespace {

/// Marian passes over lines with it. A file of ours begins with a line that has it twice, and its lines with this
/// source are the frequencies of target pieces; in other files they are probabilities of another kind.
constexpr std::string_view no_piece = "NULL";

std::vector<Lexicon::Entry> frequencies(std::vector<std::int32_t> const& targets, std::int64_t pieces) {
  std::vector<Lexicon::Entry> all(static_cast<std::size_t>(pieces));
  for (std::size_t piece = 0; piece < all.size(); ++piece) {
    all[piece].target = static_cast<std::int32_t>(piece);
  }
  for (std::int32_t const target : targets) {
    all[static_cast<std::size_t>(target)].probability += 1 / static_cast<double>(targets.size());
  }
  sort_translations(all);
  std::erase_if(all, [](Lexicon::Entry const& entry) { return entry.probability == 0; });
  return all;
}

/// Takes the first word off a text; empty where there is none.
std::string take_word(std::string_view& text) {
  constexpr char const* blanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  std::string word(text.substr(0, text.find_first_of(blanks)));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace

Shortlist Lexicon::shortlist(std::int64_t first, std::int64_t best, Vocabulary const& vocabulary) const {
  Shortlist shortlist;
  auto const append = [](std::vector<Entry> const& entries, std::int64_t count, std::vector<std::int32_t>& tokens) {
    for (std::int64_t index = 0; index < std::min(count, std::ssize(entries)); ++index) {
      tokens.push_back(entries[static_cast<std::size_t>(index)].target);
    }
  };
  if (frequent.empty()) {
    shortlist.always.resize(static_cast<std::size_t>(std::min<std::int64_t>(first, vocabulary.target.size())));
    std::iota(shortlist.always.begin(), shortlist.always.end(), 0);
  }
  append(frequent, first, shortlist.always);
  for (std::vector<Entry> const& entries : translations) {
    append(entries, best, shortlist.translations.emplace_back());
  }
  if (vocabulary.joint()) {
    shortlist.translations.resize(static_cast<std::size_t>(vocabulary.source.size()));
    for (std::size_t piece = 0; piece < shortlist.translations.size(); ++piece) {
      shortlist.translations[piece].push_back(static_cast<std::int32_t>(piece));
    }
  }
  return shortlist;
}

Lexicon learn_lexicon(Dataset const& dataset, LexiconTraining const& training) {
  if (dataset.has_lines()) {
    throw DataError(dataset.name() + ": has lines of one text; a lexicon needs sentence pairs");
  }
  std::int64_t const target_pieces = dataset.target_tokenizer().size();
  ModelOnePairs pairs(dataset.source_tokenizer().size());
  std::int64_t const count = std::min(training.max_pairs, dataset.size());
  for (std::int64_t pair = 0; pair < count; ++pair) {
    std::int64_t const index = pair * dataset.size() / count;
    pairs.add(dataset.source(index), dataset.target(index));
  }
  // More translations are kept meanwhile: an unlikely one may become likely.
  ModelOne model(pairs, target_pieces, std::max<std::int64_t>(10 * training.best, 1000));
  for (int iteration = 0; iteration < training.iterations; ++iteration) {
    model.iterate();
  }
  Lexicon lexicon{.frequent = frequencies(pairs.targets(), target_pieces)};
  for (std::size_t source = 0; source + 1 < pairs.source_words(); ++source) {
    std::vector<Lexicon::Entry>& entries = lexicon.translations.emplace_back(model.entries(source));
    entries.resize(std::min(entries.size(), static_cast<std::size_t>(training.best)));
    std::erase_if(entries, [&](Lexicon::Entry const& entry) { return entry.probability < training.min_probability; });
  }
  return lexicon;
}

std::string lexicon_text(Lexicon const& lexicon, Vocabulary const& vocabulary) {
  std::string text;
  auto const add = [&](std::string const& source, std::vector<Lexicon::Entry> const& entries) {
    auto const blank = [](std::string const& piece) { return piece.find_first_of(" \t\r\n") != piece.npos; };
    for (auto const& [target, probability] : entries) {
      std::string const piece = vocabulary.target.piece(target);
      if (!blank(piece) && !blank(source)) {
        text += fmt::format("{} {} {:.7g}\n", piece, source, probability);
      }
    }
  };
  text += fmt::format("{0} {0} 1\n", no_piece);
  add(std::string(no_piece), lexicon.frequent);
  for (std::size_t source = 0; source < lexicon.translations.size(); ++source) {
    if (std::string const piece = vocabulary.source.piece(static_cast<std::int32_t>(source)); piece != no_piece) {
      add(piece, lexicon.translations[source]);
    }
  }
  return text;
}

Lexicon read_lexicon(std::filesystem::path const& path, Vocabulary const& vocabulary) {
  auto const sources = piece_ids(vocabulary.source);
  auto const targets = piece_ids(vocabulary.target);
  Lexicon lexicon;
  lexicon.translations.resize(static_cast<std::size_t>(vocabulary.source.size()));
  bool known = false;
  bool ours = false;
  if (std::string const problem = file_problem(path); !problem.empty()) {
    throw DataError(problem + "; expected a lexicon");
  }
  LineReader reader(path);
  for (std::string line; reader.next(line);) {
    std::string_view rest = line;
    std::string const target = take_word(rest);
    std::string const source = take_word(rest);
    std::string const number = take_word(rest);
    if (target.empty()) {
      continue;
    }
    double const probability = parse_number<double>(number).value_or(-1);
    if (!(probability >= 0 && probability <= 1) || !take_word(rest).empty()) {
      throw DataError("{}, line {}: expected \"TARGET SOURCE PROBABILITY\"", path.string(), reader.line_number());
    }
    ours = ours || (target == no_piece && source == no_piece);
    auto const target_id = targets.find(target);
    if (target_id == targets.end()) {
      continue;
    }
    if (source == no_piece) {
      if (ours) {
        lexicon.frequent.push_back({target_id->second, probability});
      }
    } else if (auto const id = sources.find(source); id != sources.end()) {
      lexicon.translations[static_cast<std::size_t>(id->second)].push_back({target_id->second, probability});
      known = true;
    }
  }
  if (!known) {
    throw DataError(path.string() + ": has no pair of pieces that the model's vocabulary has");
  }
  sort_translations(lexicon.frequent);
  std::ranges::for_each(lexicon.translations, sort_translations);
  return lexicon;
}

}  // namespace heddle
