#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/alignment/word_aligner.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/text/text_writer.hpp>
#include <iostream>
#include <iterator>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "corpus/corpus_output.hpp"

namespace heddle {

namespace po = boost::program_options;

namespace {

struct AlignOptions {
  std::string source, target, output, reference;
  std::string symmetrization = "grow-diag-final-and";
  std::int64_t max_pairs = 2'000'000;
  AlignmentTraining training;
};

/// Calls take(source, target) for each pair of lines. Throws DataError where one text has more lines.
template <class Take>
void for_each_pair(AlignOptions const& options, Take const& take) {
  LineReader source(options.source);
  LineReader target(options.target);
  std::string first;
  std::string second;
  while (source.next(first)) {
    if (!target.next(second)) {
      break;
    }
    take(first, second);
  }
  if (source.next(first) || target.next(second) || source.line_number() != target.line_number()) {
    throw DataError("{} and {} have different numbers of lines: line n of one must translate line n of the other",
                    options.source, options.target);
  }
}

/// Numbers that spread `wanted` of `count` lines evenly.
bool is_chosen(std::int64_t line, std::int64_t count, std::int64_t wanted) {
  return line * wanted / count != (line + 1) * wanted / count;
}

class Aligner {
 public:
  explicit Aligner(AlignOptions const& options)
      : options_(options),
        pairs_(read_pairs()),
        forward_(pairs_, options.training),
        reverse_(reversed(), options.training) {}

  std::string links(std::string const& source, std::string const& target, Symmetrization symmetrization) {
    WordIds const first = source_.of(source);
    WordIds const second = target_.of(target);
    last_ = symmetrize(forward_.align(first, second), reverse_.align(second, first), symmetrization);
    return pharaoh_text(last_);
  }
  WordLinks const& last() const { return last_; }

 private:
  WordPairs read_pairs() {
    std::int64_t count = 0;
    for_each_pair(options_, [&](std::string const&, std::string const&) { ++count; });
    if (count == 0) {
      throw DataError(options_.source + ": has no line");
    }
    std::int64_t const wanted = std::min(count, options_.max_pairs);
    std::int64_t line = 0;
    WordPairs pairs;
    for_each_pair(options_, [&](std::string const& source, std::string const& target) {
      if (is_chosen(line++, count, wanted)) {
        WordIds first = source_.add(source);
        WordIds second = target_.add(target);
        if (std::max(first.size(), second.size()) <= max_aligned_words) {
          pairs.source.push_back(std::move(first));
          pairs.target.push_back(std::move(second));
        }
      }
    });
    pairs.source_words = source_.size();
    pairs.target_words = target_.size();
    return pairs;
  }
  /// The pairs with their sides swapped; the first direction has learnt from them.
  WordPairs const& reversed() {
    std::swap(pairs_.source, pairs_.target);
    std::swap(pairs_.source_words, pairs_.target_words);
    return pairs_;
  }

  AlignOptions const& options_;
  WordNumbers source_, target_;
  WordPairs pairs_;
  WordAligner forward_, reverse_;
  WordLinks last_;
};

CommandSyntax align_syntax(AlignOptions& options) {
  CommandSyntax syntax;
  syntax.name = "align";
  syntax.usage = "--source TEXT --target TEXT --output LINKS [options]";
  syntax.summary = R"(Links the words of parallel text that translate one another, with a hidden Markov model in both
directions, and writes a line "0-0 1-2" for each pair: numbers of words between white space, source and target, from 0
on (Pharaoh's format). `prepare --alignments LINKS` takes it. Tokenized text, with punctuation apart, gives better
links; then prepare that text, or give its words' numbers back to the plain one.)";
  syntax.options.add_options()                                                                       //
      ("source", po::value(&options.source)->required()->value_name("TEXT"), "one sentence a line")  //
      ("target", po::value(&options.target)->required()->value_name("TEXT"),
       "line n translates line n of the source")  //
      ("output", po::value(&options.output)->required()->value_name("LINKS"),
       "the file, which is replaced, compressed if its name ends with .gz or .zst; or - for the standard output")  //
      ("symmetrize", with_default(options.symmetrization, "HOW"),
       "how both directions become one: grow-diag-final-and, intersection, union, forward or reverse")  //
      ("iterations", with_default(options.training.hidden_markov_iterations, "N"),
       "of the hidden Markov model, after five of model 1")  //
      ("max-pairs", with_default(options.max_pairs, "N"),
       "train on at most N pairs, evenly spread: their words are kept in memory; all are aligned")  //
      ("reference", without_default(options.reference, "LINKS"),
       "links that are right, of the first lines: the alignment error rate is printed");
  return syntax;
}

Symmetrization symmetrization_of(std::string const& name) {
  auto const& names = value_names<Symmetrization>;
  auto const found = std::ranges::find(names, name);
  if (found == names.end()) {
    throw UsageError("align: --symmetrize {}: expected {}", name, fmt::join(names, ", "));
  }
  return static_cast<Symmetrization>(found - names.begin());
}

}  // namespace

ExitCode run_align(Arguments const& arguments) {
  AlignOptions options;
  parse_options(align_syntax(options), arguments);
  Symmetrization const symmetrization = symmetrization_of(options.symmetrization);
  constexpr std::int64_t max_pairs = std::numeric_limits<std::int32_t>::max();
  if (options.max_pairs < 1 || options.max_pairs > max_pairs || options.training.hidden_markov_iterations < 1) {
    throw UsageError("align: --max-pairs {} and --iterations {}: expected 1 to {} and at least 1", options.max_pairs,
                     options.training.hidden_markov_iterations, max_pairs);
  }
  for (std::string const& text : {options.source, options.target}) {
    if (is_read_once(text)) {
      throw UsageError("align: {} can be read only once, and texts are read several times; write it into a file", text);
    }
  }
  if (options.output != "-") {
    require_other_file(options.output, {options.source, options.target});
    require_replaceable(options.output);
  }
  Aligner aligner(options);
  std::optional<LineReader> reference;
  if (!options.reference.empty()) {
    reference.emplace(options.reference);
  }
  AlignmentAgreement agreement;
  std::string text;
  std::int64_t lines = 0;
  std::int64_t links = 0;
  std::int64_t too_long = 0;
  for_each_pair(options, [&](std::string const& source, std::string const& target) {
    text += aligner.links(source, target, symmetrization) + "\n";
    ++lines;
    too_long += std::max(split_words(source).size(), split_words(target).size()) > max_aligned_words ? 1 : 0;
    links += std::ssize(aligner.last());
    if (std::string line; reference && reference->next(line)) {
      LinkLine const right{line, options.reference, lines};
      WordLinks links_of_line = right.links(std::ssize(split_words(source)), std::ssize(split_words(target)));
      std::ranges::sort(links_of_line);
      agreement.add(aligner.last(), links_of_line);
    }
  });
  bool const to_stdout = options.output == "-";
  if (to_stdout) {
    std::cout << text << std::flush;
    require_written(std::cout, "the standard output");
  } else {
    replace_file(options.output, compress(text, compression_of(options.output)));
  }
  std::ostream& out = to_stdout ? std::cerr : std::cout;
  out << fmt::format("{} links of {} pairs → {}\n", readable_count(links), readable_count(lines), options.output);
  if (too_long > 0) {
    out << fmt::format("{} with more than {} words on a side have no links\n", counted(too_long, "pair"),
                       max_aligned_words);
  }
  if (reference) {
    out << fmt::format("alignment error rate {:.4f}: {} links, {} in the reference, {} in both\n",
                       agreement.error_rate(), readable_count(agreement.found), readable_count(agreement.wanted),
                       readable_count(agreement.both));
  }
  return ExitCode::done;
}

}  // namespace heddle
